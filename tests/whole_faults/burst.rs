//! A burst of claims, some of them deleted half-way, during a disturbance, and the check at its end.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::pin::pin;
use std::time::{Duration, Instant};

use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

use orchestrator::batches::claims_of;
use orchestrator::deployed::{clean, directory, grant_provision, local_class, volumes_in};
use orchestrator::dice::Dice;
use orchestrator::ring::{OWN, Ring, phase};
use orchestrator::wait::{unexpected, within};

/// The number of claims, created one after another.
const CLAIMS: usize = 30;
const OVER: Duration = Duration::from_secs(20);
/// Everything must be at rest this long after the last claim was created and the last process was killed.
const LIMIT: Duration = Duration::from_secs(600);

/// The disturbances, with their times.
#[derive(Debug)]
pub struct Log {
    began: Instant,
    /// The disturbances so far.
    pub done: Vec<String>,
    /// The number of claims beside those of the burst.
    added: usize,
}

impl Log {
    /// Records a disturbance, and prints it.
    pub fn note(&mut self, what: impl Display) {
        println!("{:>5.1} s  {what}", self.began.elapsed().as_secs_f64());
        self.done.push(what.to_string());
    }

    /// Creates another claim, unless one is Pending, for a disturbance to which the burst has left too few runs.
    pub async fn add_claim(&mut self, ring: &Ring) {
        let claims = list(ring).await.unwrap_or_default();
        if claims.iter().all(|claim| phase(claim) == "Bound") {
            create(ring, &added(self.added)).await;
            self.added += 1;
        }
    }
}

/// Returns the text that marks the processes of a class's image.
pub fn mark(class: &str) -> String {
    format!("# burst {class} of {}", cluster::tests_name())
}

/// The number of claims of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Each claim has its own run.
    Own,
    /// Claims that are created at one time share a run.
    Shared,
}

/// Creates a class with a slow image: it makes its directory, pauses, makes its volume, and pauses again, so that a
/// kill can happen at any of these steps.
async fn slow_class(ring: &Ring, class: &str, runs: Runs) {
    let script = format!(
        r#"{}
[ "$OPERATION" = delete ] || {{ mkdir -p "$BASE_PATH/$CLAIM_UUID"; sleep 0.4; }}
/provision.sh; code=$?; sleep 0.3; exit $code"#,
        mark(class)
    );
    let each = ["flex-pv", "each", "--jobs", "8", "--", "sh"];
    let command = json!(if runs == Runs::Own { &each[5..] } else { &each }).to_string();
    let args = json!(["-c", script]).to_string();
    let mut more = vec![("command", command.as_str()), ("args", &args), ("backoff", "1s..3s"), ("retries", "1000")];
    if runs == Runs::Shared {
        grant_provision(ring, "hostpath-provisioner", class);
        more.extend([("batch-size", "10"), ("batch-window", "1s")]);
    }
    local_class(ring, class, &more).await;
}

/// Creates claims over a while and deletes every third half-way, while `disturb` runs. Then it waits until everything
/// is at rest, checks that, deletes all claims, and checks that nothing is left.
pub async fn burst<F>(ring: &Ring, runs: Runs, seed: u64, disturb: impl FnOnce(Log) -> F)
where
    F: Future<Output = Log>,
{
    let class = ring.user.as_str();
    let (on_node, began) = (directory(class), Instant::now());
    let before = volumes_in(&on_node);
    slow_class(ring, class, runs).await;
    println!("{class}: {CLAIMS} claims over {OVER:?}, SEED={seed}");
    let log = Log { began, done: Vec::new(), added: 0 };
    let mut shared = BTreeSet::new();
    let (gone, log) = {
        let mut work = pin!(async { tokio::join!(create_and_delete(ring, seed), disturb(log)) });
        loop {
            tokio::select! {
                done = &mut work => break done,
                () = tokio::time::sleep(Duration::from_millis(300)) => shared.extend(in_batches(ring).await),
            }
        }
    };
    for number in 0..log.added {
        delete(ring, &added(number)).await;
    }
    let quiet = Instant::now();

    let expected: BTreeSet<String> = (0..CLAIMS).map(name).filter(|name| !gone.contains(name)).collect();
    let claims = within(LIMIT, "all other claims are Bound, and the deleted claims are gone", || async {
        let claims = list(ring).await?;
        let bound = claims.iter().filter(|claim| phase(claim) == "Bound").map(ResourceExt::name_any);
        if claims.len() == expected.len() && bound.collect::<BTreeSet<_>>() == expected {
            Ok(claims)
        } else {
            let state =
                |claim: &PersistentVolumeClaim| (claim.name_any(), phase(claim), claim.metadata.annotations.clone());
            unexpected(claims.iter().filter(|claim| phase(claim) != "Bound").map(state).collect::<Vec<_>>())
        }
    })
    .await;
    println!(
        "{class}: {} Bound, {} deleted half-way; {:.1?} after the last disturbance",
        claims.len(),
        gone.len(),
        quiet.elapsed()
    );

    println!("{class}: at least {} had a run for several", shared.len());
    assert_eq!(shared.len() > CLAIMS / 4, runs == Runs::Shared, "{shared:?}");

    // One volume for each claim, in the API and on the node.
    let named: BTreeSet<String> = claims.iter().map(|claim| names::pv_name(&claim.uid().unwrap())).collect();
    let bound: BTreeSet<String> = claims.iter().filter_map(|claim| claim.spec.as_ref()?.volume_name.clone()).collect();
    assert_eq!(bound, named, "each claim is bound to its own volume");
    let stored: BTreeSet<String> = claims.iter().map(|claim| claim.uid().unwrap()).collect();
    within(LIMIT, "each claim has one volume, and no other volume exists", || async {
        let there: BTreeSet<String> = volumes_of(ring).await?.into_iter().collect();
        let kept: BTreeSet<String> = volumes_in(&on_node).difference(&before).cloned().collect();
        if there == named && kept == stored { Ok(()) } else { unexpected((&there - &named, &kept - &stored)) }
    })
    .await;

    let events = ring.api::<Event>(class).list(&ListParams::default()).await.unwrap();
    let lost = |event: &&Event| matches!(event.reason.as_deref(), Some("ClaimLost" | "ClaimMisbound"));
    let lost: Vec<_> = events.iter().filter(lost).map(|event| &event.involved_object.name).collect();
    assert!(lost.is_empty(), "claims were Lost: {lost:?}");

    clean(ring).await;
    within(LIMIT, "nothing is left", || async {
        let labels = ListParams::default().labels(&format!("{}={class}", names::LABEL_CLASS));
        let list = |error: kube::Error| error.to_string();
        let mut leftovers = volumes_of(ring).await?;
        leftovers.extend(ring.api::<Job>(OWN).list(&labels).await.map_err(list)?.iter().map(ResourceExt::name_any));
        leftovers.extend(ring.api::<Pod>(OWN).list(&labels).await.map_err(list)?.iter().map(ResourceExt::name_any));
        leftovers.extend(volumes_in(&on_node).difference(&before).cloned());
        if leftovers.is_empty() { Ok(()) } else { unexpected(leftovers) }
    })
    .await;
    println!(
        "{class}: {} disturbances; 0 leaked, 0 duplicate, 0 stuck, 0 Lost; {:.1?} in all",
        log.done.len(),
        began.elapsed()
    );
}

/// Lists the claims that are in batches now. An API server that does not answer has none.
async fn in_batches(ring: &Ring) -> BTreeSet<String> {
    let labels = format!("{}={},{}=provision", names::LABEL_CLASS, ring.user, names::LABEL_OPERATION);
    let jobs = ring.api::<Job>(OWN).list(&ListParams::default().labels(&labels)).await;
    let jobs = jobs.map(|jobs| jobs.items).unwrap_or_default();
    jobs.iter().filter(|job| job.name_any().contains("-batch-")).flat_map(claims_of).collect()
}

fn name(number: usize) -> String {
    format!("c{number}")
}

fn added(number: usize) -> String {
    format!("added{number}")
}

async fn list(ring: &Ring) -> Result<Vec<PersistentVolumeClaim>, String> {
    Ok(ring.claims().list(&ListParams::default()).await.map_err(|error| error.to_string())?.items)
}

/// Lists the volumes that name a claim of this test's users, or are of its class.
async fn volumes_of(ring: &Ring) -> Result<Vec<String>, String> {
    let all = ring.volumes().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
    let of_test = all.iter().filter(|volume| {
        let spec = volume.spec.as_ref();
        let of = |spec: &k8s_openapi::api::core::v1::PersistentVolumeSpec| {
            spec.storage_class_name.as_ref() == Some(&ring.user)
                || spec.claim_ref.as_ref().is_some_and(|claim| claim.namespace.as_ref() == Some(&ring.user))
        };
        spec.is_some_and(of)
    });
    Ok(of_test.map(ResourceExt::name_any).collect())
}

/// Creates the claims, and returns the names of the deleted ones.
async fn create_and_delete(ring: &Ring, seed: u64) -> BTreeSet<String> {
    let lives = (0..CLAIMS).map(|number| async move {
        let name = name(number);
        tokio::time::sleep(OVER * number as u32 / CLAIMS as u32).await;
        let mut dice = Dice::of(seed, number as u64, "life");
        create(ring, &name).await;
        if number % 3 != 2 {
            return None;
        }
        tokio::time::sleep(dice.time(Duration::from_secs(4))).await;
        delete(ring, &name).await;
        Some(name)
    });
    futures::future::join_all(lives).await.into_iter().flatten().collect()
}

async fn delete(ring: &Ring, name: &str) {
    within(LIMIT, "a claim can be deleted", || async {
        match ring.claims().delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => unexpected(error),
        }
    })
    .await;
}

async fn create(ring: &Ring, name: &str) {
    let claim = json!({
        "metadata": { "name": name },
        "spec": { "storageClassName": ring.user, "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } },
    });
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
    within(LIMIT, "a claim can be created", || async {
        match ring.claims().create(&PostParams::default(), &claim).await {
            Ok(_) => Ok(()),
            // The answer to an earlier request was lost.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => unexpected(error),
        }
    })
    .await;
}

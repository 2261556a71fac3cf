//! Several replicas, of which one leads by a Lease. The tests stop a process while another takes over, take the Lease
//! from a leader, and measure how long a change of leader takes.

use std::time::{Duration, Instant};

use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::process::Child;

use crate::proxy::{Fault, Kind, Point, Proxy, Write, Written};
use crate::site::Site;
use crate::world::{Finding, World};
use orchestrator::ring::phase;

/// The term of a Lease is 15 s, and replicas check it every 2 s; the rest is for a busy machine.
const WITHIN: Duration = Duration::from_secs(60);
/// The text in the log of a replica that does not lead any more.
const PAUSES: &str = "leads=false";
/// The text in the log of a replica that leads from now on.
const LEADS: &str = "leads=true";
/// A burst of claims.
const CLAIMS: usize = 24;
/// Long enough to show that something does not happen.
const WHILE: Duration = Duration::from_secs(3);

fn signal(process: &Child, signal: &str) {
    let pid = process.id().expect("the process has not ended").to_string();
    assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

fn expect_ok<T>(site: &Site<'_>, replica: &str, result: Result<T, impl Into<Vec<Finding>>>) -> T {
    result.unwrap_or_else(|findings| {
        let messages: Vec<_> = findings.into().iter().map(ToString::to_string).collect();
        panic!("{}\n--- {replica}:\n{}", messages.join("\n"), site.log_end(replica))
    })
}

impl Site<'_> {
    fn replica(&self, name: &str) -> Child {
        self.run(&self.world.kubeconfig(), name, name)
    }

    /// Waits until a replica has paused more often than before.
    async fn pauses_after(&self, replica: &str, before: usize) {
        let paused = self.until("the replica pauses", || async {
            (self.times_in_log(replica, PAUSES) > before).then_some(()).ok_or_else(String::new)
        });
        expect_ok(self, replica, paused.await);
    }
}

#[tokio::test]
async fn a_standby_takes_over_at_once_after_a_stop_and_within_the_term_after_a_kill() {
    let world = World::start().await;
    let site = world.site("turns".into(), "direct").await;
    expect_ok(&site, "one", site.is_ready().await);
    let mut one = site.replica("one");
    site.led_by("one").await;
    let mut two = site.replica("two");
    site.config(&[]).await;
    site.claim("a").await;
    expect_ok(&site, "one", site.bound("a").await);
    assert_eq!(site.leader().await.as_deref(), Ok("one"), "a standby does not lead");

    let began = Instant::now();
    signal(&one, "-TERM");
    assert!(one.wait().await.unwrap().success());
    // A Lease without a holder is taken at the next look at it, and not after a term.
    assert_ne!(site.leader().await.as_deref(), Ok("one"), "the replica has kept the Lease");
    site.led_by("two").await;
    println!("graceful stop → the standby leads after {:.1?}", began.elapsed());
    site.claim("b").await;
    expect_ok(&site, "two", site.bound("b").await);

    let three = site.replica("three");
    tokio::time::sleep(WHILE).await;
    let began = Instant::now();
    two.kill().await.unwrap();
    site.led_by("three").await;
    println!("kill -9 → the standby leads after {:.1?}", began.elapsed());
    assert!(began.elapsed() < WITHIN, "not within the term");
    site.claim("c").await;
    expect_ok(&site, "three", site.bound("c").await);
    expect_ok(&site, "three", site.comes_to_rest(&["a", "b", "c"]).await);
    drop(three);
}

#[tokio::test]
async fn a_replica_that_loses_the_lease_pauses_until_it_leads_again() {
    let world = World::start().await;
    let site = world.site("loss".into(), "direct").await;
    expect_ok(&site, "one", site.is_ready().await);
    let proxy = Proxy::start(world.client.clone(), None).await;
    let mut one = site.run(&proxy.kubeconfig(&world.file("loss.kubeconfig"), json!({})), "one", "one");
    site.led_by("one").await;
    site.config(&[]).await;
    site.claim("a").await;
    expect_ok(&site, "one", site.bound("a").await);

    // A stranger steals the Lease, and renews it for a while.
    let (stolen, before) = (Instant::now(), site.times_in_log("one", PAUSES));
    let thief = async {
        loop {
            let thief =
                json!({ "spec": { "holderIdentity": "thief", "renewTime": MicroTime(jiff::Timestamp::now()) } });
            site.leases().patch(&site.lease(), &PatchParams::default(), &Patch::Merge(thief)).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let robbed = async {
        site.pauses_after("one", before).await;
        site.claim("b").await;
        tokio::time::sleep(WHILE).await;
        let waiting = site.claims().get("b").await.unwrap();
        assert!(
            waiting.metadata.annotations.is_none_or(|of| !of.contains_key(names::HELD)),
            "the replica works without the Lease"
        );
    };
    tokio::select! {
        () = thief => unreachable!("the thief never ends"),
        () = robbed => {}
    }
    site.led_by("one").await;
    println!("stolen, and then never renewed → it leads again after {:.1?}", stolen.elapsed());
    expect_ok(&site, "one", site.bound("b").await);

    // Only the requests for the Lease fail: all others would succeed, and must not be sent.
    let (cut, before) = (Instant::now(), site.times_in_log("one", PAUSES));
    proxy.refuse("GET", "leases");
    site.pauses_after("one", before).await;
    let renewed = |lease: Lease| lease.spec.and_then(|spec| spec.renew_time);
    let last = renewed(site.leases().get(&site.lease()).await.unwrap());
    site.claim("c").await;
    tokio::time::sleep(WHILE).await;
    assert_eq!(renewed(site.leases().get(&site.lease()).await.unwrap()), last);
    assert_eq!(phase(&site.claims().get("c").await.unwrap()), "Pending", "the replica works after its term");
    proxy.heal();
    expect_ok(&site, "one", site.bound("c").await);
    println!("kept from the Lease for {:.1?}: paused, then continued", cut.elapsed());
    assert!(one.try_wait().unwrap().is_none(), "the replica has ended");
    expect_ok(&site, "one", site.comes_to_rest(&["a", "b", "c"]).await);
}

/// Nobody else has led in between, so the Jobs that it created before the pause are still its own.
#[tokio::test]
async fn a_leader_that_nobody_has_replaced_opens_the_pods_of_its_jobs_after_a_pause() {
    let world = World::start().await;
    let site = world.site("resumed".into(), "direct").await;
    expect_ok(&site, "one", site.is_ready().await);
    let proxy = Proxy::start(world.client.clone(), None).await;
    let _one = site.run(&proxy.kubeconfig(&world.file("resumed.kubeconfig"), json!({})), "one", "one");
    site.led_by("one").await;
    // The Job gets its pod after the pause.
    let (quotas, pods, jobs) = (site.in_admin::<ResourceQuota>(), site.in_admin::<Pod>(), site.in_admin::<Job>());
    let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "pods": "0" } } });
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let probe = json!({
        "metadata": { "name": "probe" },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "example/other" }] },
    });
    let (probe, dry) = (serde_json::from_value(probe).unwrap(), PostParams { dry_run: true, ..PostParams::default() });
    let in_force = site.until("the quota is in force", || async {
        match pods.create(&dry, &probe).await {
            Err(kube::Error::Api(status)) if status.message.contains("exceeded quota") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    expect_ok(&site, "one", in_force.await);
    site.config(&[]).await;
    site.claim("a").await;
    let created = site.until("the Job is created", || async {
        let jobs = jobs.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        if jobs.items.is_empty() { Err(String::new()) } else { Ok(()) }
    });
    expect_ok(&site, "one", created.await);

    let (before, led) = (site.times_in_log("one", PAUSES), site.times_in_log("one", LEADS));
    proxy.refuse("GET", "leases");
    site.pauses_after("one", before).await;
    proxy.heal();
    let resumed = site.until("the replica leads again", || async {
        (site.times_in_log("one", LEADS) > led).then_some(()).ok_or_else(String::new)
    });
    expect_ok(&site, "one", resumed.await);
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    expect_ok(&site, "one", site.bound("a").await);
    let closed = site.times_in_log("one", "the provisioner deletes a Job");
    assert_eq!(closed, 0, "the Job was made again\n{}", site.log_end("one"));
    expect_ok(&site, "one", site.comes_to_rest(&["a"]).await);
}

/// A leader was cut off during a reconciliation: the answer to its last request arrives when another replica leads, and
/// its next write would be about a deleted claim.
#[tokio::test]
async fn a_leader_cut_off_during_a_reconciliation_writes_nothing_after_its_term() {
    let world = World::start().await;
    let site = world.site("late".into(), "direct").await;
    expect_ok(&site, "one", site.is_ready().await);
    let job = Write { kind: Kind { method: "POST".into(), resource: "jobs".into() }, number: 1 };
    let proxy = Proxy::start(world.client.clone(), Some(Point { fault: Fault::CutBefore, write: job })).await;
    proxy.arm();
    let mut first = site.run(&proxy.kubeconfig(&world.file("first.kubeconfig"), json!({})), "one", "first");
    site.config(&[]).await;
    site.claim("a").await;
    proxy.happened().await;
    first.kill().await.unwrap();

    // Stamped, and without a Job: the orchestrator reads the claim again before it creates the Job.
    let slow = Proxy::start(world.client.clone(), None).await;
    slow.delay_answers("GET", "persistentvolumeclaims");
    slow.arm();
    let _one = site.run(&slow.kubeconfig(&world.file("slow.kubeconfig"), json!({})), "one", "one");
    let asked =
        site.until("the claim is read", || async { (slow.waiting() == 1).then_some(()).ok_or_else(String::new) });
    expect_ok(&site, "one", asked.await);
    slow.refuse("GET", "leases");
    let _two = site.replica("two");
    site.led_by("two").await;
    expect_ok(&site, "two", site.bound("a").await);
    site.delete_claim("a").await;
    expect_ok(&site, "two", site.comes_to_rest(&[]).await);

    slow.heal();
    tokio::time::sleep(WHILE).await;
    let of_runs = |written: &Written| matches!(written.write.kind.resource.as_str(), "jobs" | "pods");
    let late: Vec<_> = slow.writes().into_iter().filter(of_runs).collect();
    assert!(late.is_empty(), "written after its term: {late:?}\n{}", site.log_end("one"));
    expect_ok(&site, "two", site.comes_to_rest(&[]).await);
}

/// The answer to the creation of a Job arrives when another replica leads, which has made that Job again.
#[tokio::test]
async fn a_leader_opens_no_pod_after_its_term() {
    let world = World::start().await;
    let site = world.site("answer".into(), "direct").await;
    expect_ok(&site, "one", site.is_ready().await);
    let slow = Proxy::start(world.client.clone(), None).await;
    slow.delay_answers("POST", "jobs");
    slow.arm();
    let _one = site.run(&slow.kubeconfig(&world.file("answer.kubeconfig"), json!({})), "one", "one");
    site.config(&[]).await;
    site.claim("a").await;
    let created =
        site.until("the Job is created", || async { (slow.waiting() == 1).then_some(()).ok_or_else(String::new) });
    expect_ok(&site, "one", created.await);
    tokio::time::sleep(WHILE).await;
    assert_eq!(site.storage(), [""; 0], "a run has begun, and its leader does not know yet that the Job is its own");
    slow.refuse("GET", "leases");
    let _two = site.replica("two");
    site.led_by("two").await;
    expect_ok(&site, "two", site.bound("a").await);

    slow.heal();
    tokio::time::sleep(WHILE).await;
    let opened: Vec<_> = slow.writes().into_iter().filter(|written| written.write.kind.resource == "pods").collect();
    assert!(opened.is_empty(), "opened after its term: {opened:?}\n{}", site.log_end("one"));
    expect_ok(&site, "two", site.comes_to_rest(&["a"]).await);
}

/// A leader that does not learn that a Job is its own opens no pod of it. The standby takes over when the time of the Job is
/// over, which Kubernetes counts from its creation.
#[tokio::test]
async fn a_run_that_nobody_opened_in_time_begins_again_and_has_not_failed() {
    let world = World::start().await;
    let site = world.site("unopened".into(), "direct").await;
    expect_ok(&site, "one", site.is_ready().await);
    let slow = Proxy::start(world.client.clone(), None).await;
    slow.delay_answers("POST", "jobs");
    slow.arm();
    let _one = site.run(&slow.kubeconfig(&world.file("unopened.kubeconfig"), json!({})), "one", "one");
    site.led_by("one").await;
    let _two = site.replica("two");
    let listed = site.until("the standby has listed", || async {
        (site.times_in_log("two", "ready elapsed") > 0).then_some(()).ok_or_else(String::new)
    });
    expect_ok(&site, "two", listed.await);
    site.config(&[("timeout", "8s")]).await;
    site.claim("a").await;
    let created =
        site.until("the Job is created", || async { (slow.waiting() == 1).then_some(()).ok_or_else(String::new) });
    expect_ok(&site, "one", created.await);
    slow.refuse("GET", "leases");
    site.led_by("two").await;
    let bound = expect_ok(&site, "two", site.bound("a").await);
    let note = |key: &str| bound.metadata.annotations.as_ref().and_then(|all| all.get(key).cloned());
    assert_eq!((note(names::ATTEMPT).as_deref(), note(names::FAILURE)), (Some("1"), None), "nothing has failed");
    expect_ok(&site, "two", site.comes_to_rest(&["a"]).await);
}

/// Creates a burst of claims, and stops the leader when some of their volumes are made. Returns the names of the claims,
/// and the number of volumes by then. If all were made before the stop, the burst is repeated with others.
async fn stopped_in_a_burst(site: &Site<'_>, one: &Child) -> (Vec<String>, usize) {
    let mut names: Vec<String> = Vec::new();
    for _ in 0..10 {
        let before = names.len();
        for number in before..before + CLAIMS {
            names.push(format!("c{number}"));
            site.claim(&names[number]).await;
        }
        let begun = site.until("storage is made", || async {
            (site.storage().len() > before + 4).then_some(()).ok_or_else(String::new)
        });
        expect_ok(site, "one", begun.await);
        signal(one, "-STOP");
        let done = site.storage().len();
        if done < names.len() {
            return (names, done);
        }
        signal(one, "-CONT");
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        expect_ok(site, "one", site.comes_to_rest(&all).await);
        site.led_by("one").await;
    }
    panic!("all volumes were made before the leader was stopped, ten times");
}

#[tokio::test]
async fn two_leaders_at_once_do_no_harm() {
    let world = World::start().await;
    let site = world.site("both".into(), "direct").await;
    expect_ok(&site, "one", site.is_ready().await);
    let one = site.replica("one");
    site.led_by("one").await;
    let _two = site.replica("two");
    site.config(&[("max-in-flight", "8")]).await;
    // During the burst, with writes in progress.
    let (names, done) = stopped_in_a_burst(&site, &one).await;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    site.led_by("two").await;
    // It resumes just after the other has become leader, and believes that it still leads.
    signal(&one, "-CONT");
    expect_ok(&site, "two", site.comes_to_rest(&names).await);
    let (made, all) = (site.storage().len(), names.len());
    println!("stopped after {done} of {all} volumes, resumed when the other led: {made} volumes");
    assert_eq!(made, all);

    // The same while all claims are deleted.
    for name in &names {
        site.delete_claim(name).await;
    }
    signal(&one, "-STOP");
    tokio::time::sleep(WHILE).await;
    signal(&one, "-CONT");
    expect_ok(&site, "two", site.comes_to_rest(&[]).await);
    tokio::time::sleep(WHILE).await;
    expect_ok(&site, "two", site.comes_to_rest(&[]).await);
}

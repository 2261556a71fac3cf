//! Control planes for several tests: reset in between, and lent to one test after another.
//!
//! Starting a control plane takes seconds of processor time, and resetting one takes a moment. All objects since its
//! start are deleted in etcd, past the API server and the finalizers, and all watches report their deletion.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::component::ClientLimits;
use crate::snapshotter::Snapshotter;

/// The control planes that no test has now.
static IDLE: Mutex<Vec<Cluster>> = Mutex::new(Vec::new());
/// The time limit for a reset, during which components may still write about deleted objects. On a busy machine both
/// take longer.
const DELETE_TIMEOUT: Duration = Duration::from_secs(300);
/// Components repeatedly write about themselves directly below these keys.
const ALWAYS: [&str; 2] = ["/registry/leases/kube-system/", "/registry/masterleases/"];

/// The contents of a control plane, as the keys in etcd.
#[derive(Clone, Debug)]
pub struct Contents(BTreeSet<String>);

/// The condition in which a control plane is lent.
#[derive(Clone, Debug)]
pub(crate) struct Lent {
    /// Its contents in the state of a new one.
    pristine: Contents,
    /// The name of what was installed in it.
    with: &'static str,
}

impl Cluster {
    /// Returns a control plane with a controller manager and without an audit log, for the caller alone and in the
    /// state of a new one. When the value is dropped, the next test of this process may get it, unless the test panics
    /// or the plane was [marked](Cluster::end_with_test).
    pub async fn lent() -> Result<Cluster> {
        Cluster::lent_with("", |_| Ok(())).await
    }

    /// Does the same with the custom resources of snapshots, which cannot be removed again.
    pub async fn lent_with_snapshots() -> Result<Cluster> {
        Cluster::lent_with("snapshots", |cluster| Snapshotter::ensure()?.install(cluster)).await
    }

    /// Does the same with an installation that stays when a test's objects are deleted. A test that gives the same name
    /// gets that installation.
    pub async fn lent_with(with: &'static str, install: impl FnOnce(&Cluster) -> Result<()>) -> Result<Cluster> {
        while let Some((cluster, lent)) = next(with) {
            match cluster.reset(&lent.pristine).await {
                Ok(()) => return Ok(cluster),
                Err(error) => {
                    eprintln!("a control plane cannot be used again: {error:#}");
                    cluster.end_with_test();
                }
            }
        }
        end_idle_with_other_installation();
        let plane = Cluster::control_plane().unaudited().unweighed().with_few_controllers();
        let mut cluster = plane.with_controller_manager(ClientLimits::Raised).await?;
        install(&cluster)?;
        let pristine = cluster.contents().await?;
        cluster.lend(Lent { pristine, with });
        Ok(cluster)
    }

    /// Returns its present contents.
    pub async fn contents(&self) -> Result<Contents> {
        Ok(Contents(keys(&self.etcd()?).await?))
    }

    /// Deletes all objects made since, whatever their finalizers. No test may be writing.
    ///
    /// # Errors
    /// Deleted objects do not come back; and a component may be writing again and again.
    pub async fn reset(&self, contents: &Contents) -> Result<()> {
        let etcd = self.etcd()?;
        let began = Instant::now();
        let mut calm = false;
        // Nothing to delete twice in a row: controllers continue for a moment with what they have observed.
        loop {
            let now = keys(&etcd).await?;
            let missing = contents.0.difference(&now).find(|key| !is_written_always(key));
            ensure!(missing.is_none(), "{missing:?} is gone");
            let more: Vec<_> = now.difference(&contents.0).filter(|key| !is_written_always(key)).collect();
            if more.is_empty() && calm {
                break;
            }
            calm = more.is_empty();
            ensure!(began.elapsed() < DELETE_TIMEOUT, "{more:?} are written again and again");
            // Namespaces first, so that no object is made in them any more.
            let (namespaces, others): (Vec<&String>, Vec<_>) =
                more.into_iter().partition(|key| key.starts_with("/registry/namespaces/"));
            for key in namespaces.into_iter().chain(others) {
                let _: Value = ask(&etcd, "deleterange", json!({ "key": STANDARD.encode(key) })).await?;
            }
            sleep(Duration::from_millis(50)).await;
        }
        // Before the API server answers this request, it observes all changes in etcd.
        let namespaces: Api<Namespace> = Api::all(self.client().await?);
        namespaces.list(&ListParams::default()).await.context("list namespaces")?;
        Ok(())
    }

    fn etcd(&self) -> Result<Client> {
        Ok(Client::try_from(kube::Config::new(self.state()?.etcd_url().parse()?))?)
    }
}

/// Takes back a control plane that is not used any more.
pub(crate) fn give_back(cluster: Cluster) {
    if let Ok(mut idle) = IDLE.lock() {
        idle.push(cluster);
    }
}

/// Ends an idle plane with another installation. Tests with one installation run together, and an idle plane takes a
/// thirtieth of a processor.
fn end_idle_with_other_installation() {
    let Ok(mut idle) = IDLE.lock() else { return };
    let special = |cluster: &Cluster| cluster.as_lent().is_some_and(|lent| !lent.with.is_empty());
    let ended = idle.iter().position(special).map(|at| idle.swap_remove(at));
    drop(idle);
    if let Some(cluster) = ended {
        cluster.end_with_test();
    }
}

fn next(with: &str) -> Option<(Cluster, Lent)> {
    let mut idle = IDLE.lock().ok()?;
    let as_asked = |cluster: &Cluster| cluster.as_lent().is_some_and(|lent| lent.with == with);
    let at = idle.iter().position(as_asked)?;
    let cluster = idle.swap_remove(at);
    let lent = cluster.as_lent()?;
    Some((cluster, lent))
}

fn is_written_always(key: &str) -> bool {
    ALWAYS.iter().any(|prefix| key.starts_with(prefix))
}

async fn keys(etcd: &Client) -> Result<BTreeSet<String>> {
    let all =
        json!({ "key": STANDARD.encode("/registry/"), "range_end": STANDARD.encode("/registry0"), "keys_only": true });
    let answer = ask(etcd, "range", all).await?;
    let found = answer["kvs"].as_array().into_iter().flatten().filter_map(|pair| pair["key"].as_str());
    found.map(|key| Ok(String::from_utf8(STANDARD.decode(key)?)?)).collect()
}

async fn ask(etcd: &Client, what: &str, body: Value) -> Result<Value> {
    let request = http::Request::post(format!("/v3/kv/{what}")).body(body.to_string().into_bytes())?;
    etcd.request(request).await.with_context(|| format!("{what} in etcd"))
}

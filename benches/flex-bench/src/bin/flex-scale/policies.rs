//! The cost of the admission policies: bursts with their bindings and without, in turns on one control plane.
//!
//! Everybody has the rights that they have in a cluster: the orchestrator and the image those of `deploy/`, and the
//! claims are a tenant's. With the rights of an admin no policy would have anything to do.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cluster::Component;
use flex_bench::many;
use flex_bench::objects;
use flex_bench::paired::mean;
use flex_bench::profile::Watched;
use flex_contract::names;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::PostParams;
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;

use crate::node::Node;
use crate::plane::{ADMIN, How, OWN, Plane, USER};

const POLICIES: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kustomize/policies.yaml"));
const RIGHTS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kustomize/rbac.yaml"));
/// The account of the image's pods.
const IMAGE: &str = "default";
/// The user who creates the claims.
const TENANT: &str = "tenant";
/// Pairs of bursts. In every other pair the burst without policies comes first.
const PAIRS: usize = 3;
/// A burst before all others, which fills caches.
const WARM_UP: usize = 50;
/// The time for work after the last run has ended: events, and the last writes of volumes.
const REST: Duration = Duration::from_secs(2);
/// The time limit until the API server knows of bindings.
const KNOWN: Duration = Duration::from_secs(60);
/// The duration of a profile of the API server, in seconds.
const PROFILED: u32 = 20;

/// The cost of bursts, with or without the bindings of the policies.
#[derive(Debug, Default, Serialize)]
pub struct Cost {
    /// Processor time of the API server for each claim until no run was left, in milliseconds; for each burst.
    pub claim_ms: Vec<f64>,
    /// The same for the deletion of each claim with its volume.
    pub deletion_ms: Vec<f64>,
}

/// The comparison.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The size of each burst.
    pub claims: usize,
    /// With the bindings.
    pub bound: Cost,
    /// Without them.
    pub unbound: Cost,
}

impl Comparison {
    /// Returns a table of the means, with the difference in percent.
    pub fn table(&self) -> String {
        let mut text = format!(
            "CPU of the API server in bursts of {} claims in batches, {PAIRS} of each kind in turns:\n\n\
             | for each claim | with policies | without | difference | each burst |\n|---|---|---|---|---|\n",
            self.claims
        );
        let rows = [
            ("until it is bound and its run is gone", &self.bound.claim_ms, &self.unbound.claim_ms),
            ("its deletion", &self.bound.deletion_ms, &self.unbound.deletion_ms),
        ];
        for (what, bound, unbound) in rows {
            let (with, without) = (mean(bound), mean(unbound));
            let percent = 100.0 * (with - without) / without;
            let list = |times: &[f64]| times.iter().map(|time| format!("{time:.1}")).collect::<Vec<_>>().join(", ");
            let _ = writeln!(
                text,
                "| {what} | {:.4} s | {:.4} s | {percent:+.1} % | {} by {} ms |",
                with / 1000.0,
                without / 1000.0,
                list(bound),
                list(unbound)
            );
        }
        text
    }
}

/// Measures bursts of so many claims. With a directory it writes a profile of the API server in each burst there.
pub async fn measure(program: &Path, claims: usize, profiles: Option<&Path>) -> Result<Comparison> {
    let plane = Plane::start(false, true).await?;
    let bench = Bench::prepare(&plane).await?;
    let image = format!("system:serviceaccount:{ADMIN}:{IMAGE}");
    let image = plane.cluster.client_as(&image, &["system:authenticated"]).await?;
    let _node = Node::join_with(&plane.cluster, ADMIN, image).await?;
    let account = format!("system:serviceaccount:{OWN}:flex-provisioner");
    let orchestrator = plane.orchestrator_as(program, &account).await?;
    let watched = plane.watched(&orchestrator)?;
    bench.burst(&watched, WARM_UP, None).await?;
    let (mut bound, mut unbound) = (Cost::default(), Cost::default());
    for pair in 0..PAIRS {
        for with in [pair % 2 == 0, pair % 2 != 0] {
            bench.bind(with).await?;
            eprintln!("a burst of {claims} {} the policies", if with { "with" } else { "without" });
            let name = format!("apiserver-{}-{pair}.pprof", if with { "with" } else { "without" });
            let profile = profiles.map(|directory| directory.join(name));
            let (claim, deletion) = bench.burst(&watched, claims, profile).await?;
            eprintln!("  {claim:.1} ms for each claim, {deletion:.1} ms for its deletion");
            let cost = if with { &mut bound } else { &mut unbound };
            cost.claim_ms.push(claim);
            cost.deletion_ms.push(deletion);
        }
    }
    orchestrator.stop().await?;
    Ok(Comparison { claims, bound, unbound })
}

struct Bench<'a> {
    plane: &'a Plane,
    tenant: Client,
    bindings: PathBuf,
}

impl<'a> Bench<'a> {
    /// Installs rights and policies, and no bindings.
    async fn prepare(plane: &'a Plane) -> Result<Self> {
        let rights = plane.file("rbac.yaml", RIGHTS)?;
        for namespace in [OWN, ADMIN] {
            plane.kubectl(&["-n", namespace, "apply", "-f"], &rights)?;
        }
        let role = |name: &str, group: &str, resource: &str, verb: &str| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name },
                "rules": [{ "apiGroups": [group], "resources": [resource], "verbs": [verb] }],
            })
        };
        // A batch's pod does not say for which claims it runs, so that its account needs a right on the class.
        objects::apply(&plane.client, &role("bench-classes", "flex-provisioner.io", "classes", "provision")).await?;
        objects::apply(&plane.client, &role("bench-claims", "", "persistentvolumeclaims", "*")).await?;
        let image = json!({ "kind": "ServiceAccount", "name": IMAGE, "namespace": ADMIN });
        let tenant = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": TENANT });
        for (role, subject) in
            [("flex-provisioner-image", &image), ("bench-classes", &image), ("bench-claims", &tenant)]
        {
            let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role });
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": { "name": format!("bench-{role}") }, "roleRef": reference, "subjects": [subject],
            });
            objects::apply(&plane.client, &binding).await?;
        }
        let documents = POLICIES.split("\n---\n").filter(|document| document.contains("\nkind: "));
        let (bindings, policies): (Vec<_>, Vec<_>) =
            documents.partition(|document| document.contains("PolicyBinding\n"));
        ensure!(bindings.len() == policies.len(), "each policy has its binding");
        plane.kubectl(&["apply", "-f"], &plane.file("policies.yaml", &policies.join("\n---\n"))?)?;
        let bindings = plane.file("bindings.yaml", &bindings.join("\n---\n"))?;
        let tenant = plane.cluster.client_as(TENANT, &["system:authenticated"]).await?;
        Ok(Bench { plane, tenant, bindings })
    }

    /// Binds the policies or unbinds them, and waits until the API server knows.
    async fn bind(&self, with: bool) -> Result<()> {
        let command: &[&str] = if with { &["apply", "-f"] } else { &["delete", "--ignore-not-found", "-f"] };
        self.plane.kubectl(command, &self.bindings)?;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.tenant.clone(), USER);
        let mut probe = many::claims(USER, "nobody", 1).remove(0);
        probe["metadata"]["annotations"] = json!({ names::ATTEMPT: "7" });
        let probe: PersistentVolumeClaim = serde_json::from_value(probe)?;
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let began = Instant::now();
        loop {
            let annotations = claims.create(&dry, &probe).await?.metadata.annotations.unwrap_or_default();
            let acts = annotations.contains_key(names::CREATED_BY) && !annotations.contains_key(names::ATTEMPT);
            let rests = !annotations.contains_key(names::CREATED_BY) && annotations.contains_key(names::ATTEMPT);
            if if with { acts } else { rests } {
                // The API server learns of the validating policies at the same time, by watches of their own.
                tokio::time::sleep(REST).await;
                return Ok(());
            }
            ensure!(began.elapsed() < KNOWN, "the API server does not know of the bindings");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns the API server's time for each of so many claims, and for the deletion of each, in milliseconds.
    async fn burst(&self, watched: &Watched, size: usize, profile: Option<PathBuf>) -> Result<(f64, f64)> {
        let api_server = Component::ApiServer.name();
        let each = |profile: &flex_bench::profile::Profile| -> Result<f64> {
            let used = profile.of(api_server).context("the API server is watched")?;
            Ok(used * 1000.0 / size as f64)
        };
        let before = watched.sample()?;
        let profiled = async {
            match &profile {
                Some(path) => write_profile(&self.plane.client, path).await,
                None => Ok(()),
            }
        };
        tokio::try_join!(self.plane.burst_as(&self.tenant, How::Batches, size), profiled)?;
        self.plane.no_runs(size).await?;
        tokio::time::sleep(REST).await;
        let claim = each(&watched.since(&before)?)?;
        let before = watched.sample()?;
        self.plane.clear(size).await?;
        self.plane.no_runs(size).await?;
        tokio::time::sleep(REST).await;
        Ok((claim, each(&watched.since(&before)?)?))
    }
}

/// Writes a profile of the API server, for `go tool pprof`.
async fn write_profile(client: &Client, path: &Path) -> Result<()> {
    let request = http::Request::get(format!("/debug/pprof/profile?seconds={PROFILED}")).body(Vec::new())?;
    let response = client.send(request.map(Into::into)).await?;
    ensure!(response.status().is_success(), "the API server gives no profile: {}", response.status());
    let profile = response.into_body().collect().await?.to_bytes();
    fs::write(path, profile).with_context(|| format!("write {}", path.display()))
}

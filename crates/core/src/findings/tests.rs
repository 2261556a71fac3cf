mod backend;
mod claims;
mod nodes;
mod properties;
mod restored;
mod snapshots;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use flex_contract::names;
use serde_json::{Value, json};

use super::*;
use crate::config::Recipe;
use crate::config::classes::{ClassObject, Config, Identity, Revision, classes};
use crate::config::effective_config::EffectiveConfig;
use crate::config::external_provisioner::ExternalProvisioners;
use crate::model::claim::Claim;
use crate::model::volume::{Provenance, Volume, adoption_mark};
use crate::object::ObjectName;
use crate::run::node::Node;
use crate::run::view::{Job, Pod};

const NOW: i64 = 2_000_000;
const UID: &str = "c0ffee00-0000-4000-8000-000000000001";
const OTHER: &str = "c0ffee00-0000-4000-8000-000000000002";

fn at(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap().to_string()
}

fn effective_config(data: &[(&str, &str)]) -> EffectiveConfig {
    let data = [("image", "x"), ("capabilities", "list")].iter().chain(data);
    EffectiveConfig {
        config: ObjectName::new("admin", "c"),
        class: "c".into(),
        data: data.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..EffectiveConfig::default()
    }
}

fn recipe() -> Recipe {
    effective_config(&[]).recipe().unwrap()
}

/// Claims and volumes in lists.
#[derive(Clone, Debug, Default)]
struct Objects {
    claims: Vec<Arc<Claim>>,
    volumes: Vec<Arc<Volume>>,
}

impl ClaimsAndVolumes for Objects {
    fn claims(&self) -> Box<dyn Iterator<Item = Arc<Claim>> + '_> {
        Box::new(self.claims.iter().cloned())
    }

    fn volumes(&self) -> Box<dyn Iterator<Item = Arc<Volume>> + '_> {
        Box::new(self.volumes.iter().cloned())
    }

    fn claim(&self, name: &ObjectName) -> Option<Arc<Claim>> {
        self.claims.iter().find(|claim| claim.name == *name).cloned()
    }

    fn claim_by_id(&self, id: &str) -> Option<Arc<Claim>> {
        self.claims.iter().find(|claim| claim.uid == id).cloned()
    }

    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.volumes.iter().find(|volume| volume.name == name).cloned()
    }
}

/// A cluster with a class, in which all objects are old.
#[derive(Clone, Debug)]
struct Cluster(ClusterObservation, Objects);

impl Cluster {
    fn new() -> Self {
        Cluster::with(&[])
    }

    fn with(data: &[(&str, &str)]) -> Self {
        let identity = Identity::of_tests();
        let mut data = effective_config(data).data;
        data.insert("plugin-name".into(), names::DEFAULT_PLUGIN.into());
        let config = Config { name: ObjectName::new("admin", "c"), class: Some("c".into()), data, ..Config::default() };
        let foreign = ClassObject {
            name: "foreign".into(),
            provisioner: "somebody.else".into(),
            parameters: BTreeMap::new(),
            reclaim_policy: "Delete".into(),
            mount_options: vec![],
            uid: String::new(),
            allow_expansion: false,
            allowed: Default::default(),
            binding: crate::config::classes::BindingMode::Immediate,
        };
        let revisions: BTreeMap<String, Revision> = BTreeMap::new();
        let table = classes(&identity, [&config], [&foreign], &revisions, &ExternalProvisioners::none());
        assert!(matches!(table.lookup("c"), crate::config::classes::ClassLookup::Ours(class) if class.recipe.is_ok()));
        Cluster(
            ClusterObservation {
                identity,
                classes: Arc::new(table),
                jobs: vec![],
                copied_jobs: vec![],
                pods: vec![],
                snapshots: vec![],
                contents: vec![],
                nodes: vec![],
                namespaces: Default::default(),
                recipes: [recipe().effective_config.hash()].into(),
                unused: vec![],
                kept: vec![],
                deep: true,
            },
            Objects::default(),
        )
    }

    fn claim(mut self, more: Value) -> Self {
        let mut claim = json!({
            "metadata": { "name": "data", "namespace": "team", "uid": UID, "creationTimestamp": at(NOW - 5000) },
            "spec": { "storageClassName": "c", "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        });
        merge(&mut claim, more);
        let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
        self.1.claims.push(Arc::new(Claim::from(&claim)));
        self
    }

    /// Binds the claim to the volume of its id.
    fn bound(self) -> Self {
        self.claim(json!({
            "metadata": { "annotations": { names::BIND_COMPLETED: "yes" } },
            "spec": { "volumeName": names::pv_name(UID) }, "status": { "phase": "Bound" },
        }))
    }

    fn volume(mut self, change: impl FnOnce(&mut Volume)) -> Self {
        let provenance = json!(Provenance {
            effective_config: recipe().effective_config,
            origin_node: None,
            moved_in: None,
            cluster: None,
            others: Vec::new()
        })
        .to_string();
        let uid = format!("v{}", self.1.volumes.len());
        let volume = json!({
            "metadata": {
                "name": names::pv_name(UID), "uid": uid, "creationTimestamp": at(NOW - 5000),
                "labels": { names::LABEL_INSTANCE: "default" },
                "finalizers": [names::VOLUME_FINALIZER],
                "annotations": {
                    names::CLAIM_UID: UID, names::VOLUME_ID: UID, names::PROVENANCE: provenance,
                    names::PROVISIONED_BY: names::DEFAULT_PROVISIONER,
                },
            },
            "spec": {
                "storageClassName": "c", "persistentVolumeReclaimPolicy": "Delete", "capacity": { "storage": "1Gi" },
                "claimRef": { "namespace": "team", "name": "data", "uid": UID },
            },
            "status": { "phase": "Bound", "reason": adoption_mark(&provenance, &uid) },
        });
        let volume: k8s_openapi::api::core::v1::PersistentVolume = serde_json::from_value(volume).unwrap();
        let mut volume = Volume::from(&volume);
        change(&mut volume);
        self.1.volumes.push(Arc::new(volume));
        self
    }

    fn job(mut self, operation: &str, change: impl FnOnce(&mut Job)) -> Self {
        let run_labels =
            crate::run::view::RunLabels { operation: operation.into(), id: UID.into(), attempt: 1, class: "c".into() };
        let mut job = Job {
            name: ObjectName::new("admin", format!("{operation}-{UID}-1")),
            uid: "j".into(),
            run_labels,
            created: NOW - 5000,
            ..Job::default()
        };
        change(&mut job);
        self.0.jobs.push(Arc::new(job));
        self
    }

    fn pod(mut self, change: impl FnOnce(&mut Pod)) -> Self {
        let run_labels = crate::run::view::RunLabels {
            operation: "provision".into(),
            id: UID.into(),
            attempt: 1,
            class: "c".into(),
        };
        let job = format!("provision-{UID}-1");
        let mut pod = Pod {
            name: ObjectName::new("admin", format!("{job}-x")),
            uid: "p".into(),
            run_labels,
            job,
            phase: "Succeeded".into(),
            created: NOW - 5000,
            ..Pod::default()
        };
        change(&mut pod);
        self.0.pods.push(Arc::new(pod));
        self
    }

    fn node(mut self, name: &str) -> Self {
        let labels = [(names::HOSTNAME.to_owned(), name.to_owned())].into();
        self.0.nodes.push(Arc::new(Node { name: name.into(), labels, reachable: true, taints: vec![] }));
        self
    }

    fn searched(&self) -> Searched<'_> {
        Searched { objects: &self.1, others: &self.0 }
    }

    fn found(&self) -> Vec<Finding> {
        find(self.searched(), NOW)
    }

    /// Checks that there is exactly this finding, with this text, and with or without a safe fix.
    #[track_caller]
    fn finds(&self, kind: FindingKind, says: &str, removable: bool) {
        let found = self.found();
        let [finding] = found.as_slice() else { panic!("{found:#?}") };
        assert_eq!((finding.kind, finding.removal.is_some()), (kind, removable), "{finding:#?}");
        assert!(finding.detail.contains(says) && !finding.remedy.is_empty(), "{finding:#?}");
    }

    #[track_caller]
    fn clean(&self) {
        assert_eq!(self.found(), []);
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value))
        }
        (into, from) => *into = from,
    }
}

fn stamped(config: &str) -> Value {
    let annotations = json!({
        names::CLAIM_UID: UID, names::ATTEMPT: "1", names::PROVISION_TS: at(NOW - 400), names::RECIPE_VERSION: config,
        names::HELD: UID,
    });
    json!({ "metadata": { "annotations": annotations } })
}

fn failure(operation: &str) -> String {
    json!({ "operation": operation, "attempt": 3, "at": NOW - 1, "kind": "retry", "reason": "ExitCode", "message": "the array is on fire" }).to_string()
}

fn gone(volume: &mut Volume) {
    volume.phase = "Released".into();
}

#[test]
fn a_healthy_cluster_has_no_findings() {
    Cluster::new().clean();
    Cluster::new().bound().volume(|_| ()).job("provision", |job| job.created = NOW - 300).clean();
    Cluster::new()
        .claim(stamped(&recipe().version()))
        .job("provision", |_| ())
        .pod(|pod| pod.phase = "Running".into())
        .clean();
    // The released volume is terminating.
    Cluster::new()
        .volume(gone)
        .job("delete", |job| {
            (job.volume, job.created) = (Some(names::pv_name(UID)), NOW - 300);
        })
        .clean();
    // Another orchestrator is deleting the volume.
    Cluster::new().volume(|v| v.instance = Some("other".into())).clean();
    Cluster::new().claim(stamped("elsewhere/c@1")).clean();
}

#[test]
fn young_objects_are_in_progress() {
    Cluster::new().job("provision", |job| job.created = NOW - 10).clean();
    Cluster::new().pod(|pod| pod.created = NOW - 10).clean();
    Cluster::new().volume(|v| (v.created, v.adoption_mark) = (NOW - 10, None)).clean();
    Cluster::new()
        .claim(json!({ "metadata": { "creationTimestamp": at(NOW - 10) }, "spec": { "accessModes": [] } }))
        .clean();
}

#[test]
fn jobs_that_kubernetes_has_forgotten_are_stuck() {
    // The Job was created 27 minutes ago with a deadline of 20 s, and the Job controller made no pod.
    let forgotten = |job: &mut Job| (job.created, job.deadline) = (NOW - 1620, Some(20));
    let bound = || Cluster::new().bound().volume(|_| ());
    bound()
        .job("delete", |job| {
            forgotten(job);
            job.volume = Some(names::pv_name(UID));
        })
        .finds(FindingKind::JobStalled, "1620 s after its creation it has no pod", true);
    Cluster::new().claim(stamped(&recipe().version())).job("provision", forgotten).finds(
        FindingKind::JobStalled,
        "no pod",
        true,
    );
    let stays = |change: fn(&mut Job)| {
        let job = |job: &mut Job| {
            forgotten(job);
            change(job);
        };
        Cluster::new().claim(stamped(&recipe().version())).job("provision", job).clean();
    };
    stays(|job| job.created = NOW - 139);
    stays(|job| job.deadline = Some(1500));
    stays(|job| job.deadline = None);
    stays(|job| job.suspended = Some(Default::default()));
    stays(|job| job.resumed = NOW - 100);
    stays(|job| job.terminating = true);
    stays(|job| job.complete = true);
    // If there is a pod, the pod's end is awaited.
    Cluster::new().claim(stamped(&recipe().version())).job("provision", forgotten).pod(|_| ()).clean();
}

/// A backup of another cluster has its Jobs. Kubernetes runs them here, too.
#[test]
fn a_copy_of_another_cluster_s_job_is_removed() {
    let mut cluster = Cluster::new().bound().volume(|_| ()).job("provision", |job| job.cluster = Some("there".into()));
    let copy = cluster.0.jobs.pop().unwrap();
    cluster.0.copied_jobs.push(copy.clone());
    cluster = cluster.pod(|pod| pod.job = copy.name.name.clone());
    let found = only(&cluster, FindingKind::JobCopied);
    assert_eq!(found.removal, Some(Removal::CopiedJob));
    assert!(found.detail.contains("the cluster there created it"), "{found:#?}");
    assert!(cluster.found().iter().all(|found| found.kind != FindingKind::PodWithoutJob), "{:#?}", cluster.found());
    cluster.0.copied_jobs = vec![Arc::new(Job { terminating: true, ..Job::clone(&copy) })];
    cluster.clean();
}

#[test]
fn jobs_without_a_purpose_are_orphans() {
    Cluster::new().job("provision", |_| ()).finds(FindingKind::JobWithoutOwner, UID, true);
    Cluster::new().bound().volume(|_| ()).job("delete", |job| job.volume = Some("pvc-gone".into())).finds(
        FindingKind::JobWithoutOwner,
        "pvc-gone",
        true,
    );
    let over = |job: &mut Job| (job.is_over, job.complete) = (true, true);
    Cluster::new().bound().volume(|_| ()).job("provision", over).finds(FindingKind::JobFinished, "after an hour", true);
    let recent = |job: &mut Job| {
        over(job);
        job.created = NOW - STUCK_AFTER - 1;
    };
    Cluster::new().bound().volume(|_| ()).job("provision", recent).finds(FindingKind::JobFinished, "is bound", true);
    // A failed run of a pending claim is kept, so that people can read its log.
    Cluster::new().claim(stamped(&recipe().version())).job("provision", recent).clean();
    // The run began long ago and has just ended.
    let ended = crate::run::view::ContainerEnd {
        container: "provisioner".into(),
        code: 0,
        reason: String::new(),
        message: String::new(),
        at: NOW - 5,
    };
    Cluster::new().bound().volume(|_| ()).job("provision", over).pod(|pod| pod.terminated = Some(ended)).clean();
    Cluster::new().job("provision", |job| job.terminating = true).clean();
    let unadopted = |v: &mut Volume| {
        gone(v);
        (v.adoption_mark, v.provenance) = (None, None);
    };
    let left = Cluster::new().volume(unadopted).job("provision", |job| job.recipe_version = recipe().version());
    assert_eq!(only(&left, FindingKind::VolumeNotAdopted).removal, None);
    let found = only(&left, FindingKind::JobWithoutOwner);
    assert!(found.removal.is_none() && found.detail.contains(UID), "the orchestrator deletes it: {found:#?}");
    // The label alone does not make a Job the orchestrator's.
    Cluster::new().job("", |_| ()).clean();
    Cluster::new().job("provision", |job| job.run_labels.id.clear()).clean();
    Cluster::new().job("list", |job| job.run_labels.id.clear()).clean();
}

#[test]
fn pods_without_their_job_are_orphans() {
    Cluster::new().pod(|_| ()).finds(FindingKind::PodWithoutJob, "a claim that is gone", true);
    Cluster::new().pod(|pod| pod.phase = "Running".into()).finds(
        FindingKind::PodWithoutJob,
        "may still be at work",
        false,
    );
    Cluster::new().bound().volume(|_| ()).pod(|_| ()).finds(FindingKind::PodWithoutJob, "claim team/data", false);
    Cluster::new().bound().volume(|_| ()).job("provision", |job| job.created = NOW - 300).pod(|_| ()).clean();
    Cluster::new().pod(|pod| pod.terminating = true).clean();
}

#[test]
fn revisions_without_a_reference_are_orphans() {
    let mut cluster = Cluster::new();
    cluster.0.unused = vec!["0123".into()];
    cluster.finds(FindingKind::RevisionUnused, "no class", true);
}

#[test]
fn an_object_found_once_is_no_finding_yet() {
    let secs = Duration::from_secs;
    let findings = || Cluster::new().job("provision", |_| ()).found();
    let mut sightings = FindingTracker::default();
    let mut track = |findings, at| {
        let observed = sightings.track(findings, secs(at), secs(60));
        observed.first().map(|sighting| (sighting.confirmed, sighting.new))
    };
    assert_eq!(track(findings(), 0), Some((false, false)));
    assert_eq!(track(findings(), 29), Some((false, false)));
    assert_eq!(track(findings(), 31), Some((true, true)));
    assert_eq!(track(findings(), 600), Some((true, false)));
    assert_eq!(track(vec![], 700), None);
    assert_eq!(track(findings(), 800), Some((false, false)), "the finding disappeared and came back");
    let mut hasty = FindingTracker::default();
    assert!(!hasty.track(findings(), secs(0), secs(0))[0].confirmed, "never at the first check");
    assert!(hasty.track(findings(), secs(0), secs(0))[0].confirmed);
}

/// Returns the only finding of that kind.
#[track_caller]
fn only(cluster: &Cluster, kind: FindingKind) -> Finding {
    let found: Vec<_> = cluster.found().into_iter().filter(|finding| finding.kind == kind).collect();
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    finding.clone()
}

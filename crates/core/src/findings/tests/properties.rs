//! Properties that hold for all findings.

use proptest::prelude::*;

use super::*;

/// Generates any cluster.
fn any() -> impl Strategy<Value = Cluster> {
    let claim = prop_oneof![
        Just(None),
        Just(Some(json!({}))),
        Just(Some(stamped(&recipe().version()))),
        Just(Some(
            json!({ "metadata": { "annotations": { names::BIND_COMPLETED: "yes" } }, "spec": { "volumeName": names::pv_name(UID) }, "status": { "phase": "Bound" } })
        )),
    ];
    let volume = (0u8..2, any::<[bool; 6]>());
    let job = (0u8..2, prop_oneof![Just("provision"), Just("delete")], any::<[bool; 4]>(), 0i64..10_000);
    let pod = (0u8..2, any::<[bool; 3]>(), 0i64..10_000);
    fn any<T: Arbitrary>() -> impl Strategy<Value = T> {
        proptest::prelude::any::<T>()
    }
    (claim, volume, job, pod).prop_map(|(claim, (volumes, v), (jobs, operation, j, job_age), (pods, p, pod_age))| {
        let mut cluster = Cluster::new();
        if let Some(claim) = claim {
            cluster = cluster.claim(claim);
        }
        for _ in 0..volumes {
            cluster = cluster.volume(|volume| {
                if v[0] {
                    gone(volume);
                }
                if v[1] {
                    (volume.adoption_mark, volume.source_kind) = (None, Some("nfs"));
                }
                if v[2] {
                    volume.reclaim_policy = "Retain".into();
                }
                if v[3] {
                    volume.instance = Some("other".into());
                }
                volume.terminating = v[4];
                volume.created = if v[5] { NOW } else { volume.created };
            });
        }
        for _ in 0..jobs {
            cluster = cluster.job(operation, |job| {
                (job.is_over, job.terminating, job.created) = (j[0], j[1], NOW - job_age);
                job.volume = j[2].then(|| names::pv_name(UID));
                job.deadline = j[3].then_some(600);
            });
        }
        for _ in 0..pods {
            cluster = cluster.pod(|pod| {
                pod.phase = if p[0] { "Succeeded" } else { "Running" }.into();
                (pod.terminating, pod.created) = (p[1], NOW - pod_age);
                if p[2] {
                    pod.job.clear();
                }
            });
        }
        cluster
    })
}

proptest! {
    /// Only objects of the orchestrator that are old, ended or orphaned are deleted. Volumes and claims never are.
    #[test]
    fn only_unneeded_objects_are_removed(cluster in any()) {
        for finding in cluster.found() {
            prop_assert!(!finding.remedy.is_empty() && !finding.detail.is_empty());
            let Some(removal) = &finding.removal else { continue };
            let claim = cluster.1.claims.first();
            match removal {
                Removal::Job { claim: id, volume } => {
                    let job = &cluster.0.jobs[0];
                    prop_assert_eq!(&job.run_labels.id, id);
                    let owned = match volume {
                        Some(_) => !cluster.1.volumes.is_empty(),
                        None => claim.is_some_and(|claim| !claim.is_bound() || claim.is_held()),
                    };
                    prop_assert!(!job.terminating && !owned && NOW - job.created >= MIN_AGE);
                }
                Removal::StalledJob => {
                    let (job, pods) = (&cluster.0.jobs[0], &cluster.0.pods);
                    prop_assert!(job.deadline.is_some_and(|deadline| NOW - job.created > deadline) && !job.is_over);
                    prop_assert!(pods.iter().all(|pod| pod.job != job.name.name), "the Job has a pod");
                }
                Removal::CopiedJob => prop_assert!(false, "the cluster has no copies"),
                Removal::OldJob => prop_assert!(cluster.0.jobs[0].is_over && NOW - cluster.0.jobs[0].created > 3600),
                Removal::Pod { .. } => prop_assert!(cluster.0.pods[0].is_over() && claim.is_none()),
                Removal::Vouch => {
                    let volume = &cluster.1.volumes[0];
                    let is_gone = claim.is_none() || volume.phase.is_claim_gone();
                    prop_assert!(volume.is_restored());
                    prop_assert!(!is_gone || volume.reclaim_policy == "Retain".into(), "nothing is deleted at once");
                }
                Removal::Revision { .. } => prop_assert!(false, "the cluster has no revision"),
            }
        }
    }

    /// The findings do not depend on the order of the objects.
    #[test]
    fn the_order_of_objects_does_not_matter(cluster in any()) {
        let mut turned = cluster.clone();
        turned.1.claims.reverse();
        turned.1.volumes.reverse();
        turned.0.jobs.reverse();
        turned.0.pods.reverse();
        prop_assert_eq!(turned.found(), cluster.found());
    }
}

/// The generated clusters lead to each removal that they can have. Otherwise the property above would prove nothing.
#[test]
fn the_clusters_have_each_removal() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut removals = std::collections::BTreeMap::<&str, usize>::new();
    for _ in 0..5000 {
        let cluster = any().new_tree(&mut runner).unwrap().current();
        for removal in cluster.found().into_iter().filter_map(|finding| finding.removal) {
            let name = match removal {
                Removal::Job { volume: None, .. } => "job of a claim",
                Removal::Job { volume: Some(_), .. } => "job of a volume",
                Removal::StalledJob => "stalled job",
                Removal::CopiedJob => "copied job",
                Removal::OldJob => "old job",
                Removal::Pod { .. } => "pod",
                Removal::Vouch => "vouch",
                Removal::Revision { .. } => "revision",
            };
            *removals.entry(name).or_default() += 1;
        }
    }
    let wanted = ["job of a claim", "job of a volume", "old job", "pod", "stalled job", "vouch"];
    assert_eq!(removals.keys().copied().collect::<Vec<_>>(), wanted, "{removals:?}");
}

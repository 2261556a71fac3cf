use flex_contract::exit::Reaction;
use k8s_openapi::api::core::v1 as core;

use super::*;
use crate::run::job::tests::{recipe, request, run_target};
use crate::run::state::{RunState, state};

const BATCH: &str = "provision-batch-0123456789abcdef";

fn id(number: usize) -> String {
    format!("c0ffee00-0000-4000-8000-{number:012}")
}

fn asking(recipe: &Recipe, count: usize) -> Vec<MemberRun> {
    let one = |number: usize| {
        let (id, name) = (id(number), format!("data-{number}"));
        let claim = ObjectName::new("team", &name);
        let request = RunRequest {
            attempt: 1,
            volume_id: id.clone(),
            pv_name: names::pv_name(&id),
            claim: flex_contract::request::ClaimRef { namespace: "team".into(), name, uid: id.clone() },
            ..request(recipe)
        };
        MemberRun {
            member: Member {
                id,
                attempt: 1,
                object: MemberObject::Claim(claim),
                scope: String::new(),
                attributes: None,
                is_first: false,
            },
            request,
        }
    };
    (0..count).map(one).collect()
}

fn pod_of(job: &api::Job) -> core::PodTemplateSpec {
    job.spec.as_ref().unwrap().template.clone()
}

/// Returns the Job and the pod of a batch of three, as the cache keeps them.
fn batch() -> (Job, Pod) {
    let recipe = recipe(&[("image", "x")]);
    let BatchJob { mut job, .. } = job(&recipe, BATCH, &asking(&recipe, 3), &run_target(None));
    job.metadata.uid = Some("job".into());
    let mut metadata = pod_of(&job).metadata.unwrap();
    metadata.name = Some(format!("{BATCH}-abcde"));
    metadata.labels.get_or_insert_default().insert("batch.kubernetes.io/job-name".into(), BATCH.into());
    let pod = Pod::from(&core::Pod { metadata, ..core::Pod::default() });
    (Job::from(&job), Pod { job_uid: "job".into(), phase: "Running".into(), ..pod })
}

fn ended(pod: &Pod, code: i32, message: &str) -> Pod {
    let end =
        ContainerEnd { container: CONTAINER.into(), code, reason: "Error".into(), message: message.into(), at: 9 };
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    Pod { terminated: Some(end), phase: phase.into(), ..pod.clone() }
}

/// Returns the state of a member's run.
fn run(job: &Job, pod: &Pod, number: usize) -> RunState {
    let (job, pod) = (job.as_seen_by(number, &[pod], false).unwrap(), pod.as_seen_by(number).unwrap());
    state(Some(&job), &[&pod], &[])
}

fn failure(state: RunState) -> (Reaction, String) {
    match state {
        RunState::Failed { cause, reaction, .. } => (reaction, cause.message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_image_gets_a_list_and_the_common_properties() {
    let recipe = recipe(&[("image", "x"), ("cost", "5$")]);
    let BatchJob { job, members: count } = job(&recipe, BATCH, &asking(&recipe, 3), &run_target(Some("a")));
    assert_eq!((count, job.metadata.name.as_deref()), (3, Some(BATCH)));
    let pod = pod_of(&job);
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let env: BTreeMap<_, _> =
        container.env.iter().flatten().filter_map(|v| Some((v.name.as_str(), v.value.as_deref()?))).collect();
    assert_eq!((env["OPERATION"], env["BATCH"], env["COST"]), ("batch", "/etc/flex/batch", "5$$"));
    assert!(!env.contains_key("CLAIM_UUID") && !env.contains_key("PVC_NAME"));
    let volumes = pod.spec.as_ref().unwrap().volumes.clone().unwrap();
    let sources = volumes[0].projected.as_ref().unwrap().sources.clone().unwrap();
    let files = sources[0].downward_api.as_ref().unwrap().items.clone().unwrap();
    let file = files.iter().find(|file| file.path == "batch").unwrap();
    let path = file.field_ref.as_ref().unwrap().field_path.clone();
    let annotations = pod.metadata.as_ref().unwrap().annotations.clone().unwrap();
    let list = &annotations[path.strip_prefix("metadata.annotations['").unwrap().strip_suffix("']").unwrap()];
    let ids: Vec<_> =
        flex_contract::batch::read(list).unwrap().iter().map(|member| member["CLAIM_UUID"].clone()).collect();
    assert_eq!(ids, [id(0), id(1), id(2)]);
    let labels = job.metadata.labels.as_ref().unwrap();
    assert_eq!((&*labels[names::LABEL_OPERATION], &*labels[names::LABEL_VOLUME_ID]), ("provision", BATCH));
}

#[test]
fn the_name_of_a_batch_is_a_valid_label_and_no_name_of_a_run() {
    for of in [Operation::Provision, Operation::Delete] {
        let name = name(of, &id(1), "2026-01-01T00:00:00.000001Z");
        assert!(operation(&name) == Some(of) && name.len() <= 57, "{name}");
        assert_ne!(name, super::name(of, &id(1), "2026-01-01T00:00:00.000002Z"));
        assert_eq!(operation(&job::name(of, &id(1), 1, "")), None);
    }
    let others = ["", "provision-batch-", "provision-batch-0123456789abcdeg", "x/provision-batch-0123456789abcdef"];
    for other in others.into_iter().chain(["expand-batch-0123456789abcdef", "delete-batch-0123456789ABCDEF"]) {
        assert_eq!(operation(other), None, "{other}");
    }
}

#[test]
fn each_deleted_volume_of_a_batch_has_a_view_of_its_own_run() {
    let recipe = recipe(&[("image", "x")]);
    let mut members = asking(&recipe, 2);
    for MemberRun { member, request } in &mut members {
        request.operation = Operation::Delete;
        member.object = MemberObject::Volume(request.pv_name.clone());
        member.scope = format!("uid-{}", member.id);
    }
    let batch = "delete-batch-0123456789abcdef";
    let BatchJob { job, members: count } = job(&recipe, batch, &members, &run_target(None));
    assert_eq!((count, job.metadata.name.as_deref()), (2, Some(batch)));
    let pod_annotations = pod_of(&job).metadata.unwrap().annotations.unwrap();
    assert!(
        pod_annotations[names::BATCH].contains(&format!(r#""volume":"pvc-{}""#, id(0))),
        "{}",
        pod_annotations[names::BATCH]
    );
    let kept = Job::from(&job);
    assert_eq!(kept.run_labels.operation.as_str(), "delete");
    let shown = kept.as_seen_by(1, &[], false).unwrap();
    assert_eq!((shown.volume, shown.claim), (Some(format!("pvc-{}", id(1))), None));
    let alone = |scope: &str| job::name(Operation::Delete, &id(1), 1, scope);
    assert_eq!(shown.name.name, alone(&format!("uid-{}", id(1))));
    assert_ne!(shown.name.name, alone("another"), "the volume was restored meanwhile");
    let lists = pod_annotations.values().filter_map(|text| batch::read(text).ok()).flatten();
    assert!(lists.map(|line| line["OPERATION"].clone()).eq(["delete", "delete"]));
}

#[test]
fn members_beyond_the_size_limit_are_left_out() {
    let recipe = recipe(&[("image", "x"), ("claim-metadata", "note")]);
    let mut members = asking(&recipe, 40);
    for MemberRun { request, .. } in &mut members {
        request.claim_metadata.insert("note".into(), format!("{}{}", request.volume_id, "x".repeat(20_000)));
    }
    let BatchJob { job, members: count } = job(&recipe, BATCH, &members, &run_target(None));
    assert!((10..14).contains(&count), "{count}");
    assert!(annotated(&job) <= limits::POD);
    assert_eq!(Job::from(&job).members.len(), count);
    assert!(annotated(&whole(&recipe, BATCH, &members[..=count], &run_target(None))) > limits::POD, "as many as fit");
    let adds = weight(&members[0].request, &members[1].request);
    assert!((20_000..21_000).contains(&adds), "{adds}");
}

#[test]
fn only_jobs_with_the_name_of_a_batch_are_batches() {
    let recipe = recipe(&[("image", "x")]);
    let BatchJob { mut job, .. } = job(&recipe, BATCH, &asking(&recipe, 2), &run_target(None));
    assert_eq!(Job::from(&job).members.len(), 2);
    job.metadata.name = Some(format!("provision-{}-1", id(0)));
    assert!(Job::from(&job).members.is_empty(), "an admin's template can have the annotation");
    let template = job.spec.clone().unwrap().template;
    let mut pod = core::Pod { metadata: template.metadata.unwrap(), ..core::Pod::default() };
    assert!(Pod::from(&pod).members.is_empty());
    pod.metadata.labels.get_or_insert_default().insert("batch.kubernetes.io/job-name".into(), BATCH.into());
    assert_eq!(Pod::from(&pod).members.len(), 2);
}

#[test]
fn each_member_has_a_view_of_its_own_run() {
    let (job, pod) = batch();
    let shown = job.as_seen_by(1, &[], false).unwrap();
    assert_eq!(shown.name.name, format!("provision-{}-1", id(1)));
    assert_eq!((&shown.uid, &shown.run_labels.id, shown.real_name()), (&job.uid, &id(1), &job.name));
    assert_eq!(shown.claim, Some(ObjectName::new("team", "data-1")));
    assert!(shown.members.is_empty() && !shown.terminating && shown.is_for_claim());
    assert!(job.as_seen_by(1, &[], true).unwrap().terminating, "as if it were being removed");
    let its = pod.as_seen_by(1).unwrap();
    assert_eq!((&its.job, &its.run_labels.id, its.run_labels.attempt), (&shown.name.name, &id(1), 1));
    assert!(job.as_seen_by(3, &[], false).is_none() && pod.as_seen_by(3).is_none());
    assert_eq!(run(&job, &pod, 0), RunState::MayBeRunning);
}

#[test]
fn each_member_ends_as_the_image_reported() {
    let (job, pod) = batch();
    let pod = ended(&pod, 0, "flex-batch 1\n2 75 the array is off\n");
    let complete = Job { complete: true, is_over: true, ..job.clone() };
    for job in [&job, &complete] {
        assert_eq!((run(job, &pod, 0), run(job, &pod, 2)), (RunState::Succeeded, RunState::Succeeded));
        let (reaction, why) = failure(run(job, &pod, 1));
        assert_eq!((reaction, why.as_str()), (Reaction::Retry, "exit code 75: try again later: the array is off"));
    }
    let last = complete.as_seen_by(2, &[&pod], false).unwrap();
    assert!(last.complete && last.is_over && last.failed.is_none());
}

#[test]
fn a_member_without_a_line_ends_like_the_pod() {
    let (job, pod) = batch();
    let failed = |reason: &str| {
        let ended = JobEnd { reason: reason.into(), message: "m".into(), at: 10 };
        Job { failed: Some(ended), is_over: true, ..job.clone() }
    };
    let stopped = ended(&pod, 137, "flex-batch 1\n1 65 no such pool\n");
    for job in [failed("BackoffLimitExceeded"), failed("DeadlineExceeded")] {
        let (reaction, why) = failure(run(&job, &stopped, 0));
        assert_eq!((reaction, why.as_str()), (Reaction::Never, "exit code 65: never for this request: no such pool"));
        let (reaction, why) = failure(run(&job, &stopped, 1));
        assert!(reaction == Reaction::Retry && why.contains(NO_OUTCOME_MESSAGE), "{why}");
    }
    // The image does not know batches.
    let unknown = ended(&pod, 64, "OPERATION=batch is not known");
    let (reaction, why) = failure(run(&failed("BackoffLimitExceeded"), &unknown, 2));
    assert!(reaction == Reaction::Never && why.contains("OPERATION=batch is not known"), "{why}");
}

#[test]
fn a_pod_has_succeeded_if_it_has_for_one_member() {
    let (_, pod) = batch();
    let single = |pod: Pod| Pod { members: Arc::default(), ..pod };
    for (what, pod, expected) in [
        ("it is in progress", pod.clone(), false),
        ("no member has failed", ended(&pod, 0, ""), true),
        ("one member has failed", ended(&pod, 0, "flex-batch 1\n2 75 off\n"), true),
        ("all members have failed", ended(&pod, 0, "flex-batch 1\n1 75 off\n2 75 off\n3 1\n"), false),
        ("it was stopped", ended(&pod, 137, "flex-batch 1\n2 75 off\n"), false),
        ("a run for one claim", single(ended(&pod, 0, "")), true),
        ("a failed run for one claim", single(ended(&pod, 75, "off")), false),
    ] {
        assert_eq!(pod.has_succeeded(), expected, "{what}");
    }
}

#[test]
fn a_member_without_an_observed_outcome_is_running() {
    let (job, pod) = batch();
    let complete = Job { complete: true, is_over: true, ..job };
    assert_eq!(run(&complete, &pod, 0), RunState::MayBeRunning, "its pod has the outcome, and has not ended");
    let shown = complete.as_seen_by(0, &[], false).unwrap();
    assert_eq!(state(Some(&shown), &[], &[]), RunState::Succeeded, "no pod has the outcome any more");
}

#[test]
fn the_request_of_a_member_can_be_read_again() {
    let recipe = recipe(&[("image", "x")]);
    let mut members = asking(&recipe, 3);
    members[1].request.size_bytes = 7;
    // Data that Kubernetes gives to the pod are not in the Job.
    members.iter_mut().for_each(|run| run.request.pod_namespace = "flex-provisioner".into());
    for count in [1, 3] {
        let BatchJob { job, .. } = job(&recipe, BATCH, &members[..count], &run_target(None));
        for MemberRun { member, request } in &members[..count] {
            assert_eq!(request_of(job.clone(), &member.id).as_ref(), Ok(request), "of {count}");
        }
        assert!(request_of(job, &id(9)).is_err(), "of {count}");
    }
    let alone = crate::run::job::job(&recipe, &members[0].request, &run_target(None));
    assert_eq!(request_of(alone, &id(0)).as_ref(), Ok(&members[0].request));
}

#[test]
fn a_batch_sees_only_the_storage_of_its_members() {
    let template = "spec: {containers: [{name: provisioner, volumeMounts: [{name: a, mountPath: /a}]}], volumes: [{name: a, hostPath: {path: /a}}]}";
    let recipe = recipe(&[("image", "x"), ("pod-template", template), ("storage-mounts", "/a")]);
    let BatchJob { job: made, members: fits } = job(&recipe, BATCH, &asking(&recipe, 250), &run_target(None));
    let spec = pod_of(&made).spec.unwrap();
    let mounts = spec.containers[0].volume_mounts.iter().flatten();
    let observed: Vec<String> =
        mounts.filter(|mount| mount.name.starts_with("flex-new-")).map(|mount| mount.mount_path.clone()).collect();
    let on_node = spec.volumes.iter().flatten().filter(|volume| volume.name.starts_with("flex-new-"));
    let paths: Vec<String> = on_node.map(|volume| volume.host_path.as_ref().unwrap().path.clone()).collect();
    let members: Vec<String> = (0..fits).map(|n| format!("/a/{}", id(n))).collect();
    assert_eq!(paths, members);
    assert_eq!(observed, members);
}

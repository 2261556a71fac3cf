//! Generators of all observations of a claim, also of those that should never occur.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;

fn recipes() -> impl Strategy<Value = Recipe> {
    let keys: [&[(&str, &str)]; 9] = [
        &[],
        &[("capabilities", "clone")],
        &[("capabilities", "clone"), ("placement", "any")],
        &[("zone", "newer")],
        &[("placement", "any")],
        &[("max-size", "1Mi")],
        &[("reclaim-policy", "Retain")],
        &[("node-gone", "forget")],
        &[("node-gone", "run-elsewhere")],
    ];
    select(keys.map(recipe_with).to_vec())
}

fn reactions() -> impl Strategy<Value = Reaction> {
    select(vec![Reaction::Retry, Reaction::Never, Reaction::NoCapacity])
}

fn times() -> impl Strategy<Value = i64> {
    prop_oneof![NOW - 4000..NOW + 10, select(vec![0, i64::MIN, i64::MAX])]
}

fn numbers() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..4, 1 => Just(u32::MAX)]
}

fn nodes() -> impl Strategy<Value = Vec<String>> {
    subsequence(vec!["a".to_owned(), "b".into(), "c".into()], 0..=3).prop_shuffle()
}

fn failures() -> impl Strategy<Value = LastFailure> {
    (select(vec![Operation::Provision, Operation::Delete]), numbers(), times(), reactions())
        .prop_map(|(operation, attempt, at, reaction)| failure(operation, attempt, at, reaction))
}

/// Generates a run with or without its Job.
fn runs(job: bool) -> BoxedStrategy<RunState> {
    if !job {
        return select(vec![RunState::NotCached, RunState::NotCached, RunState::MayBeRunning]).boxed();
    }
    let stuck = (select(vec!["Unschedulable", "ErrImagePull"]), times())
        .prop_map(|(reason, since)| RunState::Stuck { cause: Cause::new(reason, "words"), since });
    let failed = (reactions(), times(), any::<bool>()).prop_map(|(reaction, at, pods_ended)| RunState::Failed {
        cause: Cause::new("R", "words"),
        reaction,
        at,
        pods_ended,
    });
    prop_oneof![Just(RunState::MayBeRunning), stuck, Just(RunState::Succeeded), failed].boxed()
}

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let job = (0u32..4, any::<bool>(), any::<bool>());
    let jobs = prop::collection::vec(job, 0..3).prop_map(|jobs| {
        let mut observed = BTreeSet::new();
        let jobs = jobs.into_iter().filter(|(attempt, ..)| observed.insert(*attempt));
        jobs.map(|(attempt, is_over, terminating)| Job { is_over, terminating, ..job_of(attempt) }).collect()
    });
    prop_oneof![2 => Just(vec![]), 1 => jobs]
}

pub(super) fn job_of(attempt: u32) -> Job {
    super::job(attempt)
}

fn volumes(name: String) -> impl Strategy<Value = (Volume, Vec<String>)> {
    let text = |options: &[&str]| select(options.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    let adopted = any::<bool>();
    let marks = (text(&["", UID, "x"]), text(&["none", "", UID, "x"]), text(&["", UID, "x"]), text(&["", "a", "old"]));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let phase = select(vec!["Pending", "Available", "Bound"]);
    (adopted, marks, flags, any::<bool>(), phase).prop_map(move |(adopted, marks, flags, extra, phase)| {
        let (uid, reference, id, quarantine) = marks;
        let (held, terminating, deletes, provisioned) = flags;
        let mut volume = if adopted { adopted_volume() } else { volume() };
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        volume.name = name.clone();
        volume.terminating = terminating;
        volume.phase = phase.into();
        volume.quarantine = some(quarantine);
        volume.reclaim_policy = if deletes { "Delete" } else { "Retain" }.into();
        if !adopted {
            volume.claim_uid = some(uid).or_else(|| (name != names::pv_name(UID)).then(|| UID.to_owned()));
            volume.volume_id_annotation = some(id);
            volume.finalizers = if held { vec![names::VOLUME_FINALIZER.into()] } else { vec![] };
            volume.provisioned_by = provisioned.then(|| "somebody".into());
            volume.claim_ref = (reference != "none").then(|| Reference {
                name: ObjectName::new("ns", "c"),
                uid: Some(reference).filter(|uid| !uid.is_empty()),
            });
        }
        // The check of a volume would find the same.
        let mut mismatches = Vec::new();
        if name != names::pv_name(UID) {
            mismatches.push("name".to_owned());
        }
        if volume.claim_uid.as_ref().is_some_and(|uid| uid != UID) {
            mismatches.push("annotation".into());
        }
        if volume.claim_ref_uid().is_some_and(|uid| uid != UID) {
            mismatches.push("claimRef".into());
        }
        if extra {
            mismatches.push("a".into());
        }
        (volume, mismatches)
    })
}

/// Generates the data source of a claim, in any state.
fn claim_sources() -> impl Strategy<Value = Source> {
    let flags = (prop::bool::weighted(0.8), prop::bool::weighted(0.8), any::<bool>(), prop::bool::weighted(0.2));
    (flags, select(vec![None, Some("a"), Some("home")])).prop_map(|((there, ours, kept, terminating), node)| {
        let mut source = super::of_copies::source_on(node);
        source.ours = ours;
        let claim = source.claim.as_mut().expect("it is there");
        claim.terminating = terminating;
        claim.finalizers = kept.then(|| names::clone_finalizer(UID)).into_iter().collect();
        source.claim = source.claim.filter(|_| there);
        source
    })
}

fn source_users() -> impl Strategy<Value = Vec<SourceUser>> {
    let copy = any::<bool>().prop_map(|in_progress| SourceUser {
        uid: format!("copy-{in_progress}"),
        in_progress: in_progress.then(|| ObjectName::new("team", "copy")),
    });
    prop_oneof![4 => Just(vec![]), 1 => prop::collection::vec(copy, 1..3)]
}

fn choices() -> impl Strategy<Value = NodeChoice> {
    let next = prop::option::weighted(0.8, select(vec!["a".to_owned(), "b".into(), "home".into()]));
    (next, any::<bool>(), any::<bool>()).prop_map(|(next, is_new, last)| {
        let is_new = is_new && next.is_some();
        NodeChoice { next, is_new, last }
    })
}

prop_compose! {
    fn claims()(
        flags in (any::<bool>(), any::<bool>(), any::<bool>(), prop::bool::weighted(0.1), prop::bool::weighted(0.2)),
        stamp in prop::option::weighted(0.8, (select(vec![UID, UID, UID, "copied"]), numbers(), recipes())),
        nodes in nodes(),
        last_failure in prop::option::of(failures()),
        selected in select(vec![None, Some("a"), Some("b")]),
        volume_name in select(vec![None, None, None, Some(names::pv_name(UID)), Some("other".to_owned())]),
        size in select(vec![Ok(1 << 30), Ok(1 << 30), Err("no size".to_owned())]),
    ) -> Claim {
        let (terminating, held, completed, abandoned, used) = flags;
        let mut claim = new().claim;
        claim.terminating = terminating;
        claim.held = held;
        claim.bind_completed = completed && volume_name.is_some();
        claim.abandoned = abandoned;
        claim.stamp = stamp.map(|(uid, attempt, recipe)| Stamp {
            claim_uid: uid.into(), ts: "t".into(), attempt, recipe_version: recipe.version(),
        });
        claim.nodes_with_storage = nodes;
        claim.last_failure = last_failure;
        claim.selected_node = selected.map(str::to_owned);
        claim.volume_name = volume_name;
        claim.size = size;
        // Without finalizers, a terminating claim is gone, and its stand-in is not bound.
        if used || claim.terminating && claim.is_bound() {
            claim.finalizers.push(names::CLAIM_PROTECTION.into());
        }
        claim
    }
}

/// The facts beside the objects, in the order in which `worlds` takes them.
type Flags = (
    bool,
    bool,
    bool,
    bool,
    Binding,
    Option<RemovedJob>,
    bool,
    (bool, bool, bool),
    Option<&'static str>,
    ClassCertainty,
);

fn flags() -> impl Strategy<Value = Flags> {
    let removed = prop::option::weighted(0.1, (1..5_u32).prop_map(|times| RemovedJob { times, at: NOW - 5 }));
    let ways = select(vec![Binding::Direct, Binding::Controller]);
    (
        any::<bool>(),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.8),
        ways,
        removed,
        prop::bool::weighted(0.1),
        (prop::bool::weighted(0.2), any::<bool>(), prop::bool::weighted(0.3)),
        prop::option::weighted(0.1, Just("pvc-ready")),
        select(vec![ClassCertainty::Certain, ClassCertainty::Unasked, ClassCertainty::MayFollow]),
    )
}

/// Generates what the records name.
fn recorded_attempts() -> impl Strategy<Value = RecordedAttempts> {
    (0..3u32).prop_map(|last| RecordedAttempts { last, ..RecordedAttempts::default() })
}

/// Returns what is known of the records of a claim when somebody has deleted them.
fn no_records(claim: &Claim) -> RecordedAttempts {
    let is_missing = claim.is_held() && claim.own_stamp().is_some();
    RecordedAttempts { is_missing, ..RecordedAttempts::default() }
}

pub(super) fn worlds() -> impl Strategy<Value = World> {
    let class = (prop::option::weighted(0.8, recipes()), any::<bool>(), any::<bool>());
    let flags = flags();
    let volumes = (
        prop::option::weighted(0.4, volumes(names::pv_name(UID))),
        prop::option::weighted(0.2, volumes("misnamed".into())),
    );
    let base = (claims(), class, flags, prop::option::weighted(0.8, recipes()), jobs(), nodes(), volumes);
    let state = select(vec![NodeState::Unreachable, NodeState::NotCached, NodeState::NotFound]);
    let node_states = prop::collection::btree_map(select(vec!["a".to_owned(), "b".into()]), state, 0..2);
    let copies = (prop::option::weighted(0.2, claim_sources()), source_users());
    let copies = (copies, prop::bool::weighted(0.1), choices(), (recorded_attempts(), any::<bool>()));
    (base, any::<bool>(), prop::bool::weighted(0.2), prop::option::of(any::<bool>()), node_states, copies)
        .prop_flat_map(
            |(
                base,
                no_volume,
                has_running_pods,
                delete_job,
                node_states,
                ((data_source, source_users), selected_node_forbidden, node_choice, (recorded, is_let_go)),
            )| {
                let (mut claim, class, flags, stamped_recipe, jobs, pod_nodes, volumes) = base;
                claim.data_source = data_source.as_ref().map(|_| DataSource::Claim(ObjectName::new("team", "source")));
                let attempt = claim.own_stamp().map_or(0, |stamp| stamp.attempt);
                let has_job = jobs.iter().any(|job| job.run_labels.attempt == attempt);
                let delete_job = delete_job.map(|terminating| Job { terminating, ..job_of(9) });
                let world = World {
                    fresh: flags.0,
                    foreign: flags.1,
                    class_certainty: if class.2 { ClassCertainty::Certain } else { flags.9 },
                    has_revision: flags.2,
                    has_slot: flags.3,
                    quota_refusal: None,
                    has_pending_charge: false,
                    has_namesake: false,
                    attributes_error: None,
                    binding: flags.4,
                    removed: flags.5,
                    recorded: if flags.6 { no_records(&claim) } else { recorded },
                    is_let_go,
                    seen_by_probe: flags.7.0,
                    many_wait: flags.7.1,
                    lacks_mark: flags.7.2,
                    pooled_volume: flags.8,
                    class: Class {
                        binding: if class.1 { BindingMode::Immediate } else { BindingMode::WaitForFirstConsumer },
                        has_object: class.2,
                        recipe: class.0.map(Arc::new).ok_or_else(|| "no config".to_owned()),
                        ..new().class
                    },
                    stamped_recipe: stamped_recipe.filter(|_| claim.own_stamp().is_some()),
                    no_volume: no_volume && volumes.0.is_none(),
                    volumes: volumes.0.into_iter().chain(volumes.1).collect(),
                    claim,
                    jobs,
                    nodes_with_pods: pod_nodes.into_iter().filter(|_| has_running_pods).collect(),
                    node_choice,
                    node_states: NodeStates(node_states),
                    has_running_pods,
                    selected_node_forbidden,
                    data_source,
                    source_users,
                    ..new()
                };
                (Just(world), runs(has_job), runs(delete_job.is_some()), Just(delete_job))
                    .prop_map(|(world, run, delete_run, delete_job)| World { run, delete_run, delete_job, ..world })
            },
        )
}

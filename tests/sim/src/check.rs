//! The invariants at all times, and the expected state at the end.

pub mod batches;
pub mod gates;
pub mod outages;
pub mod pools;
pub mod records;
pub mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use flex_contract::names;
use flex_core::config::effective_config::revision_name;
use flex_core::object::ObjectName;
use serde_json::Value;

use crate::SYSTEM;
use crate::actors::{OTHERS, is_restored};
use crate::records::is_held;
use crate::store::{Kind, Store, annotation, document, has_finalizer, is_deleting, label, text, uid};
use crate::wire::{Request, Verb};
use crate::world::{StorageKey, World, wanted_node};

fn is_bound(claim: &Value) -> bool {
    text(claim, "/status/phase") == "Bound"
}

/// Returns whether an admin deleted the volume before it was adopted. It is then deleted with its claim, and the
/// orchestrator deletes its storage.
fn cannot_get_finalizer(volume: &Rc<Value>) -> bool {
    is_deleting(volume) && !has_finalizer(volume, names::VOLUME_FINALIZER)
}

fn is_made_here(name: &ObjectName) -> bool {
    !name.name.starts_with("foreign")
}

/// A guarantee, as the last line of a run counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guarantee {
    /// Something is left behind.
    Leaked,
    /// There are two where one must be, or a foreign or used object was changed or deleted.
    Duplicate,
    /// An object does not reach its end, or has no event that says why.
    Stuck,
}

/// A violated guarantee.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The guarantee.
    pub guarantee: Guarantee,
    /// The description of the violation.
    pub what: String,
}

/// Checks after a step that the state is allowed.
pub fn check_step(store: &Store, world: &World) -> Option<Violation> {
    let wrong = |what: String| Some(Violation { guarantee: Guarantee::Duplicate, what });
    let mut bound: BTreeMap<&str, &ObjectName> = BTreeMap::new();
    for (name, claim) in store.all(Kind::Claim).filter(|(name, claim)| is_made_here(name) && is_bound(claim)) {
        let volume_name = text(claim, "/spec/volumeName");
        if let Some(other) = bound.insert(volume_name, name) {
            return wrong(format!("claims {name} and {other} are bound to one volume, {volume_name}"));
        }
        let Some(volume) = store.get(Kind::Volume, &ObjectName::new("", volume_name)) else {
            let used = has_finalizer(claim, crate::world::CLAIM_PROTECTION);
            if used {
                return wrong(format!("claim {name} is bound to volume {volume_name}, which is gone"));
            }
            continue;
        };
        if text(volume, "/spec/claimRef/uid") != uid(claim) {
            return wrong(format!("claim {name} is bound to volume {volume_name}, which belongs to another claim"));
        }
        let used = !is_deleting(claim) || has_finalizer(claim, crate::world::CLAIM_PROTECTION);
        let location = world.made.get(uid(volume));
        if used && location.is_some_and(|location| !world.backend.contains(location)) {
            return wrong(format!(
                "claim {name} is bound to volume {volume_name}, and its storage {location:?} is gone"
            ));
        }
    }
    // Restored storage may not be deleted before an admin has vouched for its volume.
    let unvouched = store.all(Kind::Volume).filter(|(_, volume)| is_restored(volume));
    for (name, volume) in unvouched {
        let location = world.restored.get(uid(volume));
        if location.is_some_and(|location| !world.backend.contains(location)) {
            return wrong(format!("the storage {location:?} of the restored volume {} is gone", name.name));
        }
    }
    let retained = store.all(Kind::Volume).filter(|(_, volume)| world.retained.contains(uid(volume)));
    for (name, volume) in retained {
        if text(volume, "/spec/persistentVolumeReclaimPolicy") != "Retain" {
            return wrong(format!("an admin set volume {} to Retain, and nobody else may change that", name.name));
        }
    }
    if let Some(what) = snapshots::check_step(store, world).or_else(|| records::check_step(world)) {
        return wrong(what);
    }
    let kept = |(kind, name, of): &&(Kind, ObjectName, String)| {
        store.get(*kind, name).is_some_and(|object| uid(object) == of && has_finalizer(object, OTHERS))
    };
    if let Some((kind, name, _)) = world.marked.iter().find(|mark| !kept(mark)) {
        return wrong(format!("{kind:?} {name} has lost the finalizer of another controller"));
    }
    None
}

/// Returns the ids that use the quota of a class: its volumes, and its claims that do not only wait.
fn usage<'s>(store: &'s Store, class: &str) -> BTreeSet<&'s str> {
    let of_class = |name: &ObjectName, object: &Value, of: &str| is_made_here(name) && text(object, of) == class;
    let volumes = store
        .all(Kind::Volume)
        .filter(|(name, volume)| of_class(name, volume, "/spec/storageClassName"))
        .map(|(_, volume)| match annotation(volume, names::CLAIM_UID) {
            "" => annotation(volume, names::VOLUME_ID),
            claim => claim,
        });
    let claims = store.all(Kind::Claim).filter(|(name, claim)| of_class(name, claim, "/spec/storageClassName"));
    let begun = claims.filter(|(_, claim)| has_charge(claim)).map(|(_, claim)| uid(claim));
    volumes.chain(begun).collect()
}

/// Returns whether a claim has had an attempt.
fn has_begun(claim: &Value) -> bool {
    annotation(claim, names::CLAIM_UID) == uid(claim)
}

/// Returns whether a claim has had an attempt, and does not only wait: the last one is not given up, and one of all may
/// have made a volume.
fn has_charge(claim: &Value) -> bool {
    /// The retries of a config without the key.
    const RETRIES: u64 = 15;
    let failure = document(claim, names::FAILURE);
    let attempt = failure["attempt"].as_u64().unwrap_or_default();
    let of_last = failure["operation"] == "provision" && annotation(claim, names::ATTEMPT) == attempt.to_string();
    let is_empty = failure["empty_attempts"].as_u64().unwrap_or_default() >= attempt;
    let only_waits = of_last && (failure["kind"] == "never" || attempt > RETRIES || is_empty);
    // The orchestrator is done with the claim, and Kubernetes removes it.
    let is_over = is_deleting(claim) && !is_held(claim);
    has_begun(claim) && (is_bound(claim) || !(only_waits || is_over))
}

/// Returns whether a claim waits for the quota of its class, which others use.
fn waits_for_quota(store: &Store, world: &World, claim: &Value) -> bool {
    let class = text(claim, "/spec/storageClassName");
    let claimed_by_other = || {
        let gone = crate::records::gone(store);
        let left = gone.iter().filter(|gone| text(gone, "/spec/storageClassName") == class).map(uid);
        usage(store, class).into_iter().chain(left).collect::<BTreeSet<_>>().len()
    };
    !has_charge(claim)
        && world.share.is_some_and(|share| claimed_by_other() >= share)
        && (!suits_pool(claim) || pools::ready(store, world, class) == 0)
}

/// Returns whether a pooled volume on some node would suit the claim.
fn suits_pool(claim: &Value) -> bool {
    claim["spec"]["dataSource"].is_null() && text(claim, "/spec/volumeAttributesClassName").is_empty()
}

/// Checks, after a step of a process that knows all, that no class has more volumes than its quota.
pub fn quotas(store: &Store, world: &World) -> Option<Violation> {
    let share = world.share?;
    let classes: BTreeSet<_> = store.all(Kind::Claim).map(|(_, claim)| text(claim, "/spec/storageClassName")).collect();
    let over = classes
        .into_iter()
        .map(|class| (class, usage(store, class)))
        .find(|(_, claimed_by_other)| claimed_by_other.len() > share);
    let (class, claimed_by_other) = over?;
    Some(Violation {
        guarantee: Guarantee::Duplicate,
        what: format!("class {class} may have {share} volumes, and has {claimed_by_other:?}"),
    })
}

/// Returns what is wrong with a document that the orchestrator writes into an annotation.
fn broken_document(body: &Value) -> Option<String> {
    const DOCUMENTS: [&str; 5] =
        [names::FAILURE, names::PROVENANCE, names::EXPANSION, names::ATTRIBUTES, names::MODIFICATION];
    let broken = |key: &&str| {
        let text = annotation(body, key);
        !text.is_empty() && !serde_json::from_str::<Value>(text).is_ok_and(|document| document.is_object())
    };
    let key = DOCUMENTS.into_iter().find(broken)?;
    Some(format!("the annotation {key} is no JSON object: {}", annotation(body, key)))
}

/// Checks a request of the orchestrator before it is carried out.
pub fn request(store: &Store, world: &World, request: &Request) -> Option<Violation> {
    let wrong = |what: String| Some(Violation { guarantee: Guarantee::Duplicate, what });
    let Request { verb, kind, name, body, .. } = request;
    let writes = !matches!(verb, Verb::Get | Verb::List);
    let about = text(body, "/involvedObject/name");
    if writes && (!is_made_here(name) || (*kind == Kind::Event && about.starts_with("foreign"))) {
        return wrong(format!("{request} concerns an object of others"));
    }
    if let Some(what) = broken_document(body) {
        return wrong(format!("{request}: {what}"));
    }
    if *verb == Verb::Create
        && *kind == Kind::Job
        && let Some(what) = other_version(store, body)
    {
        return wrong(what);
    }
    if let Some(what) = pools::request(store, world, request) {
        return wrong(what);
    }
    if is_before_consumer(store, request) {
        return wrong(format!("the first attempt for claim {name} begins, and its class waits for a consumer"));
    }
    if *verb == Verb::Create && *kind == Kind::Job && label(body, names::LABEL_OPERATION) == "delete" {
        let volume_name = names::pv_name(label(body, names::LABEL_VOLUME_ID));
        let lives =
            |claim: &Value| is_bound(claim) && !is_deleting(claim) && text(claim, "/spec/volumeName") == volume_name;
        let claim = store.all(Kind::Claim).find(|(_, claim)| lives(claim));
        let location =
            store.get(Kind::Volume, &ObjectName::new("", &volume_name)).and_then(|volume| world.made.get(uid(volume)));
        // Leftovers on other nodes may be deleted while the volume is in use on its own node.
        let elsewhere = location
            .is_some_and(|(_, node)| !node.is_empty() && !wanted_node(body).is_empty() && wanted_node(body) != node);
        if let Some((claim_name, _)) = claim
            && !elsewhere
        {
            return wrong(format!("a delete run for the volume of claim {claim_name}, which exists and is bound"));
        }
    }
    None
}

/// Returns whether a request begins the first attempt for a claim although the StorageClass waits for a consumer. Pool
/// requests have no consumer.
fn is_before_consumer(store: &Store, request: &Request) -> bool {
    let Request { verb: Verb::Patch, kind: Kind::Claim, name, body, .. } = request else { return false };
    let Some(claim) = store.get(Kind::Claim, name) else { return false };
    let class = store.get(Kind::Class, &ObjectName::new("", text(claim, "/spec/storageClassName")));
    let waits = class.is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer");
    let is_applied = body["metadata"]["resourceVersion"] == claim["metadata"]["resourceVersion"];
    let begins = is_applied && !annotation(body, names::ATTEMPT).is_empty() && !has_begun(claim);
    let pending = text(claim, "/spec/volumeName").is_empty() && !name.name.starts_with(names::POOL_REQUEST_PREFIX);
    waits && begins && pending && annotation(claim, names::SELECTED_NODE).is_empty()
}

/// Returns whether a claim clones the claim of this name.
fn is_clone_of(claim: &Value, source: &ObjectName) -> bool {
    text(claim, "/spec/dataSource/name") == source.name
}

/// Returns whether a claim clones a source that cannot be cloned: only users can change that.
fn waits_for_source(store: &Store, world: &World, name: &ObjectName, claim: &Value) -> bool {
    let of = text(claim, "/spec/dataSource/name");
    if of.is_empty() {
        return false;
    }
    if text(claim, "/spec/dataSource/kind") == "VolumeSnapshot" {
        return snapshots::waits(store, name, claim);
    }
    let source = store.get(Kind::Claim, &ObjectName::new(&name.namespace, of));
    let fits = |source: &&std::rc::Rc<Value>| {
        let volume = store.get(Kind::Volume, &ObjectName::new("", text(source, "/spec/volumeName")));
        let volume = volume.filter(|volume| !was_taken(volume));
        let size = &claim["spec"]["resources"]["requests"]["storage"];
        let same = text(source, "/spec/storageClassName") == text(claim, "/spec/storageClassName");
        let there = volume.is_some_and(|volume| !is_deleting(volume) && volume["spec"]["capacity"]["storage"] == *size);
        let node = volume.and_then(|volume| world.made.get(uid(volume))).map_or("", |(_, node)| node);
        let there = there && (node.is_empty() || store.get(Kind::Node, &ObjectName::new("", node)).is_some());
        is_bound(source) && same && there && (!is_deleting(source) || is_protected(source, claim))
    };
    source.filter(fits).is_none()
}

/// Returns whether a volume is, or was, another claim's than that for which it was made, so that nobody has adopted it.
fn was_taken(volume: &Value) -> bool {
    let (made_for, of) = (annotation(volume, names::CLAIM_UID), text(volume, "/spec/claimRef/uid"));
    annotation(volume, names::PROVENANCE).is_empty() && !of.is_empty() && !made_for.is_empty() && of != made_for
}

/// Returns whether another claim has, or had, the volume that was made for a claim: its user must delete the claim, and create it
/// again.
fn is_with_other(store: &Store, claim: &Value) -> bool {
    let volume = store.get(Kind::Volume, &ObjectName::new("", names::pv_name(uid(claim))));
    volume.is_some_and(|volume| was_taken(volume))
}

/// Returns whether the source of a clone is protected.
fn is_protected(source: &Value, copy: &Value) -> bool {
    has_finalizer(source, &names::clone_finalizer(uid(copy)))
}

/// Checks that the Job of an attempt uses the version of the config in its claim's stamp.
fn other_version(store: &Store, job: &Value) -> Option<String> {
    let id = label(job, names::LABEL_VOLUME_ID);
    let of = |claim: &Value| {
        id.starts_with(uid(claim))
            && annotation(claim, names::CLAIM_UID) == uid(claim)
            && annotation(claim, names::ATTEMPT) == label(job, names::LABEL_ATTEMPT)
    };
    let provisions = label(job, names::LABEL_OPERATION) == "provision";
    let (name, claim) = store.all(Kind::Claim).find(|(_, claim)| provisions && of(claim))?;
    let version = annotation(claim, names::RECIPE_VERSION);
    let hash = version.rsplit('@').next().unwrap_or_default();
    let kept = store.get(Kind::Revision, &ObjectName::new(SYSTEM, revision_name(hash)));
    let noted = kept.map_or("", |kept| text(kept, "/data/data/image"));
    let image = text(job, "/spec/template/spec/containers/0/image");
    (noted != image).then(|| format!("claim {name} has noted {version}, image {noted:?}, and its Job runs {image}"))
}

/// Returns whether a volume with policy Retain lost its claim to another volume, by the PV controller. Any claim may
/// take it, also after an admin has changed its policy.
fn is_free(volume: &Value) -> bool {
    let provenance = document(volume, names::PROVENANCE);
    volume["spec"]["claimRef"].is_null() && text(&provenance, "/data/reclaim-policy") == "Retain"
}

/// Checks the state after everything has come to rest. `waived` is the storage that was left on purpose.
pub fn check_end(
    store: &Store,
    world: &World,
    waived: &BTreeSet<StorageKey>,
    events_are_complete: bool,
) -> Vec<Violation> {
    let mut all = Vec::new();
    let mut wrong = |guarantee: Guarantee, what: String| all.push(Violation { guarantee, what });
    let mut needed: BTreeSet<&StorageKey> = BTreeSet::new();
    // The storage on a deleted node waits, noted on its volume, until an admin abandons it.
    let mut noted: BTreeSet<StorageKey> = BTreeSet::new();
    let gone = |node: &&str| store.get(Kind::Node, &ObjectName::new("", *node)).is_none();
    for (name, volume) in store.all(Kind::Volume).filter(|(name, _)| is_made_here(name)) {
        let reference = &volume["spec"]["claimRef"];
        let claim_name = ObjectName::new(text(reference, "/namespace"), text(reference, "/name"));
        let claim = store.get(Kind::Claim, &claim_name).filter(|claim| uid(claim) == text(reference, "/uid"));
        let bound = claim.is_some_and(|claim| text(claim, "/spec/volumeName") == name.name);
        let retained = text(volume, "/spec/persistentVolumeReclaimPolicy") != "Delete" || is_free(volume);
        // The claim for which it was made must be deleted first.
        let made_for = annotation(volume, names::CLAIM_UID);
        let waits =
            || was_taken(volume) && records::any_live(store, |claim| uid(claim) == made_for && !is_bound(claim));
        if !bound && !retained && !pools::is_ready(volume) && !waits() {
            wrong(Guarantee::Leaked, format!("volume {} belongs to no claim", name.name));
        }
        if is_deleting(volume) && !bound && !waits() {
            wrong(Guarantee::Stuck, format!("volume {} is not deleted", name.name));
        }
        // Leftovers on a deleted node must still be deleted there.
        let noted_on_gone = annotation(volume, names::NODES).split(',').any(|node| !node.is_empty() && gone(&node));
        let held = (bound && is_deleting(volume)) || noted_on_gone;
        if retained && has_finalizer(volume, names::VOLUME_FINALIZER) && !held {
            wrong(Guarantee::Stuck, format!("volume {} is retained, and has the orchestrator's finalizer", name.name));
        }
        needed.extend(world.made.get(uid(volume)));
        let nodes = annotation(volume, names::NODES).split(',').filter(gone);
        noted.extend(nodes.map(|node| (annotation(volume, names::VOLUME_ID).to_owned(), node.to_owned())));
    }
    // The leftovers of a held claim are deleted after it. A later check covers a claim, or a record, that waits forever.
    let held = |(id, _): &StorageKey| records::any_held(store, |claim| id.starts_with(uid(claim)) && !is_bound(claim));
    for location in &world.backend {
        if !needed.contains(location) && !noted.contains(location) && !waived.contains(location) && !held(location) {
            wrong(Guarantee::Leaked, format!("storage {location:?} has no volume"));
        }
    }
    for (name, claim) in store.all(Kind::Claim).filter(|(name, _)| is_made_here(name)) {
        let phase = text(claim, "/status/phase");
        let volume = store.get(Kind::Volume, &ObjectName::new("", text(claim, "/spec/volumeName")));
        let is_of_namespace = |copy: &Value| text(copy, "/metadata/namespace") == name.namespace;
        let kept = || records::any_copy(store, |copy| is_of_namespace(copy) && is_clone_of(copy, name));
        if is_deleting(claim) && !kept() {
            wrong(Guarantee::Stuck, format!("claim {name} is not deleted"));
        } else if !is_deleting(claim)
            && !is_bound(claim)
            && !waits_for_source(store, world, name, claim)
            && !is_with_other(store, claim)
            && !waits_for_quota(store, world, claim)
            && (world.left.is_none_or(|most| records::left_beside(store, claim) < most) || has_begun(claim))
        {
            wrong(Guarantee::Stuck, format!("claim {name} is {phase}"));
        } else if is_bound(claim)
            && is_held(claim)
            && !volume.is_some_and(cannot_get_finalizer)
            && !is_with_other(store, claim)
        {
            wrong(Guarantee::Stuck, format!("claim {name} is bound, and still held"));
        }
        let finalizers = claim["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for copy in finalizers.filter_map(|finalizer| finalizer.strip_prefix(names::CLONE_FINALIZER)) {
            if !records::any_held(store, |claim| uid(claim) == copy) {
                wrong(
                    Guarantee::Stuck,
                    format!("claim {name} is protected for the clone {copy}, which does not need it any more"),
                );
            }
        }
        let about = |event: &Value| text(event, "/involvedObject/uid") == uid(claim);
        // A claim that was bound without the orchestrator, even to a volume of another claim, needs no event.
        // Neither does one in a batch, where all went well and fast.
        let was_fast = is_bound(claim) && batches::was_batched(store, claim);
        let begun = has_begun(claim) && !was_fast;
        let waits = !is_bound(claim) && waits_for_quota(store, world, claim);
        if events_are_complete && (begun || waits) && !store.all(Kind::Event).any(|(_, event)| about(event)) {
            wrong(Guarantee::Stuck, format!("claim {name} has no event"));
        }
        let requested = &claim["spec"]["resources"]["requests"]["storage"];
        // What was made for another claim is not changed.
        let volume = volume.filter(|volume| !was_taken(volume));
        if is_bound(claim)
            && let Some(volume) = volume
            && (volume["spec"]["capacity"]["storage"] != *requested
                || claim["status"]["capacity"]["storage"] != *requested)
            && !is_deleting(volume)
        {
            let (has, says) = (&volume["spec"]["capacity"]["storage"], &claim["status"]["capacity"]["storage"]);
            wrong(
                Guarantee::Stuck,
                format!("claim {name} asks for {requested}, its volume has {has}, its status says {says}"),
            );
        }
        let asked = text(claim, "/spec/volumeAttributesClassName");
        if is_bound(claim)
            && let Some(volume) = volume.filter(|volume| !is_deleting(volume))
        {
            let location = world.made.get(uid(volume)).map(|(id, _)| id.as_str()).unwrap_or_default();
            let has = world.attributes.get(location).map_or(Some(""), Option::as_deref);
            let says = text(claim, "/status/currentVolumeAttributesClassName");
            let wanted = if asked.is_empty() { says } else { asked };
            let in_progress = !claim["status"]["modifyVolumeStatus"].is_null();
            if has != Some(wanted) || says != wanted || in_progress {
                wrong(
                    Guarantee::Stuck,
                    format!(
                        "claim {name} asks for the attributes `{asked}`, its volume has {has:?}, its status says `{says}`, under way: {in_progress}"
                    ),
                );
            }
        }
        // A user may have copied them; a stamp overwrites them.
        if begun && !annotation(claim, names::NODES).is_empty() && !is_held(claim) {
            wrong(Guarantee::Stuck, format!("claim {name} still lists nodes"));
        }
    }
    let others = snapshots::check_end(store, world, waived).into_iter().chain(pools::check_end(store, world));
    for (broken, what) in others.chain(records::check_end(store)) {
        wrong(broken, what);
    }
    for kind in [Kind::Job, Kind::Pod] {
        for (name, _) in store.all(kind).filter(|(name, _)| is_made_here(name)) {
            wrong(Guarantee::Leaked, format!("{kind:?} {name} is left"));
        }
    }
    all
}

//! The invariants at all times, and the expected state at the end.

pub mod batches;
pub mod pools;
pub mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use flex_contract::names;
use flex_provisioner::config::record::revision_name;
use flex_provisioner::model::claim::volume_ids;
use flex_provisioner::object::ObjectName;
use serde_json::Value;

use crate::SYSTEM;
use crate::actors::{OTHERS, is_restored};
use crate::store::{Kind, Store, annotation, has_finalizer, is_deleting, label, text, uid};
use crate::wire::{Request, Verb};
use crate::world::{StorageKey, World, wanted_node};

fn is_bound(claim: &Value) -> bool {
    text(claim, "/status/phase") == "Bound"
}

/// An admin deleted it before it was adopted: it goes with its claim, which keeps our finalizer to have its storage
/// deleted then.
fn cannot_be_held(volume: &Rc<Value>) -> bool {
    is_deleting(volume) && !has_finalizer(volume, names::VOLUME_FINALIZER)
}

fn is_ours(name: &ObjectName) -> bool {
    !name.name.starts_with("foreign")
}

/// A promise, as the last line of a run counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guarantee {
    /// Something is left behind.
    Leaked,
    /// Two where one must be, or somebody else's touched, or taken away in use.
    Duplicate,
    /// Something does not come to its end, or without a word.
    Stuck,
}

/// What is wrong.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which promise.
    pub guarantee: Guarantee,
    /// In words.
    pub what: String,
}

/// After a step: what must never be.
pub fn check_step(store: &Store, world: &World) -> Option<Violation> {
    let wrong = |what: String| Some(Violation { guarantee: Guarantee::Duplicate, what });
    let mut bound: BTreeMap<&str, &ObjectName> = BTreeMap::new();
    for (name, claim) in store.all(Kind::Claim).filter(|(name, claim)| is_ours(name) && is_bound(claim)) {
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
            return wrong(format!("claim {name} is bound to volume {volume_name}, which is another's"));
        }
        let used = !is_deleting(claim) || has_finalizer(claim, crate::world::CLAIM_PROTECTION);
        let location = world.made.get(uid(volume));
        if used && location.is_some_and(|location| !world.backend.contains(location)) {
            return wrong(format!(
                "claim {name} is bound to volume {volume_name}, and its storage {location:?} is gone"
            ));
        }
    }
    // Storage that came back is nobody's to delete before somebody has vouched for it.
    let unvouched = store.all(Kind::Volume).filter(|(_, volume)| is_restored(volume));
    for (name, volume) in unvouched {
        let location = world.restored.get(uid(volume));
        if location.is_some_and(|location| !world.backend.contains(location)) {
            return wrong(format!("the storage {location:?} of the restored volume {} is gone", name.name));
        }
    }
    if let Some(what) = snapshots::check_step(store, world) {
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

/// Whose volumes are taken of the share of a class: of those that are there, and of the claims that have begun and not given up.
fn usage<'s>(store: &'s Store, class: &str) -> BTreeSet<&'s str> {
    let ours = |name: &ObjectName, object: &Value, of: &str| is_ours(name) && text(object, of) == class;
    let volumes = store.all(Kind::Volume).filter(|(name, volume)| ours(name, volume, "/spec/storageClassName")).map(
        |(_, volume)| match annotation(volume, names::CLAIM_UUID) {
            "" => annotation(volume, names::VOLUME_ID),
            claim => claim,
        },
    );
    let claims = store.all(Kind::Claim).filter(|(name, claim)| ours(name, claim, "/spec/storageClassName"));
    let begun = claims.filter(|(_, claim)| has_charge(claim)).map(|(_, claim)| uid(claim));
    volumes.chain(begun).collect()
}

/// Attempts have begun for it.
fn has_begun(claim: &Value) -> bool {
    annotation(claim, names::CLAIM_UUID) == uid(claim)
}

/// Attempts have begun for it, and the last one was not given up.
fn has_charge(claim: &Value) -> bool {
    /// What a config says that says nothing of retries.
    const RETRIES: u64 = 15;
    let failure: Value = serde_json::from_str(annotation(claim, names::FAILURE)).unwrap_or_default();
    let attempt = failure["attempt"].as_u64().unwrap_or_default();
    let of_last = failure["operation"] == "provision" && annotation(claim, names::ATTEMPT) == attempt.to_string();
    let given_up = of_last && (failure["kind"] == "never" || attempt > RETRIES);
    has_begun(claim) && (is_bound(claim) || !given_up)
}

/// A claim waits for its share of a class, of which others have all.
fn waits_for_quota(store: &Store, world: &World, claim: &Value) -> bool {
    let claimed_by_other = || usage(store, text(claim, "/spec/storageClassName")).len();
    let class = text(claim, "/spec/storageClassName");
    !has_charge(claim)
        && world.share.is_some_and(|share| claimed_by_other() >= share)
        && (!can_be_given_one(claim) || pools::ready(store, world, class) == 0)
}

/// A volume that is ready would do for it, on whatever node.
fn can_be_given_one(claim: &Value) -> bool {
    claim["spec"]["dataSource"].is_null() && text(claim, "/spec/volumeAttributesClassName").is_empty()
}

/// After a step of a process that knows all: no class has more volumes than it may.
pub fn shares(store: &Store, world: &World) -> Option<Violation> {
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

/// Before a request of the orchestrator is carried out: what it must never ask for.
pub fn request(store: &Store, world: &World, request: &Request) -> Option<Violation> {
    let wrong = |what: String| Some(Violation { guarantee: Guarantee::Duplicate, what });
    let Request { verb, kind, name, body, .. } = request;
    let writes = !matches!(verb, Verb::Get | Verb::List);
    let about = text(body, "/involvedObject/name");
    if writes && (!is_ours(name) || (*kind == Kind::Event && about.starts_with("foreign"))) {
        return wrong(format!("{request} concerns what is not ours"));
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
    if *verb == Verb::Create && *kind == Kind::Job && label(body, names::LABEL_OPERATION) == "delete" {
        let volume_name = names::pv_name(label(body, names::LABEL_CLAIM_UUID));
        let lives =
            |claim: &Value| is_bound(claim) && !is_deleting(claim) && text(claim, "/spec/volumeName") == volume_name;
        let claim = store.all(Kind::Claim).find(|(_, claim)| lives(claim));
        let location =
            store.get(Kind::Volume, &ObjectName::new("", &volume_name)).and_then(|volume| world.made.get(uid(volume)));
        // What attempts left on other nodes may be deleted while the volume is in use on its own.
        let elsewhere = location
            .is_some_and(|(_, node)| !node.is_empty() && !wanted_node(body).is_empty() && wanted_node(body) != node);
        if let Some((claim_name, _)) = claim
            && !elsewhere
        {
            return wrong(format!("a delete run for the volume of claim {claim_name}, which lives and is bound"));
        }
    }
    None
}

/// A claim is to be a copy of the one of this name.
fn is_copy_of(claim: &Value, original: &ObjectName) -> bool {
    text(claim, "/spec/dataSource/name") == original.name
}

/// A claim is to be a copy of what cannot be copied: only users can change that.
fn waits_for_original(store: &Store, world: &World, name: &ObjectName, claim: &Value) -> bool {
    let of = text(claim, "/spec/dataSource/name");
    if of.is_empty() {
        return false;
    }
    if text(claim, "/spec/dataSource/kind") == "VolumeSnapshot" {
        return snapshots::waits(store, name, claim);
    }
    let original = store.get(Kind::Claim, &ObjectName::new(&name.namespace, of));
    let fits = |original: &&std::rc::Rc<Value>| {
        let volume = store.get(Kind::Volume, &ObjectName::new("", text(original, "/spec/volumeName")));
        let size = &claim["spec"]["resources"]["requests"]["storage"];
        let same = text(original, "/spec/storageClassName") == text(claim, "/spec/storageClassName");
        let there = volume.is_some_and(|volume| !is_deleting(volume) && volume["spec"]["capacity"]["storage"] == *size);
        let node = volume.and_then(|volume| world.made.get(uid(volume))).map_or("", |(_, node)| node);
        let there = there && (node.is_empty() || store.get(Kind::Node, &ObjectName::new("", node)).is_some());
        is_bound(original) && same && there && (!is_deleting(original) || is_kept(original, claim))
    };
    original.filter(fits).is_none()
}

/// The volume that was made for a claim is in use by another, and an admin has deleted it: it goes with that claim, and
/// nothing can be made in its place before. Nor can the claim go, which alone has its storage deleted then.
fn waits_for_other_claim(store: &Store, claim: &Value) -> bool {
    let claimed_by_other = annotation(claim, names::VOLUME_GENERATION).parse().unwrap_or(0);
    let volume = |id: String| store.get(Kind::Volume, &ObjectName::new("", names::pv_name(&id)));
    let mut volumes = volume_ids(uid(claim), claimed_by_other).filter_map(volume);
    volumes.any(|volume| is_deleting(volume) && text(volume, "/spec/claimRef/uid") != uid(claim))
}

/// A claim is kept until a copy of it is made.
fn is_kept(original: &Value, copy: &Value) -> bool {
    has_finalizer(original, &names::clone_finalizer(uid(copy)))
}

/// The Job of an attempt must work by the version of the config that its claim has noted.
fn other_version(store: &Store, job: &Value) -> Option<String> {
    let id = label(job, names::LABEL_CLAIM_UUID);
    let of = |claim: &Value| {
        id.starts_with(uid(claim))
            && annotation(claim, names::CLAIM_UUID) == uid(claim)
            && annotation(claim, names::ATTEMPT) == label(job, names::LABEL_ATTEMPT)
    };
    let provisions = label(job, names::LABEL_OPERATION) == "provision";
    let (name, claim) = store.all(Kind::Claim).find(|(_, claim)| provisions && of(claim))?;
    let version = annotation(claim, names::CONFIG);
    let hash = version.rsplit('@').next().unwrap_or_default();
    let kept = store.get(Kind::Revision, &ObjectName::new(SYSTEM, revision_name(hash)));
    let noted = kept.map_or("", |kept| text(kept, "/data/data/image"));
    let image = text(job, "/spec/template/spec/containers/0/image");
    (noted != image).then(|| format!("claim {name} has noted {version}, image {noted:?}, and its Job runs {image}"))
}

/// What was to stay, of a claim that has another volume, and from which the PV controller has taken that claim: anybody may
/// claim it, also after an admin has given it another policy.
fn is_free(volume: &Value) -> bool {
    let provenance: Value = serde_json::from_str(annotation(volume, names::PROVENANCE)).unwrap_or_default();
    volume["spec"]["claimRef"].is_null() && text(&provenance, "/data/reclaim-policy") == "Retain"
}

/// At the end, when all has come to rest: what must be. `waived` is storage that was left on purpose.
pub fn check_end(store: &Store, world: &World, waived: &BTreeSet<StorageKey>, told: bool) -> Vec<Violation> {
    let mut all = Vec::new();
    let mut wrong = |guarantee: Guarantee, what: String| all.push(Violation { guarantee, what });
    let mut needed: BTreeSet<&StorageKey> = BTreeSet::new();
    // What is on a node that is gone waits, noted on its volume, until that is released.
    let mut noted: BTreeSet<StorageKey> = BTreeSet::new();
    let gone = |node: &&str| store.get(Kind::Node, &ObjectName::new("", *node)).is_none();
    for (name, volume) in store.all(Kind::Volume).filter(|(name, _)| is_ours(name)) {
        let reference = &volume["spec"]["claimRef"];
        let claim_name = ObjectName::new(text(reference, "/namespace"), text(reference, "/name"));
        let claim = store.get(Kind::Claim, &claim_name).filter(|claim| uid(claim) == text(reference, "/uid"));
        let bound = claim.is_some_and(|claim| text(claim, "/spec/volumeName") == name.name);
        let retained = text(volume, "/spec/persistentVolumeReclaimPolicy") != "Delete" || is_free(volume);
        if !bound && !retained && !pools::is_ready(volume) {
            wrong(Guarantee::Leaked, format!("volume {} is nobody's", name.name));
        }
        if is_deleting(volume) && !bound {
            wrong(Guarantee::Stuck, format!("volume {} does not go", name.name));
        }
        // What attempts left on a node that is gone is still to be deleted there.
        let noted_on_gone = annotation(volume, names::NODES).split(',').any(|node| !node.is_empty() && gone(&node));
        let held = (bound && is_deleting(volume)) || noted_on_gone;
        if retained && has_finalizer(volume, names::VOLUME_FINALIZER) && !held {
            wrong(Guarantee::Stuck, format!("volume {} is retained, and has our finalizer", name.name));
        }
        needed.extend(world.made.get(uid(volume)));
        let nodes = annotation(volume, names::NODES).split(',').filter(gone);
        noted.extend(nodes.map(|node| (annotation(volume, names::VOLUME_ID).to_owned(), node.to_owned())));
    }
    // What attempts left of a claim that is held goes with it. That it waits for ever is looked at below.
    let held = |(id, _): &StorageKey| {
        let of = |claim: &Value| id.starts_with(uid(claim)) && !is_bound(claim);
        store.all(Kind::Claim).any(|(_, claim)| of(claim) && has_finalizer(claim, names::CLAIM_FINALIZER))
    };
    for location in &world.backend {
        if !needed.contains(location) && !noted.contains(location) && !waived.contains(location) && !held(location) {
            wrong(Guarantee::Leaked, format!("storage {location:?} has no volume"));
        }
    }
    for (name, claim) in store.all(Kind::Claim).filter(|(name, _)| is_ours(name)) {
        let phase = text(claim, "/status/phase");
        let volume = store.get(Kind::Volume, &ObjectName::new("", text(claim, "/spec/volumeName")));
        let copies = || store.all(Kind::Claim).filter(|(of, _)| of.namespace == name.namespace);
        let kept = || copies().any(|(_, copy)| is_copy_of(copy, name) && has_finalizer(copy, names::CLAIM_FINALIZER));
        if is_deleting(claim) && !kept() && !waits_for_other_claim(store, claim) {
            wrong(Guarantee::Stuck, format!("claim {name} does not go"));
        } else if !is_deleting(claim)
            && !is_bound(claim)
            && !waits_for_original(store, world, name, claim)
            && !waits_for_other_claim(store, claim)
            && !waits_for_quota(store, world, claim)
        {
            wrong(Guarantee::Stuck, format!("claim {name} is {phase}"));
        } else if is_bound(claim)
            && has_finalizer(claim, names::CLAIM_FINALIZER)
            && !volume.is_some_and(cannot_be_held)
            && !waits_for_other_claim(store, claim)
        {
            wrong(Guarantee::Stuck, format!("claim {name} is bound, and has our finalizer"));
        }
        let finalizers = claim["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for copy in finalizers.filter_map(|finalizer| finalizer.strip_prefix(names::CLONE_FINALIZER)) {
            let there = copies().any(|(_, claim)| uid(claim) == copy && has_finalizer(claim, names::CLAIM_FINALIZER));
            if !there {
                wrong(Guarantee::Stuck, format!("claim {name} is kept for the copy {copy}, which needs it no more"));
            }
        }
        let about = |event: &Value| text(event, "/involvedObject/uid") == uid(claim);
        // What found a volume without us, be it one that was made for another, has nothing to be told.
        let begun = has_begun(claim);
        let waits = !is_bound(claim) && waits_for_quota(store, world, claim);
        if told && (begun || waits) && !store.all(Kind::Event).any(|(_, event)| about(event)) {
            wrong(Guarantee::Stuck, format!("nothing was told on claim {name}"));
        }
        let requested = &claim["spec"]["resources"]["requests"]["storage"];
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
        // A user may have copied them, and a stamp overwrites them.
        if begun && !annotation(claim, names::NODES).is_empty() && !has_finalizer(claim, names::CLAIM_FINALIZER) {
            wrong(Guarantee::Stuck, format!("claim {name} still lists nodes"));
        }
    }
    for (broken, what) in snapshots::check_end(store, world, waived).into_iter().chain(pools::check_end(store, world)) {
        wrong(broken, what);
    }
    for kind in [Kind::Job, Kind::Pod] {
        for (name, _) in store.all(kind).filter(|(name, _)| is_ours(name)) {
            wrong(Guarantee::Leaked, format!("{kind:?} {name} is left"));
        }
    }
    all
}

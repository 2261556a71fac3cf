//! The running count against one that goes through everything, whatever has come, changed and gone.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use proptest::prelude::*;
use serde_json::json;

use super::super::tests::index;
use super::super::{Change, Index};
use super::*;
use crate::object::ObjectName;
use crate::run::view::Marks;

const CLASSES: [&str; 2] = ["c", "d"];

/// What is taken of a class, as the API says it and the promises.
fn counted(index: &Index, class: &str) -> Taken {
    let mut taken = Taken::default();
    let mut counted: HashSet<&str> = HashSet::new();
    for volume in index.volumes.values().filter(|volume| volume.class == class && volume.is_of(&index.identity)) {
        counted.extend(volume.id());
        counted.extend(volume.claim_uuid.as_deref());
        let reference = volume.claim_ref.as_ref().filter(|reference| !reference.uid.is_empty());
        let claim = volume.claim_uuid.as_ref().and_then(|uid| index.claim_by_id.get(uid));
        let namespace = reference.map(|reference| &reference.name).or(claim).map(|name| name.namespace.as_str());
        taken.add(namespace.unwrap_or_default(), index.bytes_of(volume));
    }
    for claim in index.claims.values().filter(|claim| claim.class.as_deref() == Some(class)) {
        let own = claim.volume_name.as_ref().is_none_or(|volume| *volume == names::pv_name(&claim.id()));
        let begun = claim.own_stamp().is_some() && own;
        if begun && !counted.contains(claim.uid.as_str()) && !counted.contains(claim.id().as_str()) {
            taken.add(&claim.name.namespace, claim.size.as_ref().copied().unwrap_or_default());
        }
    }
    for (uid, promise) in index.promised.iter().filter(|(_, promise)| promise.part.class == class) {
        let is_there = index.claims.values().any(|claim| claim.uid == *uid);
        if is_there && !counted.contains(uid.as_str()) {
            taken.add(&promise.part.namespace, promise.part.bytes);
        }
    }
    taken
}

#[derive(Clone, Debug)]
enum Deed {
    Claim { claim: u8, again: bool, class: u8, stamp: u8, bound: bool, size: u8 },
    ClaimGone(u8),
    Volume { claim: u8, again: bool, taken: u8, class: u8, size: u8, reference: u8, named: bool, theirs: bool },
    VolumeGone { claim: u8, again: bool, taken: u8 },
    Promise(u8),
    TakeBack(u8),
    Grow { claim: u8, size: u8 },
    Growth { claim: u8, size: u8, end: u8 },
}

fn deeds() -> impl Strategy<Value = Deed> {
    let claim = || 0..3u8;
    prop_oneof![
        (claim(), any::<bool>(), 0..2u8, 0..3u8, any::<bool>(), 1..4u8).prop_map(
            |(claim, again, class, stamp, bound, size)| Deed::Claim { claim, again, class, stamp, bound, size }
        ),
        claim().prop_map(Deed::ClaimGone),
        (claim(), any::<bool>(), 0..2u8, 0..2u8, 1..4u8, 0..3u8, any::<bool>(), any::<bool>()).prop_map(
            |(claim, again, taken, class, size, reference, named, theirs)| Deed::Volume {
                claim,
                again,
                taken,
                class,
                size,
                reference,
                named,
                theirs: theirs && !named
            }
        ),
        (claim(), any::<bool>(), 0..2u8).prop_map(|(claim, again, taken)| Deed::VolumeGone { claim, again, taken }),
        claim().prop_map(Deed::Promise),
        claim().prop_map(Deed::TakeBack),
        (claim(), 1..9u8).prop_map(|(claim, size)| Deed::Grow { claim, size }),
        (claim(), 1..9u8, 0..3u8).prop_map(|(claim, size, end)| Deed::Growth { claim, size, end }),
    ]
}

fn name(claim: u8) -> ObjectName {
    ObjectName::new(format!("team-{}", claim % 2), format!("claim-{claim}"))
}

/// A claim of the same name comes again with another UID.
fn uid(claim: u8, again: bool) -> String {
    format!("0d9c2f0e-0000-4000-8000-00000000000{}", claim + if again { 4 } else { 0 })
}

fn id(claim: u8, again: bool, taken: u8) -> String {
    crate::claim::volume_id(&uid(claim, again), taken.into())
}

impl Deed {
    fn on(&self, index: &mut Index) {
        let gi = |size: u8| format!("{size}Gi");
        match *self {
            Deed::Claim { claim, again, class, stamp, bound, size } => {
                let uid = uid(claim, again);
                let taken = u32::from(stamp == 2);
                let stamped = json!({ names::CLAIM_UUID: uid, names::ATTEMPT: "1", names::TAKEN: taken.to_string() });
                let volume = bound.then(|| names::pv_name(&crate::claim::volume_id(&uid, taken)));
                let object: PersistentVolumeClaim = serde_json::from_value(json!({
                    "metadata": {
                        "name": name(claim).name, "namespace": name(claim).namespace, "uid": uid,
                        "annotations": if stamp > 0 { stamped } else { json!({}) },
                    },
                    "spec": {
                        "storageClassName": CLASSES[usize::from(class)], "volumeName": volume,
                        "resources": { "requests": { "storage": gi(size) } },
                    },
                }))
                .unwrap();
                index.change_claim(Change::Apply((&object).into()));
            }
            Deed::ClaimGone(claim) => drop(index.change_claim(Change::Delete(name(claim)))),
            Deed::Volume { claim, again, taken, class, size, reference, named, theirs } => {
                let (by, label) =
                    if theirs { ("other", json!({})) } else { ("p", json!({ names::LABEL_INSTANCE: "i" })) };
                let (of, uid) = (name(claim), uid(claim, again));
                let reference = match reference {
                    0 => json!(null),
                    1 => json!({ "namespace": "own", "name": uid }),
                    _ => json!({ "namespace": of.namespace, "name": of.name, "uid": uid }),
                };
                let id = id(claim, again, taken);
                let volume: PersistentVolume = serde_json::from_value(json!({
                    "metadata": {
                        "name": names::pv_name(&id), "labels": label,
                        "annotations": {
                            names::CLAIM_UUID: if named { id.clone() } else { uid }, names::PROVISIONED_BY: by,
                        },
                    },
                    "spec": {
                        "storageClassName": CLASSES[usize::from(class)], "capacity": { "storage": gi(size) },
                        "claimRef": reference,
                    },
                }))
                .unwrap();
                index.change_volume(Change::Apply((&volume).into()));
            }
            Deed::VolumeGone { claim, again, taken } => {
                let name = ObjectName::new("", names::pv_name(&id(claim, again, taken)));
                index.change_volume(Change::Delete(name));
            }
            Deed::Promise(claim) => {
                if let Some(claim) = index.claim(&name(claim)) {
                    index.promise(&claim, claim.class.as_deref().unwrap());
                }
            }
            Deed::TakeBack(claim) => {
                if let Some(claim) = index.claim(&name(claim)) {
                    index.take_back(&claim);
                }
            }
            Deed::Grow { claim, size } => {
                index.promise_growth(&names::pv_name(&uid(claim, false)), u64::from(size) << 30);
            }
            Deed::Growth { claim, size, end } => {
                let id = uid(claim, false);
                let marks = Marks { operation: "expand".into(), id: id.clone(), attempt: 1, class: "c".into() };
                let name = ObjectName::new("own", format!("expand-{claim}"));
                let (volume, size) = (Some(names::pv_name(&id)), Some(u64::from(size) << 30));
                let job = Job { name: name.clone(), volume, size, marks, over: end == 1, ..Job::default() };
                match end {
                    2 => drop(index.change_job(Change::Delete(name))),
                    _ => drop(index.change_job(Change::Apply(job))),
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_running_count_is_that_of_all_there_is(deeds in prop::collection::vec(deeds(), 1..24)) {
        let mut index = index();
        for (at, deed) in deeds.iter().enumerate() {
            deed.on(&mut index);
            for class in CLASSES {
                prop_assert_eq!(index.taken(class), counted(&index, class), "class {} after {:?}", class, &deeds[..=at]);
            }
        }
    }
}

//! Users who request a larger size, and other attributes.

use std::rc::Rc;

use flex_core::object::ObjectName;
use serde_json::{Value, json};

use super::{ATTRIBUTES, Actors};
use crate::rng::Rng;
use crate::store::{Kind, Store, text};
use crate::trace::{count, line};

impl Actors {
    /// Changes the VolumeAttributesClass of a claim, or changes it back.
    pub(super) fn modify(store: &mut Store, rng: &mut Rng) {
        let bound = Actors::bound(store);
        if bound.is_empty() {
            return;
        }
        let (name, claim) = rng.pick(&bound);
        let current = text(claim, "/status/currentVolumeAttributesClassName");
        let (none, in_progress) = (current.is_empty(), !claim["status"]["modifyVolumeStatus"].is_null());
        let class = match rng.below(if none { 3 } else { 2 }) {
            // The user changes it once more.
            _ if in_progress && rng.permille(500) && !none => json!(current),
            _ if in_progress && none => json!(null),
            at @ 0..=1 => json!(ATTRIBUTES[at]),
            _ => json!(null),
        };
        line(|| format!("user: claim {name} asks for the attributes {class}"));
        count("requests for other attributes");
        store.update(Kind::Claim, name, |claim| claim["spec"]["volumeAttributesClassName"] = class);
    }

    /// Lists the bound claims whose volumes can be changed.
    fn bound(store: &Store) -> Vec<(ObjectName, Rc<Value>)> {
        let mut bound = Actors::claims(store);
        bound.retain(|(_, claim)| {
            text(claim, "/status/phase") == "Bound"
                && !matches!(text(claim, "/spec/storageClassName"), "local" | "loose" | "pure")
        });
        bound
    }

    /// Requests a larger size.
    pub(super) fn expand(store: &mut Store, rng: &mut Rng) {
        let bound = Actors::bound(store);
        if bound.is_empty() {
            return;
        }
        let (name, claim) = rng.pick(&bound);
        let size = if text(claim, "/spec/resources/requests/storage") == "1Gi" { "2Gi" } else { "4Gi" };
        line(|| format!("user: claim {name} asks for {size}"));
        count("requests for a larger size");
        store.update(Kind::Claim, name, |claim| claim["spec"]["resources"]["requests"]["storage"] = json!(size));
    }
}

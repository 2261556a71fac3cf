//! What attempts for claims that are gone may have made, and somebody may keep.

use flex_contract::names;

use super::finding::Finding;
use super::kind::FindingKind;
use crate::model::object_ref::ObjectRef;
use crate::model::record::Record;

/// The most claims that the text names.
const NAMED: usize = 3;

/// Returns the finding about a record, if it says that somebody may keep something.
pub(super) fn kept(record: &Record) -> Option<Finding> {
    let claims: Vec<_> = record.kept().collect();
    let class = claims.first()?.class.as_deref().unwrap_or_default();
    let list = |text: Vec<String>| match claims.len().saturating_sub(NAMED) {
        0 => text.join(", "),
        more => format!("{} and {more} more", text.join(", ")),
    };
    let named = list(claims.iter().take(NAMED).map(|claim| claim.name.to_string()).collect());
    let ids = list(claims.iter().take(NAMED).map(|claim| claim.volume_id()).collect());
    let uids: Vec<&str> = claims.iter().map(|claim| claim.uid.as_str()).collect();
    // Claims that exist need the record.
    let whom = if record.unsettled().next().is_none() { names::ABANDON_YES.to_owned() } else { uids.join(",") };
    let object = ObjectRef { kind: ObjectRef::RECORD, name: record.name.clone(), uid: record.uid.clone() };
    let detail = format!(
        "attempts for deleted claims may have made storage that somebody keeps: nobody saw whether they had a volume, and class {class} kept storage when they began (reclaim policy Retain), or their config is not known any more: {named}"
    );
    let remedy = format!(
        "look on the backend for storage of these ids, and delete by hand what nobody needs: {ids}; then {}",
        record.name.abandon_command("controllerrevision", &whom)
    );
    Some(Finding::new(FindingKind::StorageKept, object, detail, remedy))
}

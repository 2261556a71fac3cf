//! The check whether the driver's volume is the requested one. It is pure.

use csi_spec::csi::{CreateVolumeRequest, Volume};

use crate::topology::{Node, is_where_asked};

/// The fault of the driver's volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The volume differs from the request.
    Volume(String),
    /// The volume is somewhere else.
    Location(String),
}

/// Compares the volume with the request. `topology_optional` says that the volume need not state its place.
///
/// # Errors
/// If the volume is not the requested one.
pub fn check(
    volume: &Volume,
    request: &CreateVolumeRequest,
    selected: Option<&Node>,
    topology_optional: bool,
) -> Result<(), Wrong> {
    let wrong = |what: String| Err(Wrong::Volume(what));
    let range = request.capacity_range.unwrap_or_default();
    // Zero means that the size is not known.
    if volume.capacity_bytes != 0 && volume.capacity_bytes < range.required_bytes {
        return wrong(format!("it has {} bytes, and {} were asked for", volume.capacity_bytes, range.required_bytes));
    }
    if range.limit_bytes != 0 && volume.capacity_bytes > range.limit_bytes {
        return wrong(format!(
            "it has {} bytes, and no more than {} were asked for",
            volume.capacity_bytes, range.limit_bytes
        ));
    }
    match (&request.volume_content_source, &volume.content_source) {
        (Some(_), None) => return wrong("it does not say what it was made from, and may be empty".into()),
        (Some(asked), Some(made)) if asked != made => {
            return wrong("it was made from something else than was asked for".into());
        }
        (None, Some(_)) => return wrong("it was made from something, and an empty one was asked for".into()),
        _ => {}
    }
    let Some(asked) = &request.accessibility_requirements else { return Ok(()) };
    match volume.accessible_topology.as_slice() {
        [] if topology_optional => Ok(()),
        [] => wrong(
            "it does not say where it can be reached, and the driver says that not every node reaches every volume. If those that \
             say nothing are reached by all nodes, set csi-topology-optional: \"true\""
                .into(),
        ),
        found if is_where_asked(found, asked, selected) => Ok(()),
        found => {
            let locations: Vec<String> = found.iter().map(|topology| format!("{:?}", topology.segments)).collect();
            let node = selected.map_or("the nodes that it is for", |node| node.name.as_str());
            Err(Wrong::Location(format!("it is reached from {}, and not from {node}", locations.join(" or "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use csi_spec::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
    use csi_spec::csi::{CapacityRange, Topology, TopologyRequirement, VolumeContentSource};

    use super::*;

    fn segments(zone: &str) -> BTreeMap<String, String> {
        [("zone".to_owned(), zone.to_owned())].into()
    }

    fn snapshot(id: &str) -> Option<VolumeContentSource> {
        Some(VolumeContentSource { r#type: Some(Type::Snapshot(SnapshotSource { snapshot_id: id.into() })) })
    }

    fn copy(id: &str) -> Option<VolumeContentSource> {
        Some(VolumeContentSource { r#type: Some(Type::Volume(VolumeSource { volume_id: id.into() })) })
    }

    #[test]
    fn size_and_source_are_the_requested_ones() {
        for (required, limit, bytes, asked, made, says) in [
            (10, 0, 10, None, None, None),
            (10, 0, 11, None, None, None),
            (10, 0, 0, None, None, None),
            (10, 20, 20, None, None, None),
            (10, 0, 9, None, None, Some("it has 9 bytes, and 10")),
            (10, 20, 21, None, None, Some("no more than 20")),
            (10, 0, 10, snapshot("s"), snapshot("s"), None),
            (10, 0, 10, copy("v"), copy("v"), None),
            (10, 0, 10, snapshot("s"), None, Some("may be empty")),
            (10, 0, 10, snapshot("s"), snapshot("t"), Some("something else")),
            (10, 0, 10, copy("s"), snapshot("s"), Some("something else")),
            (10, 0, 10, None, copy("v"), Some("an empty one")),
        ] {
            let request = CreateVolumeRequest {
                capacity_range: Some(CapacityRange { required_bytes: required, limit_bytes: limit }),
                volume_content_source: asked,
                ..Default::default()
            };
            let volume = Volume { capacity_bytes: bytes, content_source: made, ..Default::default() };
            match (check(&volume, &request, None, false), says) {
                (Ok(()), None) => {}
                (Err(Wrong::Volume(found)), Some(says)) => assert!(found.contains(says), "{found}"),
                (found, says) => panic!("{found:?} {says:?}"),
            }
        }
    }

    #[test]
    fn the_topology_is_the_requested_one() {
        let node = Node { name: "n1".into(), labels: segments("a"), keys: vec!["zone".into()] };
        let asked = TopologyRequirement { requisite: vec![Topology { segments: segments("a") }], preferred: vec![] };
        let location = |zone: &str| vec![Topology { segments: segments(zone) }];
        for (requirement, found, selected, optional, expected) in [
            (None, vec![], None, false, Ok(())),
            (None, location("b"), None, false, Ok(())),
            (Some(asked.clone()), location("a"), Some(&node), false, Ok(())),
            (Some(asked.clone()), location("b"), Some(&node), false, Err("and not from n1")),
            (Some(asked.clone()), location("b"), None, false, Err("the nodes that it is for")),
            (Some(asked.clone()), vec![], None, false, Err("does not say where")),
            (Some(asked), vec![], Some(&node), true, Ok(())),
        ] {
            let request = CreateVolumeRequest { accessibility_requirements: requirement, ..Default::default() };
            let volume = Volume { accessible_topology: found, ..Default::default() };
            match (check(&volume, &request, selected, optional), expected) {
                (Ok(()), Ok(())) => {}
                (Err(Wrong::Volume(found) | Wrong::Location(found)), Err(says)) => {
                    assert!(found.contains(says), "{found}")
                }
                (found, expected) => panic!("{found:?} {expected:?}"),
            }
        }
    }
}

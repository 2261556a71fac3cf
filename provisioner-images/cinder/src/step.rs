//! The next step for a volume, by Cinder's description. The functions are pure.
//!
//! To provide a volume:
//!
//! | status in Cinder | next step |
//! |---|---|
//! | there is no volume | create it |
//! | `available` | reserve it |
//! | `attaching` | connect to it, then create the PersistentVolume |
//! | `error` | delete it, because the next one may be better. A run that made a few such volumes reports that Cinder could not |
//! | `error_deleting` | delete it by force, which only admins may |
//! | `in-use`, `reserved`, `detaching` | somebody else has it: report |
//! | `error_…` otherwise | report: only an admin can help |
//! | all others: `creating`, `deleting`, `extending`, … | wait |
//!
//! Cinder goes on with the request of a run that has died, so its volume may appear only after the next run has looked for
//! one, and asked for another. Of several volumes with one id the best counts, and the others are deleted.
//!
//! To delete a volume:
//!
//! | status in Cinder | next step |
//! |---|---|
//! | `attaching`, `reserved`, `available` | disconnect, unreserve, delete. An `available` volume can have a connection too, because expansions and copies unreserve it for a moment |
//! | `error`, `error_extending`, `error_restoring`, `error_managing` | delete |
//! | `error_deleting` | delete by force; report if this run has already tried |
//! | `in-use`, `detaching` | somebody else has attached it: report |
//! | other `error_…` | report |
//! | all others | wait: Cinder forgets a volume that is deleted while it is made, and the backend keeps it |

use flex_image_kit::Failure;

use crate::api::Volume;

/// The next step to provide a volume.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Creates the volume.
    Create,
    /// Looks again soon.
    Wait(&'a Volume),
    /// Marks the volume as being attached.
    Reserve(&'a Volume),
    /// Opens the volume to nodes, because it is ready.
    Connect(&'a Volume),
    /// Deletes a second volume, whatever its state.
    Remove(&'a Volume),
    /// Deletes the only volume, which Cinder could not make, and begins again.
    Remake(&'a Volume),
    /// Fails, because no step helps.
    Stop(Failure),
}

/// The next step to delete a volume.
#[derive(Debug, PartialEq, Eq)]
pub enum Removal {
    /// Looks again soon.
    Wait,
    /// Disconnects, unreserves and deletes the volume.
    Close,
    /// Deletes the volume.
    Delete,
    /// Deletes the volume in any state.
    Force,
    /// Fails, because no step helps.
    Stop(Failure),
}

/// Decides the next step to provide the one volume among those with its id.
pub fn provide(volumes: &[Volume]) -> Step<'_> {
    let Some(best) = volumes.iter().min_by_key(|volume| (rank(volume), &volume.created_at, &volume.id)) else {
        return Step::Create;
    };
    if let Some(other) = volumes.iter().find(|volume| volume.id != best.id) {
        // A run that died did not leave two volumes that are both open to nodes.
        return match (removal(other, false), other.status.as_str()) {
            (Removal::Wait, _) => Step::Wait(other),
            (_, "attaching") => Step::Stop(Failure::never(format!(
                "two volumes in Cinder are for this claim and both are being attached, {} and {}: look which of them is in use, \
                 and take the metadata {} off the other",
                best.id,
                other.id,
                crate::names::METADATA_VOLUME_ID
            ))),
            (Removal::Stop(failure), _) => Step::Stop(failure),
            _ => Step::Remove(other),
        };
    }
    match best.status.as_str() {
        "available" => Step::Reserve(best),
        "attaching" => Step::Connect(best),
        "error" | "error_deleting" => Step::Remake(best),
        "in-use" | "reserved" | "detaching" => Step::Stop(foreign(best)),
        status if status.starts_with("error") => Step::Stop(stuck(best)),
        _ => Step::Wait(best),
    }
}

fn rank(volume: &Volume) -> u8 {
    match volume.status.as_str() {
        "attaching" | "in-use" | "reserved" => 0,
        "available" => 1,
        "error" | "error_deleting" | "deleting" => 3,
        _ => 2,
    }
}

/// Decides the next step to delete a volume. `tried` says that this run has already asked Cinder to delete it.
pub fn removal(volume: &Volume, tried: bool) -> Removal {
    match volume.status.as_str() {
        "available" | "attaching" | "reserved" => Removal::Close,
        "error" | "error_extending" | "error_restoring" | "error_managing" => Removal::Delete,
        "error_deleting" if tried => Removal::Stop(Failure::retry(format!(
            "Cinder could not delete volume {}: it is `error_deleting`; the log of cinder-volume says why. It is tried again",
            volume.id
        ))),
        "error_deleting" => Removal::Force,
        "in-use" | "detaching" => Removal::Stop(foreign(volume)),
        status if status.starts_with("error") => Removal::Stop(stuck(volume)),
        _ => Removal::Wait,
    }
}

fn foreign(volume: &Volume) -> Failure {
    Failure::retry(format!(
        "volume {} is `{}` in Cinder: somebody attached it to something else than Kubernetes; detach it there (openstack server \
         remove volume)",
        volume.id, volume.status
    ))
}

fn stuck(volume: &Volume) -> Failure {
    Failure::retry(format!(
        "volume {} is `{}` in Cinder: an admin must look at it there, and then set its state (cinder reset-state)",
        volume.id, volume.status
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(id: &str, status: &str) -> Volume {
        Volume { id: id.into(), status: status.into(), created_at: id.into(), ..Volume::default() }
    }

    fn message(step: &Step<'_>) -> String {
        match step {
            Step::Create => "create".into(),
            Step::Wait(of) => format!("wait {}", of.id),
            Step::Reserve(of) => format!("reserve {}", of.id),
            Step::Connect(of) => format!("connect {}", of.id),
            Step::Remove(of) => format!("remove {}", of.id),
            Step::Remake(of) => format!("remake {}", of.id),
            Step::Stop(failure) => format!("stop {}", failure.code),
        }
    }

    #[test]
    fn every_state_has_its_next_step() {
        for (states, expected) in [
            (vec![], "create"),
            (vec!["creating"], "wait a"),
            (vec!["downloading"], "wait a"),
            (vec!["available"], "reserve a"),
            (vec!["attaching"], "connect a"),
            (vec!["error"], "remake a"),
            (vec!["error_deleting"], "remake a"),
            (vec!["deleting"], "wait a"),
            (vec!["extending"], "wait a"),
            (vec!["something-new"], "wait a"),
            (vec!["in-use"], "stop 75"),
            (vec!["reserved"], "stop 75"),
            (vec!["error_extending"], "stop 75"),
            (vec!["creating", "creating"], "wait b"),
            (vec!["creating", "available"], "wait a"),
            (vec!["creating", "error"], "remove b"),
            (vec!["available", "available"], "remove b"),
            (vec!["error", "attaching"], "remove a"),
            (vec!["deleting", "available"], "wait a"),
            (vec!["attaching", "attaching"], "stop 65"),
            (vec!["in-use", "attaching"], "stop 65"),
            (vec!["error_deleting", "error"], "remove b"),
        ] {
            let volumes: Vec<_> = states.iter().zip(["a", "b"]).map(|(status, id)| volume(id, status)).collect();
            assert_eq!(message(&provide(&volumes)), expected, "{states:?}");
            // The order of Cinder's list does not matter.
            let turned: Vec<_> = volumes.iter().rev().cloned().collect();
            assert_eq!(message(&provide(&turned)), expected, "{states:?} turned");
        }
    }

    #[test]
    fn every_state_has_its_way_out() {
        for (status, tried, expected) in [
            ("available", false, "close"),
            ("attaching", false, "close"),
            ("reserved", false, "close"),
            ("error", false, "delete"),
            ("error_extending", false, "delete"),
            ("error_deleting", false, "force"),
            ("error_deleting", true, "stop"),
            ("error_backing-up", false, "stop"),
            ("in-use", false, "stop"),
            ("creating", false, "wait"),
            ("deleting", true, "wait"),
            ("extending", false, "wait"),
        ] {
            let message = match removal(&volume("a", status), tried) {
                Removal::Wait => "wait",
                Removal::Close => "close",
                Removal::Delete => "delete",
                Removal::Force => "force",
                Removal::Stop(_) => "stop",
            };
            assert_eq!(message, expected, "{status}");
        }
    }
}

//! The check whether a volume is the one of the member that hands it over. It is pure.

use flex_contract::names::{CLAIM_UID, PROVISIONED_BY, VOLUME_ID};
use flex_contract::request::RunRequest;
use flex_contract::volume::{Made, persistent_volume};
use k8s_openapi::api::core::v1::PersistentVolume;

use crate::Failure;
use crate::flex_pv::is_asked_for;

/// Checks that the volume has the name, the labels, the claimRef and the annotations that the member's own volume has.
///
/// # Errors
/// If it differs. The message says in what.
pub(super) fn is_its_own(request: &RunRequest, volume: &PersistentVolume) -> Result<(), Failure> {
    is_asked_for(request, true)?;
    let own = persistent_volume(request, Made::default());
    let annotation = |volume: &PersistentVolume, name: &str| volume.metadata.annotations.as_ref()?.get(name).cloned();
    let claim_ref = |volume: &PersistentVolume| volume.spec.as_ref()?.claim_ref.clone();
    let differs = [
        ("name", volume.metadata.name != own.metadata.name),
        ("label", volume.metadata.labels != own.metadata.labels),
        ("claimRef", claim_ref(volume) != claim_ref(&own)),
    ];
    let annotations = [CLAIM_UID, VOLUME_ID, PROVISIONED_BY];
    let annotations = annotations.map(|name| (name, annotation(volume, name) != annotation(&own, name)));
    let differs: Vec<_> = differs.into_iter().chain(annotations).filter(|(_, differs)| *differs).collect();
    if differs.is_empty() {
        return Ok(());
    }
    let differs: Vec<_> = differs.into_iter().map(|(what, _)| what).collect();
    Err(Failure::usage(format!(
        "PersistentVolume {} is not the volume of this program's claim, which has the CLAIM_UUID {} and the PV_NAME {}: \
         it differs in {}; leave the variables of the claim as they are",
        volume.metadata.name.as_deref().unwrap_or_default(),
        request.volume_id,
        request.pv_name,
        differs.join(", "),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: &str, operation: &str) -> RunRequest {
        RunRequest::from_env(|name| match name {
            "OPERATION" => Some(operation.into()),
            "SIZE_BYTES" => Some("1".into()),
            "CLAIM_UUID" | "PVC_UID" => Some(id.into()),
            "PV_NAME" => Some(format!("pvc-{id}")),
            "STORAGE_CLASS" | "PROVISIONER" | "INSTANCE" => Some("x".into()),
            _ => None,
        })
        .unwrap()
    }

    #[test]
    fn a_volume_of_another_claim_is_refused_in_whatever_it_differs() {
        type Change = fn(&mut PersistentVolume);
        let changes: [(&str, Change); 6] = [
            ("name", |volume| volume.metadata.name = Some("pvc-b".into())),
            ("label", |volume| volume.metadata.labels = None),
            ("claimRef", |volume| volume.spec.as_mut().unwrap().claim_ref = None),
            (CLAIM_UID, |volume| drop(volume.metadata.annotations.as_mut().unwrap().remove(CLAIM_UID))),
            (VOLUME_ID, |volume| {
                volume.metadata.annotations.as_mut().unwrap().insert(VOLUME_ID.into(), "b".into());
            }),
            (PROVISIONED_BY, |volume| volume.metadata.annotations = None),
        ];
        let own = request("a", "provision");
        let made = Made { annotations: [("team".to_owned(), "x".to_owned())].into(), ..Made::default() };
        let volume = persistent_volume(&own, made);
        assert_eq!(is_its_own(&own, &volume), Ok(()));
        for (what, change) in changes {
            let mut other = volume.clone();
            change(&mut other);
            let refused = is_its_own(&own, &other).expect_err(what);
            assert!(refused.code == 64 && refused.message.contains(what), "{what}: {refused}");
        }
        let other = persistent_volume(&request("b", "provision"), Made::default());
        assert_eq!(is_its_own(&own, &other).unwrap_err().code, 64);
    }

    #[test]
    fn a_member_of_another_operation_creates_no_volume() {
        let own = request("a", "delete");
        assert_eq!(is_its_own(&own, &persistent_volume(&own, Made::default())).unwrap_err().code, 65);
    }
}

//! The data source of a new volume: none, a snapshot, or another volume.

use flex_contract::names::{CLAIM_UID, VOLUME_ID};
use flex_contract::request::RunRequest;
use flex_contract::volume_mode::VolumeMode;
use flex_image_kit::Failure;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::api::{GIB, Snapshot, Volume};
use crate::names::{self, CLONE_REQUEST};
use crate::parameters::Parameters;
use crate::run::{Outcome, Run};
use crate::trouble::Kind;

/// The data source that the run requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedSource {
    /// No data source: the volume is empty.
    Nothing,
    /// A snapshot, by its snapshot id.
    Snapshot(String),
    /// A volume, by its volume id.
    Volume(String),
    /// The volume of a claim.
    Claim {
        /// The namespace of the claim.
        namespace: String,
        /// The name of the claim.
        name: String,
    },
}

/// The data source as it exists in Cinder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSource {
    /// No data source: the volume is empty.
    Nothing,
    /// A snapshot in Cinder.
    Snapshot(Snapshot),
    /// A volume in Cinder.
    Volume(Volume),
}

/// Reads the requested data source. The function is pure.
///
/// # Errors
/// If it is not allowed. The message says why.
pub fn wanted_source(request: &RunRequest, parameters: &Parameters) -> Result<WantedSource, Failure> {
    let asked = request.claim_metadata.get(CLONE_REQUEST).map(|text| text.trim()).filter(|text| !text.is_empty());
    let requested = match (&request.clone_of, &request.snapshot, asked) {
        (Some(source), _, _) => WantedSource::Volume(source.id.clone()),
        (None, Some(snapshot), _) => return Ok(WantedSource::Snapshot(snapshot.id.clone())),
        (None, None, Some(text)) => match text.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                WantedSource::Claim { namespace: namespace.to_owned(), name: name.to_owned() }
            }
            _ => {
                return Err(Failure::never(format!(
                    "the annotation {CLONE_REQUEST} is `{text}`: it must be namespace/claim of the claim to copy"
                )));
            }
        },
        (None, None, None) => return Ok(WantedSource::Nothing),
    };
    if !parameters.smartclone {
        return Err(Failure::config(
            "this class makes no copies: its parameter `smartclone` says whether the storage system copies by itself, and it is \
             not set. Set smartclone: \"true\" if it does, else Cinder would copy bit by bit through its own host",
        ));
    }
    if let WantedSource::Claim { namespace, .. } = &requested
        && *namespace != request.claim.namespace
        && !parameters.clone_namespaces.iter().any(|allowed| allowed == "*" || allowed == namespace)
    {
        return Err(Failure::never(format!(
            "claims of the namespace {namespace} are not copied into others: its admin names it in the parameter \
             `clone-namespaces` of the class, if they may"
        )));
    }
    Ok(requested)
}

/// Checks for a DNS name, as claims and namespaces have.
fn is_name(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !text.is_empty() && text.len() <= 253 && text.chars().all(legal) && !text.starts_with(['-', '.'])
}

/// Returns the id of the volume to which a claim is bound. This provisioner must have made the volume. The function is
/// pure.
///
/// # Errors
/// If there is no such volume. The message says why.
pub fn volume_of(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    request: &RunRequest,
) -> Result<String, Failure> {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let bound_to = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()).and_then(|claim| claim.uid.as_ref());
    if bound_to.is_none() || bound_to != claim.metadata.uid.as_ref() {
        return Err(Failure::retry(format!("the claim {name} to copy is not bound yet")));
    }
    let class = |spec: Option<&String>| spec.cloned().unwrap_or_default();
    let its_class = class(volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref()));
    if its_class != request.storage_class {
        return Err(Failure::never(format!(
            "the claim {name} to copy is of the class {its_class}: a copy is possible within one class only"
        )));
    }
    let mode = |mode: Option<&String>| VolumeMode::of(mode.map(String::as_str));
    let its_mode = mode(volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_ref()));
    if its_mode != request.volume_mode {
        return Err(Failure::never(format!("the claim {name} to copy has the volume mode {its_mode}")));
    }
    let annotations = volume.metadata.annotations.clone().unwrap_or_default();
    let id = annotations.get(VOLUME_ID).or_else(|| annotations.get(CLAIM_UID)).cloned();
    id.filter(|id| names::is_id(id)).ok_or_else(|| {
        Failure::never(format!("the volume of the claim {name} to copy was not made by this provisioner"))
    })
}

impl Run {
    /// Finds the data source in Cinder.
    ///
    /// # Errors
    /// If it does not exist, or is too large.
    pub async fn data_source(&self, requested: &WantedSource) -> Outcome<DataSource> {
        let id = match requested {
            WantedSource::Nothing => return Ok(DataSource::Nothing),
            WantedSource::Snapshot(id) => {
                let Some(snapshot) = self.find_snapshot(id).await? else {
                    return Err(Failure::never(format!("Cinder has no snapshot {id} to make the volume from")).into());
                };
                self.fits(snapshot.size, "the snapshot")?;
                return Ok(DataSource::Snapshot(snapshot));
            }
            WantedSource::Volume(id) => id.clone(),
            WantedSource::Claim { namespace, name } => {
                let claim = self.cluster.claim(namespace, name).await?;
                let Some(volume) = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()) else {
                    return Err(Failure::retry(format!("the claim {namespace}/{name} to copy is not bound yet")).into());
                };
                volume_of(&claim, &self.cluster.volume(&volume).await?, &self.request)?
            }
        };
        let volume = self.the_volume(&id).await?;
        self.fits(volume.size, "the volume to copy")?;
        Ok(DataSource::Volume(volume))
    }

    fn fits(&self, gigabytes: u64, what: &str) -> Result<(), Failure> {
        if gigabytes > self.request.size_bytes.div_ceil(GIB) {
            return Err(Failure::never(format!("{what} has {gigabytes}Gi: ask for that much, or more")));
        }
        Ok(())
    }

    /// Unreserves the source of a copy for a moment. Cinder copies only volumes that are available or in use, while all
    /// volumes here are marked as being attached. Nodes do not notice.
    ///
    /// # Errors
    /// Those of Cinder.
    pub async fn unreserve_for_copy(&self, volume: &Volume) -> Outcome<()> {
        if volume.status == "attaching" {
            self.cinder.unreserve(&volume.id).await?;
        }
        Ok(())
    }

    /// Reserves a volume again after a copy or an expansion. Another run may have done so already.
    ///
    /// # Errors
    /// Those of Cinder.
    pub async fn restore_reservation(&self, volume: &Volume) -> Outcome<()> {
        match self.cinder.reserve(&volume.id).await {
            Err(trouble) if !matches!(trouble.kind, Kind::Refused | Kind::Missing) => Err(trouble.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flex_contract::request::{CloneSource, Snapshot};

    fn request() -> RunRequest {
        let mut request = RunRequest::from_env(|name| match name {
            "OPERATION" => Some("provision".into()),
            "SIZE_BYTES" => Some("1".into()),
            "PVC_NAMESPACE" => Some("team".into()),
            "VOLUME_MODE" => Some("Filesystem".into()),
            _ => Some("x".into()).filter(|_| matches!(name, "CLAIM_UUID" | "PV_NAME" | "STORAGE_CLASS")),
        })
        .unwrap();
        request.claim.name = "copy".into();
        request
    }

    fn asking(text: &str) -> RunRequest {
        let mut request = request();
        request.claim_metadata.insert(CLONE_REQUEST.into(), text.into());
        request
    }

    #[test]
    fn a_clone_is_requested_in_two_ways_and_needs_the_admin_s_permission() {
        let smart = Parameters { smartclone: true, ..Parameters::default() };
        let open = Parameters { clone_namespaces: vec!["gold".into()], ..smart.clone() };
        let plain = Parameters::default();
        let source =
            RunRequest { clone_of: Some(CloneSource { id: "1".into(), ..CloneSource::default() }), ..request() };
        let claim =
            |namespace: &str, name: &str| Ok(WantedSource::Claim { namespace: namespace.into(), name: name.into() });
        let never = |code: i32| Err(code);
        for (request, parameters, expected) in [
            (request(), &plain, Ok(WantedSource::Nothing)),
            (source.clone(), &smart, Ok(WantedSource::Volume("1".into()))),
            (source, &plain, never(78)),
            (asking("team/data"), &smart, claim("team", "data")),
            (asking("team/data"), &plain, never(78)),
            (asking("gold/data"), &smart, never(65)),
            (asking("gold/data"), &open, claim("gold", "data")),
            (asking("data"), &smart, never(65)),
            (asking("../x/y"), &smart, never(65)),
            (asking("team/../../x"), &smart, never(65)),
            (asking(""), &plain, Ok(WantedSource::Nothing)),
        ] {
            let found = wanted_source(&request, parameters).map_err(|failure| failure.code);
            assert_eq!(found, expected, "{:?}", request.claim_metadata);
        }
        // A snapshot is no copy that the class would have to allow.
        let snapshot = RunRequest { snapshot: Some(Snapshot { id: "s".into(), ..Snapshot::default() }), ..request() };
        assert_eq!(wanted_source(&snapshot, &plain), Ok(WantedSource::Snapshot("s".into())));
    }

    #[test]
    fn only_a_bound_claim_of_the_class_is_cloned() {
        let claim: PersistentVolumeClaim = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "data", "uid": "u" }, "spec": { "volumeName": "pvc-u" },
        }))
        .unwrap();
        let volume = |uid: &str, class: &str, mode: &str, id: &str| -> PersistentVolume {
            serde_json::from_value(serde_json::json!({
                "metadata": { "name": "pvc-u", "annotations": { CLAIM_UID: id } },
                "spec": { "storageClassName": class, "volumeMode": mode, "claimRef": { "uid": uid } },
            }))
            .unwrap()
        };
        for (volume, expected) in [
            (volume("u", "x", "Filesystem", "u"), Ok("u".to_owned())),
            (volume("other", "x", "Filesystem", "u"), Err(75)),
            (volume("u", "y", "Filesystem", "u"), Err(65)),
            (volume("u", "x", "Block", "u"), Err(65)),
            (volume("u", "x", "Filesystem", "../u"), Err(65)),
        ] {
            assert_eq!(volume_of(&claim, &volume, &request()).map_err(|failure| failure.code), expected);
        }
    }
}

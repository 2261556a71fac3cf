//! The place of a volume's storage, and volumes that may have files in common.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolumeSpec};

use crate::model::affinity;

/// The CSI driver whose volumes are directories on an NFS server.
const CSI_NFS: &str = "nfs.csi.k8s.io";

/// The places of all volumes that are directories on a node or on an NFS server, by the name of the volume.
pub type Places = BTreeMap<String, Place>;

/// The place of a volume's storage, in its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The server; `None` for storage on a node.
    pub server: Option<String>,
    /// The host name of the only node that has the storage; `None` if several may have it.
    pub node: Option<String>,
    /// The path.
    pub path: String,
}

/// The files that two places may have in common, from the least to the most certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Overlap {
    /// The places have no files in common.
    None,
    /// The paths overlap, on two nodes. Only storage that both nodes mount would be the same.
    OtherNode,
    /// The paths overlap, on servers with different names. Both names may lead to one server.
    OtherServer,
    /// One place is the other, or is in it.
    Same,
}

impl Place {
    /// Returns the place of a volume on a node or on an NFS server.
    pub fn of(spec: &PersistentVolumeSpec) -> Option<Place> {
        let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        let node = required.and_then(affinity::only_host).map(str::to_owned);
        let on_node = |path: &String| Place { server: None, node: node.clone(), path: path.clone() };
        let host_path = spec.host_path.as_ref().map(|source| on_node(&source.path));
        let local = spec.local.as_ref().map(|source| on_node(&source.path));
        let nfs = spec.nfs.as_ref();
        let nfs = nfs.map(|nfs| Place { server: Some(nfs.server.clone()), node: None, path: nfs.path.clone() });
        host_path.or(local).or(nfs).or_else(|| spec.csi.as_ref().and_then(of_csi))
    }

    /// Returns the files that two volumes may have in common.
    pub fn overlap(&self, other: &Place) -> Overlap {
        let (one, two) = (parts(&self.path), parts(&other.path));
        if !one.starts_with(&two) && !two.starts_with(&one) {
            return Overlap::None;
        }
        let on_other_node = self.node.as_ref().zip(other.node.as_ref()).is_some_and(|(one, two)| one != two);
        match (&self.server, &other.server) {
            (None, None) if on_other_node => Overlap::OtherNode,
            (None, None) => Overlap::Same,
            (Some(one), Some(two)) if host(one) == host(two) => Overlap::Same,
            (Some(_), Some(_)) => Overlap::OtherServer,
            (None, Some(_)) | (Some(_), None) => Overlap::None,
        }
    }
}

/// Returns the place as people write it.
impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.server {
            None => write!(f, "{}", self.path),
            Some(server) => write!(f, "{server}:{}", self.path),
        }
    }
}

/// Returns the place of a volume of the CSI driver for NFS.
fn of_csi(source: &CSIPersistentVolumeSource) -> Option<Place> {
    let attributes = source.volume_attributes.as_ref().filter(|_| source.driver == CSI_NFS)?;
    let named = |key: &str| attributes.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value);
    let (server, share) = (named("server")?, named("share")?);
    let path = match named("subdir") {
        Some(inner) => format!("{share}/{inner}"),
        None => share.clone(),
    };
    Some(Place { server: Some(server.clone()), node: None, path })
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").collect()
}

/// Returns the name of a server without what does not distinguish it from others.
fn host(server: &str) -> String {
    server.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase()
}

/// Another volume that may have files in common with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour<'a> {
    /// The name of the volume.
    pub volume: &'a str,
    /// The files that both may have in common.
    pub overlap: Overlap,
}

/// Returns the other volume that most certainly has files in common with a place.
pub fn neighbour<'a>(places: &'a Places, volume: &str, place: &Place) -> Option<Neighbour<'a>> {
    let others = places.iter().filter(|(other, _)| *other != volume);
    let overlaps = others.map(|(other, at)| Neighbour { volume: other.as_str(), overlap: at.overlap(place) });
    // Among equally certain ones the first by name counts. So a repeated command names the same volume.
    let overlaps = overlaps.filter(|other| other.overlap != Overlap::None);
    overlaps.reduce(|a, b| if b.overlap > a.overlap { b } else { a })
}

/// Checks that no other volume may have the files at a place, before an admin confirms it.
///
/// # Errors
/// If another volume may have them. The text is for the admin.
pub fn verify_alone(places: &Places, volume: &str, place: &Place) -> Result<(), String> {
    match neighbour(places, volume, place) {
        Some(Neighbour { volume: other, overlap: Overlap::Same | Overlap::OtherServer }) => Err(format!(
            "volume {other} may have the same files at {place}: delete the one of the two that does not belong there"
        )),
        _ => Ok(()),
    }
}

/// Returns the places as the lists of images write them.
pub fn written(places: &Places) -> BTreeSet<String> {
    places.values().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(server: &str, node: &str, path: &str) -> Place {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Place { server: some(server), node: some(node), path: path.into() }
    }

    #[test]
    fn volumes_that_may_have_the_same_files_are_found() {
        let one = place("", "node-1", "/srv/a");
        for (other, overlap) in [
            (place("", "node-1", "/srv/a"), Overlap::Same),
            (place("", "node-1", "/srv/a/b/"), Overlap::Same),
            (place("", "node-1", "/srv//"), Overlap::Same),
            (place("", "node-1", "/srv/./a"), Overlap::Same),
            (place("", "", "/srv/a"), Overlap::Same),
            (place("", "node-2", "/srv/a"), Overlap::OtherNode),
            (place("", "node-1", "/srv/ab"), Overlap::None),
            (place("nas", "", "/srv/a"), Overlap::None),
        ] {
            assert_eq!((one.overlap(&other), other.overlap(&one)), (overlap, overlap), "{other:?}");
        }
        let served = place("nas.example", "", "/srv/a");
        for (other, overlap) in [
            (place("NAS.example.", "", "/srv"), Overlap::Same),
            (place("10.0.0.1", "", "/srv/a/b"), Overlap::OtherServer),
            (place("10.0.0.1", "", "/srv/b"), Overlap::None),
        ] {
            assert_eq!((served.overlap(&other), other.overlap(&served)), (overlap, overlap), "{other:?}");
        }
    }

    #[test]
    fn a_volume_of_the_csi_driver_for_nfs_has_a_place() {
        let of = |driver: &str, attributes: &[(&str, &str)]| {
            let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let csi = CSIPersistentVolumeSource {
                driver: driver.into(),
                volume_attributes: Some(attributes.collect()),
                ..CSIPersistentVolumeSource::default()
            };
            Place::of(&PersistentVolumeSpec { csi: Some(csi), ..PersistentVolumeSpec::default() })
        };
        let server = ("server", "nas");
        assert_eq!(of(CSI_NFS, &[server, ("share", "/e")]), Some(place("nas", "", "/e")));
        assert_eq!(of(CSI_NFS, &[server, ("share", "/e"), ("subDir", "a")]), Some(place("nas", "", "/e/a")));
        assert_eq!(of("other.example", &[server, ("share", "/e")]), None);
        assert_eq!(of(CSI_NFS, &[server]), None);
    }

    #[test]
    fn the_most_certain_neighbour_is_named_and_an_admin_confirms_no_place_that_two_volumes_have() {
        let places = Places::from([
            ("a".into(), place("other", "", "/e/x")),
            ("b".into(), place("nas", "", "/e/x/inner")),
            ("c".into(), place("nas", "", "/e/x")),
        ]);
        let own = place("nas", "", "/e/x");
        assert_eq!(neighbour(&places, "c", &own), Some(Neighbour { volume: "b", overlap: Overlap::Same }));
        assert!(verify_alone(&places, "c", &own).unwrap_err().contains("volume b may have the same files at nas:/e/x"));
        let far = Places::from([("a".into(), place("", "node-2", "/srv/x"))]);
        assert_eq!(verify_alone(&far, "c", &place("", "node-1", "/srv/x")), Ok(()));
        assert!(written(&places).contains("nas:/e/x/inner") && written(&far).contains("/srv/x"));
    }
}

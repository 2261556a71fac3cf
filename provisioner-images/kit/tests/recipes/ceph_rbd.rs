//! The recipe `ceph-rbd` with scripted `rbd` and `ceph`: the test's machine has no Ceph.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::api::path_text;
use super::cases::{self, Backend, id};
use super::conformance;
use super::desk::{Desk, system};
use super::host::{self, Host};

struct Ceph {
    desk: Desk,
    folder: tempfile::TempDir,
    _host: Host,
}

impl Ceph {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut desk = Desk::new("ceph-rbd", &[], &["/usr/bin/ssh", "/usr/bin/jq"].map(Path::new));
        let state = path_text(folder.path().into());
        let env = [("RBD_STATE", state.as_str()), ("RBD_BYTES", "5000000000")];
        let host = Host::start(&mut desk, &["rbd"], &host::scripted(), &env);
        Ceph { desk, folder, _host: host }
    }

    fn image(&self, id: &str) -> PathBuf {
        self.folder.path().join(format!("flex-{id}"))
    }
}

impl Backend for Ceph {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn objects(&self) -> Vec<String> {
        system(&format!("ls {}", path_text(self.folder.path().into()))).lines().map(str::to_owned).collect()
    }

    fn size(&self, id: &str) -> u64 {
        fs::metadata(self.image(id)).unwrap().len()
    }

    fn write(&self, id: &str, text: &str) {
        let mut block = text.as_bytes().to_vec();
        block.resize(512, 0);
        fs::OpenOptions::new().write(true).open(self.image(id)).unwrap().write_all_at(&block, 0).unwrap();
    }

    fn read(&self, id: &str) -> String {
        let mut block = [0; 512];
        fs::File::open(self.image(id)).unwrap().read_exact_at(&mut block, 0).unwrap();
        String::from_utf8(block.to_vec()).unwrap().trim_end_matches('\0').to_owned()
    }

    /// The pool reports its own free bytes.
    fn counts_promises(&self) -> bool {
        false
    }

    fn granularity(&self) -> u64 {
        1 << 20
    }
}

#[test]
fn ceph_rbd_passes_the_cases_of_all_recipes() {
    let ceph = Ceph::new();
    cases::all(&ceph);
}

#[test]
fn ceph_rbd_passes_conformance() {
    let ceph = Ceph::new();
    conformance::passes(&ceph, &[], &["--external-storage"]);
}

#[test]
fn an_image_becomes_a_static_volume_of_the_csi_driver() {
    let ceph = Ceph::new();
    let id = id(1);
    let size = [("SIZE_BYTES", "5000001")];
    assert_eq!(ceph.desk.run("provision", &id, &size).code, Some(0));
    assert_eq!(ceph.size(&id), 5 << 20, "in whole MiB");
    let csi = &ceph.desk.volume(&id)["spec"]["csi"];
    let expected = serde_json::json!({
        "driver": "rbd.csi.ceph.com",
        "volumeHandle": format!("flex-{id}"),
        "fsType": "ext4",
        "volumeAttributes": {
            "clusterID": "b9127830-b0cc-4e34-aa47-9d1a2e9949a8",
            "pool": "kubernetes",
            "staticVolume": "true",
            "imageFeatures": "layering",
        },
        "nodeStageSecretRef": { "name": "ceph-rbd", "namespace": "flex-provisioner" },
    });
    assert_eq!(*csi, expected);
    for operation in ["provision", "delete"] {
        let ended = ceph.desk.run(operation, &id, &[("CEPH_POOL", "another")]);
        assert!(ended.code == Some(75) && ended.last_words.contains("cannot be listed"), "{operation}: {ended:?}");
    }
    assert_eq!(
        ceph.desk.run("list", "", &[("CEPH_POOL", "another")]).code,
        Some(75),
        "no list is better than an empty one"
    );
    let ended = ceph.desk.run("capacity", "", &[]);
    assert!(ended.last_words.contains("flex-capacity 1 5000000000"), "{ended:?}");
}

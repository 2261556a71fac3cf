//! Tests of directories that the local-path provisioner made: they move in, serve their pods, and are deleted, with real
//! data. Each test counts the directories before and after.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flex_contract::names;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use orchestrator::deployed::{clean, directory, kubectl, local_class, log_of, make_directory, pod, users, volumes_in};
use orchestrator::former::{LOCAL_PATH, directory_of};
use orchestrator::ring::{OWN, Ring, uid};
use orchestrator::wait::{unexpected, until};

async fn only_node(ring: &Ring) -> String {
    let nodes: Api<Node> = Api::all(ring.client.clone());
    let mut nodes = nodes.list(&ListParams::default()).await.unwrap().items;
    nodes.sort_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
    nodes.remove(0).metadata.name.unwrap()
}

/// Creates a claim with a volume as local-path makes both, with a file in it. Returns the name of the volume, and its
/// directory on the node.
async fn left(ring: &Ring, claim: &str, class: &str, node: &str) -> (String, PathBuf) {
    let made = ring.claim(claim, class).await;
    let path = Path::new(&directory(class)).join(directory_of(&made));
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(path.join("text"), format!("data of {claim}")).unwrap();
    ring.former_volume(claim, &directory(class), node).await;
    (names::pv_name(&uid(&made)), path)
}

async fn adopt(ring: &Ring, class: &str, flags: &[&str]) -> (i32, String) {
    let config = format!("{OWN}/{class}");
    let own = ["adopt", "--from", "local-path", "--config", &config, "--former-is-gone"];
    ring.command(&[&own[..], flags].concat()).await
}

#[tokio::test]
async fn directories_of_local_path_keep_their_data_grow_and_are_deleted() {
    let ring = users("moved-in").await;
    let (class, node) = ("moved-in", only_node(&ring).await);
    let _ = fs::remove_dir_all(directory(class));
    make_directory(&directory(class));
    // The provisioner is gone, and its class and its volumes are left.
    ring.class(class, LOCAL_PATH, json!({ "allowVolumeExpansion": true })).await;
    let (kept, path) = left(&ring, "kept", class, &node).await;
    let (lost, lost_path) = left(&ring, "lost", class, &node).await;
    let (undone, undone_path) = left(&ring, "undone", class, &node).await;
    let (missing, missing_path) = left(&ring, "missing", class, &node).await;
    fs::remove_dir_all(&missing_path).unwrap();
    let neighbour = Path::new(&directory(class)).join("neighbour");
    fs::create_dir(&neighbour).unwrap();
    // An empty directory with the usual mode may be that of a run that never began.
    fs::set_permissions(&neighbour, fs::Permissions::from_mode(0o777)).unwrap();
    let sources = format!("local:{0}, hostPath:{0}", directory(class));
    let keys = [
        ("capabilities", "clone, snapshot, expand, list, move-in"),
        ("replaces-provisioner", LOCAL_PATH),
        ("volume-sources", sources.as_str()),
    ];
    local_class(&ring, class, &keys).await;
    until("the config serves the class", || async {
        let (code, text) = adopt(&ring, class, &["--dry-run"]).await;
        if code == 0 { Ok(()) } else { unexpected(text) }
    })
    .await;

    let (code, text) = adopt(&ring, class, &["--volume", &kept, "--volume", &lost, "--volume", &undone]).await;
    assert_eq!(code, 0, "{text}");
    let (code, text) = adopt(&ring, class, &["--volume", &missing]).await;
    assert!(code == 2 && text.contains("nothing that could move in"), "its directory is missing: {text}");
    assert!(!missing_path.exists(), "the look makes no directory");
    let (code, text) = adopt(&ring, class, &["--volume", &undone, "--undo"]).await;
    assert_eq!(code, 0, "{text}");

    // A pod reads the data, and a clone has them.
    pod(&ring, "reader", "kept", "cat /data/text; echo more > /data/more").await;
    assert_eq!(log_of(&ring, "reader").await.trim(), "data of kept");
    let source = json!({ "spec": { "dataSource": { "kind": "PersistentVolumeClaim", "name": "kept" } } });
    ring.claim_with("copy", class, source).await;
    pod(&ring, "copied", "copy", "cat /data/text /data/more").await;
    assert!(log_of(&ring, "copied").await.contains("data of kept"));
    ring.ask("kept", "2Gi").await.unwrap();
    ring.has_size("kept", &kept, "2Gi").await;
    assert_eq!(fs::read_to_string(path.join("more")).unwrap().trim(), "more", "nothing has moved");
    let (code, text) = adopt(&ring, class, &["--volume", &kept, "--undo"]).await;
    assert!(code == 2 && text.contains("was expanded"), "{text}");

    // The directory of one volume is lost before its claim is deleted.
    fs::remove_dir_all(&lost_path).unwrap();
    let pods = ["-n", &ring.user, "delete", "pod", "reader", "copied", "--grace-period=0", "--force"];
    kubectl(ring.cluster(), &pods);
    for (claim, volume) in [("kept", &kept), ("lost", &lost)] {
        ring.delete_claim(claim).await;
        ring.volume_gone(volume).await;
    }
    // Nothing of the other volumes is deleted: their provisioner is not the orchestrator.
    for (claim, volume) in [("undone", &undone), ("missing", &missing)] {
        ring.delete_claim(claim).await;
        ring.claim_gone(claim).await;
        let none = json!({ "metadata": { "finalizers": null } });
        ring.volumes().patch(volume, &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
        ring.volumes().delete(volume, &DeleteParams::default()).await.unwrap();
    }
    clean(&ring).await;
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(volumes_in(&directory(class)), BTreeSet::from([name(&neighbour), name(&undone_path)]));
    assert_eq!(fs::read_to_string(undone_path.join("text")).unwrap(), "data of undone");
    end(&ring, class).await;
}

#[tokio::test]
async fn a_directory_is_imported_and_deleted_only_on_request() {
    let ring = users("imported").await;
    let (class, node) = ("imported", only_node(&ring).await);
    let _ = fs::remove_dir_all(directory(class));
    local_class(&ring, class, &[("capabilities", "expand, list, move-in")]).await;
    for name in ["photos", "music"] {
        let path = Path::new(&directory(class)).join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(path.join("text"), name).unwrap();
    }
    let config = format!("{OWN}/{class}");
    let import = async |name: &str, flags: &[&str]| {
        let (path, claim) = (format!("{}/{name}", directory(class)), format!("{}/{name}", ring.user));
        let of = ["--path", &path, "--claim", &claim, "--node", &node, "--size", "1Gi"];
        ring.command(&[&["import", "--config", &config], &of[..], flags].concat()).await
    };
    until("the config serves the class", || async {
        let (code, text) = import("photos", &["--dry-run"]).await;
        if code == 0 { Ok(()) } else { unexpected(text) }
    })
    .await;
    let (code, text) = import("missing", &[]).await;
    assert!(code == 2 && text.contains("nothing that could move in"), "{text}");
    for (name, flags) in [("photos", &[][..]), ("music", &["--reclaim", "delete"])] {
        let (code, text) = import(name, flags).await;
        assert_eq!(code, 0, "{text}");
        let volume = ring.bound(name).await.spec.unwrap().volume_name.unwrap();
        pod(&ring, name, name, "cat /data/text; echo").await;
        assert_eq!(log_of(&ring, name).await.trim(), name);
        kubectl(ring.cluster(), &["-n", &ring.user, "delete", "pod", name, "--grace-period=0", "--force"]);
        ring.delete_claim(name).await;
        ring.claim_gone(name).await;
        match flags {
            [] => ring.volumes().delete(&volume, &DeleteParams::default()).await.map(drop).unwrap(),
            _ => ring.volume_gone(&volume).await,
        }
    }
    assert_eq!(volumes_in(&directory(class)), BTreeSet::from(["photos".to_owned()]));
    end(&ring, class).await;
}

/// Removes what a test has made beside its namespace.
async fn end(ring: &Ring, class: &str) {
    ring.api::<ConfigMap>(OWN).delete(class, &DeleteParams::default()).await.unwrap();
    let classes: Api<StorageClass> = Api::all(ring.client.clone());
    if classes.get_opt(class).await.unwrap().is_some() {
        classes.delete(class, &DeleteParams::default()).await.unwrap();
    }
    fs::remove_dir_all(directory(class)).unwrap();
}

//! Recipes with real file systems of the node, on the whole cluster with pods.

use std::fs;
use std::process::Command;
use std::time::Instant;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

use orchestrator::deployed::{clean, ends_well, import, kubectl, log_of, pod, users};
use orchestrator::ring::{OWN, uid};
use orchestrator::wait::{unexpected, until};

/// Where the recipe `btrfs` keeps its volumes on the node.
const BASE: &str = "/var/lib/flex-btrfs";

fn system(command: &str) -> String {
    let output = Command::new("bash").args(["-c", &format!("set -e; {command}")]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A Btrfs at the place that the recipe names. It is unmounted at the end of the test.
struct Btrfs(tempfile::TempDir);

impl Btrfs {
    fn mounted() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image").display().to_string();
        // A test that was killed leaves the directory.
        let is_free = fs::read_dir(BASE).map_or(true, |mut entries| entries.next().is_none());
        assert!(is_free, "{BASE} belongs to somebody else");
        system(&format!(
            "truncate -s 4G {image}; mkfs.btrfs -q {image}; mkdir -p {BASE}; mount -o loop {image} {BASE}
            btrfs quota enable {BASE}"
        ));
        Btrfs(folder)
    }

    /// Returns the number of subvolumes.
    fn count(&self) -> usize {
        system(&format!("btrfs subvolume list {BASE}; ls -A {BASE}")).lines().count()
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", BASE]).status();
        let _ = fs::remove_dir(BASE);
        assert!(self.0.path().exists());
    }
}

#[tokio::test]
async fn a_btrfs_volume_is_full_at_its_size_and_a_snapshot_of_much_data_is_restored() {
    let ring = users("btrfs").await;
    import(ring.cluster(), &["tools"]).await;
    let btrfs = Btrfs::mounted();
    ring.serve_snapshots().await;
    kubectl(ring.cluster(), &["apply", "-f", "configmaps/recipes/btrfs.yaml"]);
    kubectl(ring.cluster(), &["apply", "-f", "examples/recipes/btrfs/storageclass.yaml"]);

    // A pod without any right writes until it gets an error.
    ring.claim_with("full", "btrfs", json!({ "spec": { "resources": { "requests": { "storage": "64Mi" } } } })).await;
    pod(&ring, "filler", "full", "dd if=/dev/zero of=/data/big bs=1M count=300 2>&1; wc -c </data/big").await;
    let said = log_of(&ring, "filler").await;
    assert!(said.contains("quota exceeded") || said.contains("No space left"), "{said}");
    let written: u64 = said.trim().lines().last().unwrap().trim().parse().unwrap();
    assert!((48 << 20..=64 << 20).contains(&written), "{written} bytes of 64 MiB were written: {said}");

    // A volume with much data.
    ring.claim_with("large", "btrfs", json!({ "spec": { "resources": { "requests": { "storage": "700Mi" } } } })).await;
    pod(&ring, "writer", "large", "dd if=/dev/urandom of=/data/big bs=1M count=500 2>/dev/null; md5sum </data/big")
        .await;
    let sum = log_of(&ring, "writer").await;
    let begun = Instant::now();
    ring.snapshot("monday", "large").await;
    let snapshots = ring.snapshots();
    until("the snapshot is ready", || async {
        let status = snapshots.get("monday").await.map_err(|error| error.to_string())?.status;
        match status.as_ref().and_then(|status| status.ready_to_use) {
            Some(true) => Ok(()),
            _ => unexpected(status),
        }
    })
    .await;
    println!("the snapshot of 500 MiB was ready after {:?}, with the start of its pod", begun.elapsed());
    let id = uid(&ring.get_claim("large").await);
    let stored = |name: &str| name.starts_with(".snapshot-");
    let names: Vec<_> =
        fs::read_dir(BASE).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| stored(name)).count(), 1, "{names:?}");
    assert!(names.contains(&id));
    pod(&ring, "later", "large", "rm /data/big && sync").await;
    ends_well(&ring, "later").await;
    let source = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "monday" });
    let restored = json!({ "spec": { "dataSource": source, "resources": { "requests": { "storage": "700Mi" } } } });
    ring.claim_with("restored", "btrfs", restored).await;
    pod(&ring, "reader", "restored", "md5sum </data/big").await;
    assert_eq!(log_of(&ring, "reader").await, sum);

    snapshots.delete("monday", &DeleteParams::default()).await.unwrap();
    clean(&ring).await;
    until("nothing is left on the node", || async {
        match btrfs.count() {
            0 => Ok(()),
            count => unexpected(count),
        }
    })
    .await;
    Api::<StorageClass>::all(ring.client.clone()).delete("btrfs", &DeleteParams::default()).await.unwrap();
    ring.api::<ConfigMap>(OWN).delete("btrfs", &DeleteParams::default()).await.unwrap();
}

//! Tests of runs that see only the directory of their own volume, on the whole cluster: the limits of a hostile image
//! there, and the removal of leftover directories.

use std::fs;
use std::path::Path;
use std::time::Instant;

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::kinds::delete_pod;
use orchestrator::deployed::{
    HOSTPATH, clean, directory, ends_well, kubectl, local_class, log_of, pod, pod_as, users, volumes_in,
};
use orchestrator::ring::{OWN, annotation, uid};
use orchestrator::wait::{unexpected, until};

/// A claim whose name begins with `evil` runs what a hostile image could try; all others run the script of hostpath.
const IMAGE: &str = r#"
case $PVC_NAME in evil*) ;; *) exec /provision.sh ;; esac
own=$BASE_PATH/$CLAIM_UUID
# It passes over what flex-pv would check.
create() { env -u STORAGE_MOUNTS flex-pv create --copied --local "$1"; }
attack() {
    echo "sees: $(ls -A "$BASE_PATH" | tr '\n' ' ')"
    echo "victim: $(cat "$BASE_PATH/$VICTIM/secret" 2>&1)"
    rm -rf "$BASE_PATH/$VICTIM" "$BASE_PATH"/* "$BASE_PATH"/.snap*
    rmdir "$own" && ln -s / "$own"
    mv "$own" "$BASE_PATH/away" && ln -s / "$own"
    umount "$own" || umount -l "$own"
    mount -o bind / "$own"
    ln -s / "$BASE_PATH/way"
    [ -z "$CLONE_OF" ] || echo overwritten >"$BASE_PATH/$CLONE_OF/secret"
}
attack >/tmp/report 2>&1
case $OPERATION in
provision)
    cp /tmp/report "$own/report"
    chmod 0777 "$own"
    case $PVC_NAME in
    evil-inside) ln -sfn / "$own/way" && create "$own/way" ;;
    evil-beside) create "$BASE_PATH/$VICTIM" ;;
    *) create "$own" ;;
    esac
    ;;
*) exec /provision.sh ;;
esac
"#;

#[tokio::test]
async fn a_hostile_image_reaches_no_other_volume_and_cannot_replace_its_own_by_a_link() {
    let ring = users("alone").await;
    let (class, on_node) = ("alone", directory("alone"));
    let before = volumes_in(&on_node);
    let args = json!(["-c", IMAGE]).to_string();
    let more = [
        ("command", "[sh]"),
        ("args", args.as_str()),
        ("backoff", "1s"),
        // Only the hostile script reads this parameter.
        ("ignored-parameters", "victim"),
    ];
    local_class(&ring, class, &[&more[..], &[("victim", "nobody")]].concat()).await;
    ring.claim("victim", class).await;
    pod(&ring, "writer", "victim", "echo precious > /data/secret").await;
    ends_well(&ring, "writer").await;
    let victim = uid(&ring.get_claim("victim").await);
    let secret = || fs::read_to_string(format!("{on_node}/{victim}/secret")).unwrap();
    local_class(&ring, class, &[&more[..], &[("victim", &victim)]].concat()).await;

    // The run makes a volume, as it may, and reached nothing else.
    ring.claim("evil", class).await;
    pod(&ring, "tenant", "evil", "cat /data/report; echo here > /data/from-tenant").await;
    let report = log_of(&ring, "tenant").await;
    println!("{report}");
    let id = uid(&ring.get_claim("evil").await);
    assert!(report.contains(&format!("sees: {id} \n")), "the run sees its own directory and no other");
    assert!(report.contains("victim: cat: can't open"), "the run reads no other directory");
    let own = Path::new(&on_node).join(&id);
    assert!(fs::symlink_metadata(&own).unwrap().is_dir(), "the volume's directory is no link");
    assert!(own.join("from-tenant").exists() && !Path::new("/from-tenant").exists());
    assert_eq!(secret(), "precious\n");

    // The run of a clone sees its source, and cannot write there.
    let source = json!({ "spec": { "dataSource": { "kind": "PersistentVolumeClaim", "name": "victim" } } });
    ring.claim_with("evil-copy", class, source).await;
    pod(&ring, "copy", "evil-copy", "cat /data/report").await;
    let report = log_of(&ring, "copy").await;
    assert!(report.contains("victim: precious") && report.contains("Read-only file system"), "{report}");
    assert_eq!(secret(), "precious\n");

    // A link within the run's directory, and the directory of another volume, are no volumes of its claim.
    let has_failed = |claim: &PersistentVolumeClaim| {
        let failure = annotation(claim, names::FAILURE).and_then(|text| serde_json::from_str::<Value>(&text).ok());
        failure.is_some_and(|failure| annotation(claim, names::ATTEMPT) == Some(failure["attempt"].to_string()))
    };
    for claim in ["evil-inside", "evil-beside"] {
        ring.claim(claim, class).await;
        ring.event(&ring.user, claim, reason::VOLUME_REFUSED, "is not the directory that its run was given").await;
        let volume = names::pv_name(&uid(&ring.get_claim(claim).await));
        until(format!("the volume of {claim} is quarantined"), || async {
            let found = ring.volumes().get_opt(&volume).await.map_err(|error| error.to_string())?;
            let annotations = found.and_then(|volume| volume.metadata.annotations).unwrap_or_default();
            if annotations.contains_key(names::QUARANTINE) { Ok(()) } else { unexpected(annotations) }
        })
        .await;
        // The orchestrator would miss a volume that is deleted before.
        ring.claim_when(claim, "has a failed attempt", has_failed).await;
        ring.volumes().delete(&volume, &DeleteParams::default()).await.unwrap();
    }
    // Its delete runs try all of this again.
    for pod in ["tenant", "copy"] {
        delete_pod(&ring, pod).await;
    }
    let mut volumes = Vec::new();
    for claim in ["evil", "evil-copy", "evil-inside", "evil-beside"] {
        volumes.push(names::pv_name(&uid(&ring.get_claim(claim).await)));
        ring.delete_claim(claim).await;
        ring.claim_gone(claim).await;
    }
    for volume in &volumes {
        ring.volume_gone(volume).await;
    }
    pod(&ring, "reader", "victim", "cat /data/secret").await;
    assert_eq!(log_of(&ring, "reader").await, "precious\n");
    clean(&ring).await;
    assert_eq!(volumes_in(&on_node), before);
}

#[tokio::test]
async fn the_daemon_set_closes_the_base_path_and_removes_leftovers_of_deleted_volumes() {
    let ring = users("keeper").await;
    let began = Instant::now();
    ring.claim("c", "hostpath").await;
    pod(&ring, "writer", "c", "echo here > /data/file").await;
    ends_well(&ring, "writer").await;
    println!("written after {:?}", began.elapsed());
    let id = uid(&ring.get_claim("c").await);
    let mode = |path: &str| {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(path).ok().map(|path| path.permissions().mode() & 0o7777)
    };
    assert_eq!(mode(HOSTPATH), Some(0o1700), "no other user of the node has access");
    clean(&ring).await;
    let leftovers = format!("{HOSTPATH}/{id}");
    // The DaemonSet removes it after a while.
    assert!(matches!(mode(&leftovers), Some(0o1000) | None), "emptied, and of no volume");
    let at_once = ["exec", "daemonset/hostpath-keeper", "--", "flex-pv", "keep", "--age", "0", HOSTPATH];
    let removed = kubectl(ring.cluster(), &[&["-n", OWN][..], &at_once].concat());
    assert!(removed.contains(&id) || !fs::exists(&leftovers).unwrap(), "{removed}");
    assert!(!fs::exists(&leftovers).unwrap());
}

/// The kubelet gives a volume the group of a pod only while the volume is mounted nowhere else on the node. The pod of a
/// claim starts before the kubelet has ended the pod of the run.
#[tokio::test]
async fn the_group_of_the_first_pod_owns_the_volume() {
    let ring = users("groups").await;
    local_class(&ring, "groups", &[("mode", "0770")]).await;
    let security = json!({ "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000 });
    let claims = ["c0", "c1", "c2", "c3"];
    for claim in claims {
        pod_as(&ring, claim, claim, "touch /data/x && stat -c %g /data", security.clone()).await;
        ring.claim(claim, "groups").await;
    }
    for claim in claims {
        assert_eq!(log_of(&ring, claim).await, "2000\n", "{claim}");
    }
    clean(&ring).await;
}

/// A kubelet creates the missing directory of a `subPath`. A pod of the claim must not start on the new directory as if
/// nothing were lost.
#[tokio::test]
async fn a_lost_directory_is_reported_and_not_created_again() {
    let ring = users("lost").await;
    ring.claim("c", "hostpath").await;
    pod(&ring, "writer", "c", "echo here > /data/file").await;
    ends_well(&ring, "writer").await;
    delete_pod(&ring, "writer").await;
    let directory = format!("{HOSTPATH}/{}", uid(&ring.get_claim("c").await));
    fs::remove_dir_all(&directory).unwrap();

    let texts = "its data is lost, or its disk is not mounted";
    let more = json!({ "spec": { "resources": { "requests": { "storage": "3Gi" } } } });
    ring.claims().patch("c", &PatchParams::default(), &Patch::Merge(more)).await.unwrap();
    ring.event(&ring.user, "c", reason::VOLUME_RESIZE_FAILED, texts).await;
    assert!(!fs::exists(&directory).unwrap(), "created again by the expand run");
    let source = json!({ "spec": { "dataSource": { "kind": "PersistentVolumeClaim", "name": "c" } } });
    ring.claim_with("copy", "hostpath", source).await;
    pod(&ring, "reader", "copy", "ls /data").await;
    ring.event(&ring.user, "copy", reason::PROVISIONING_FAILED, texts).await;
    assert!(!fs::exists(&directory).unwrap(), "created again by the run of the clone");
    delete_pod(&ring, "reader").await;
    for claim in ["copy", "c"] {
        ring.delete_claim(claim).await;
        ring.claim_gone(claim).await;
    }
    clean(&ring).await;
}

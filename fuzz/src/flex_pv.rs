//! The environment, the command line and the file of `flex-pv create`.

use flex_contract::policy::ReclaimPolicy;
use std::collections::BTreeMap;

use clap::Parser;
use flex_contract::names;
use flex_contract::request::RunRequest;
use flex_contract::variable;
use flex_contract::volume::{persistent_volume, placeholder, volume_source_kind};
use flex_image_kit::Failure;
use flex_image_kit::flex_pv::args::{Cli, Command};
use flex_image_kit::flex_pv::made;

use crate::draw::Draw;
use crate::world::{UID, reads_back};

/// The environment of a run.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("OPERATION", "provision"),
    ("CLAIM_UUID", UID),
    ("PV_NAME", "pvc-0d9c2f0e-0000-4000-8000-000000000001"),
    ("PVC_NAME", "data"),
    ("PVC_NAMESPACE", "team"),
    ("PVC_UID", UID),
    ("STORAGE_CLASS", "silver"),
    ("SIZE_BYTES", "1073741824"),
    ("ACCESS_MODES", "ReadWriteOnce,ReadOnlyMany"),
    ("TOPOLOGY", "{\"kubernetes.io/hostname\":\"host-1\"}"),
    ("NODE_NAME", "node-1"),
];
const OPTIONS: &[&str] = &[
    "--nfs",
    "nas:/a",
    "[fd00::1]:/a",
    "--host-path",
    "--local",
    "/a",
    "--iscsi",
    "10.0.0.5:3260,iqn.2026-01.example:disk,0",
    "--csi",
    "csi.example,vol-1",
    "--from",
    "-",
    "--size",
    "10Gi",
    "--fs-type",
    "ext4",
    "--read-only",
    "--on-this-node",
    "--on-this-node=false",
    "--affinity",
    "--annotation",
    "a=b",
    "flex-provisioner.io/claim-uuid=x",
    "pv.kubernetes.io/provisioned-by=x",
    "--dry-run",
    "--timeout",
    "1",
];
const FILES: &[&str] = &[
    "nfs: {server: nas, path: /a}",
    "metadata: {name: other, annotations: {a: b, flex-provisioner.io/volume-id: x}, labels: {c: d}}\nspec: {hostPath: {path: /a}, claimRef: {name: x, uid: y}, persistentVolumeReclaimPolicy: Retain}\n",
    "spec:\n  csi: {driver: d, volumeHandle: h, volumeAttributes: {a: b}}\n  capacity: {storage: 2Gi}\n  storageClassName: gold\n",
    "local: {path: /a}\nnodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]}}\n",
];

/// Reads the YAML of `--from`, or draws all three inputs.
pub fn check(data: &[u8]) {
    match std::str::from_utf8(data) {
        Ok(text) if text.starts_with("spec") || text.starts_with("metadata") || text.starts_with("nfs") => {
            let env = ENVIRONMENT.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            creates(&env, &["flex-pv".into(), "create".into(), "--from".into(), "-".into()], text);
        }
        _ => drawn(&mut Draw::new(data)),
    }
}

fn drawn(draw: &mut Draw<'_>) {
    let mut env: BTreeMap<String, String> =
        ENVIRONMENT.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    for _ in 0..draw.below(6) {
        let name = draw.pick(variable::ALL).name.to_owned();
        let value = draw.text_or(&["1", "", "a,b", "{\"a\":\"b\"}", "Block"]);
        env.insert(name, value);
    }
    let mut args = vec!["flex-pv".to_owned(), "create".to_owned()];
    let source = draw.pick(&[10, 0, 3, 4, 6, 8]);
    args.push(OPTIONS[source].to_owned());
    args.push(draw.text_or(&OPTIONS[source + 1..=source + 1]));
    for _ in 0..draw.below(5) {
        args.push(draw.text_or(OPTIONS));
    }
    let file = draw.text_or(FILES);
    creates(&env, &args, &file);
}

fn creates(env: &BTreeMap<String, String>, args: &[String], file: &str) {
    let request = match RunRequest::from_env(|name| env.get(name).cloned()) {
        Ok(request) => request,
        Err(error) => {
            let message = error.to_string();
            let named = variable::properties().any(|variable| message.contains(variable.name));
            assert!(named, "{message} names no variable");
            return;
        }
    };
    let Ok(Cli { command: Command::Create(create) }) = Cli::try_parse_from(args) else { return };
    let made = match made(*create, &request, Some("node-1"), |_| Ok(file.to_owned())) {
        Ok(made) => made,
        Err(Failure { code, message }) => {
            assert!((64..=78).contains(&code) && !message.is_empty(), "{code}: {message}");
            return;
        }
    };
    let volume = persistent_volume(&request, made);
    reads_back(&volume);
    let (metadata, spec) = (&volume.metadata, volume.spec.as_ref().expect("a volume has a spec"));
    assert_eq!(metadata.name.as_ref(), Some(&request.pv_name));
    assert_eq!(metadata.labels, Some([(names::LABEL_INSTANCE.to_owned(), request.instance.clone())].into()));
    let annotations = metadata.annotations.clone().unwrap_or_default();
    for (name, value) in [
        (names::CLAIM_UID, &request.claim.uid),
        (names::VOLUME_ID, &request.volume_id),
        (names::PROVISIONED_BY, &request.provisioner),
    ] {
        assert_eq!(annotations.get(name), Some(value), "{name}");
    }
    let has_finalizer = metadata.finalizers.as_deref() == Some(&[names::VOLUME_FINALIZER.to_owned()]);
    assert_eq!(has_finalizer, request.reclaim_policy == ReclaimPolicy::Delete, "{:?}", metadata.finalizers);
    assert_eq!(spec.claim_ref, Some(placeholder(&request)));
    assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some(request.reclaim_policy.as_str()));
    assert_eq!(spec.storage_class_name.as_ref(), Some(&request.storage_class));
    assert_eq!(
        (spec.access_modes.as_ref(), spec.volume_mode.as_deref()),
        (Some(&request.access_modes), Some(request.volume_mode.as_str()))
    );
    assert_eq!(spec.mount_options.clone().unwrap_or_default(), request.mount_options);
    let size = spec.capacity.as_ref().and_then(|capacity| capacity.get("storage")).expect("a volume has a size");
    assert!(flex_contract::quantity::bytes(&size.0).is_ok_and(|bytes| bytes >= request.size_bytes), "{size:?}");
    assert!(volume_source_kind(spec).is_some(), "{spec:?}");
    let typed = !args.iter().any(|word| word == "--from" || word.starts_with("--from="));
    let path = spec.host_path.as_ref().map(|source| &source.path).or(spec.local.as_ref().map(|source| &source.path));
    if let Some(path) = path.or(spec.nfs.as_ref().map(|source| &source.path)).filter(|_| typed) {
        assert!(path.starts_with('/') && !path.split('/').any(|part| part == ".."), "{path:?}");
    }
}

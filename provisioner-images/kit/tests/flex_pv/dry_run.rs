//! Tests of the volume that each form of arguments makes, and of invalid arguments.

use super::tool::{flex_pv, golden};

#[test]
fn every_form_has_its_volume() {
    let iscsi = "10.0.0.5:3260,iqn.2026-01.example:disk,7";
    let cases: &[(&str, &[&str], &str)] = &[
        ("nfs", &["--nfs", "nas.example:/exports/a", "--read-only"], ""),
        ("nfs-ipv6", &["--nfs", "[fd00::1]:/exports/a"], ""),
        ("host-path", &["--host-path", "/data/a"], ""),
        ("host-path-anywhere", &["--host-path", "/data/a", "--on-this-node=false"], ""),
        ("local", &["--local", "/data/a", "--annotation", "team.example/disk=a=b"], ""),
        (
            "local-zone",
            &["--local", "/dev/x", "--fs-type", "xfs", "--affinity", "topology.kubernetes.io/zone=west"],
            "",
        ),
        ("iscsi", &["--iscsi", iscsi, "--size", "4Gi", "--on-this-node"], ""),
        ("csi", &["--csi", "csi.example.com,vol-1", "--size", "3221225473", "--read-only"], ""),
        ("from-spec", &["--from", "-"], "fc: {targetWWNs: ['5005'], lun: 3}\ncapacity: {storage: 5Gi}\n"),
        (
            "from-volume",
            &["--from", "-"],
            "apiVersion: v1\nkind: PersistentVolume\nmetadata:\n  name: ignored\n  annotations: {a: 'on'}\nspec:\n  \
             storageClassName: ignored\n  local: {path: /data}\n  nodeAffinity:\n    required:\n      \
             nodeSelectorTerms: [{matchExpressions: [{key: rack, operator: Exists}]}]\n",
        ),
    ];
    for (name, args, stdin) in cases {
        let ended = flex_pv(&[&["create", "--dry-run"], *args].concat(), &[], stdin);
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{name}");
        golden(&format!("{name}.yaml"), &ended.out);
    }
}

#[test]
fn a_script_is_asked_for_a_dry_run_by_its_environment() {
    let create = ["create", "--local", "/data/a"];
    let by_flag = flex_pv(&[&create[..], &["--dry-run"]].concat(), &[], "");
    let by_variable = flex_pv(&create, &[("FLEX_PV_DRY_RUN", "yes")], "");
    assert_eq!((by_variable.code, &by_variable.out), (0, &by_flag.out), "{}", by_variable.err);
    // Any other value asks for the volume itself, which needs a cluster.
    for no in ["", "no", "false"] {
        assert_ne!(flex_pv(&create, &[("FLEX_PV_DRY_RUN", no)], "").code, 0, "{no}");
    }
}

#[test]
fn bad_input_is_refused_with_the_reason() {
    let local = ["--local", "/a"];
    for (args, stdin, says) in [
        (&[][..], "", "--nfs"),
        (&["--local", "/a", "--nfs", "a:/b"], "", "cannot be used with"),
        (&["--nfs", "nas"], "", "SERVER:/PATH"),
        (&["--local", "a"], "", "not an absolute path"),
        (&["--local", "/a/../b"], "", "contains `..`"),
        (&[local[0], local[1], "--size", "1Gi"], "", "less than the 3Gi"),
        (&[local[0], local[1], "--size", "big"], "", "is not a size"),
        (&[local[0], local[1], "--read-only"], "", "no meaning for local"),
        (&["--nfs", "a:/b", "--fs-type", "xfs"], "", "no meaning for nfs"),
        (&[local[0], local[1], "--annotation", "x"], "", "KEY=VALUE"),
        (&[local[0], local[1], "--affinity", "=x"], "", "KEY=VALUE"),
        (&["--from", "/no/such/file"], "", "/no/such/file"),
        (&["--from", "-"], "capacity: {storage: 9Gi}", "exactly one volume source"),
        (&["--from", "-"], "local: {path: /a}\nnfs: {server: a, path: /b}", "exactly one volume source"),
        (&["--from", "-"], "kind: Pod", "--from"),
        (&["--from", "-"], "nfs: {server: a, path: /b}\ncapacity: {storage: 1}", "less than"),
    ] {
        let ended = flex_pv(&[&["create", "--dry-run"], args].concat(), &[], stdin);
        assert_eq!((ended.code, ended.out.as_str()), (64, ""), "{args:?}");
        assert!(ended.termination_message.contains(says), "{args:?}: {}", ended.termination_message);
        assert!(ended.err.contains(says), "{args:?}: {}", ended.err);
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let args = ["create", "--dry-run", "--host-path", "/a", "--fs-type", "xfs", "--read-only", "--size", "1"];
    let ended = flex_pv(&args, &[("NODE_NAME", ""), ("POD_NODE", "")], "");
    assert_eq!(ended.code, 64);
    for says in ["--fs-type", "--read-only", "less than", "POD_NODE"] {
        assert!(ended.termination_message.contains(says), "{says}: {}", ended.termination_message);
    }
}

#[test]
fn an_invalid_environment_is_reported_by_name() {
    let ended = flex_pv(&["create", "--dry-run", "--nfs", "a:/b"], &[("CLAIM_UUID", ""), ("PV_NAME", "")], "");
    assert_eq!(ended.code, 64);
    assert!(ended.termination_message.contains("CLAIM_UUID, PV_NAME"), "{}", ended.termination_message);
}

#[test]
fn retained_volumes_have_no_finalizer() {
    let ended = flex_pv(&["create", "--dry-run", "--nfs", "a:/b"], &[("RECLAIM_POLICY", "Retain")], "");
    assert!(!ended.out.contains("finalizers"), "{}", ended.out);
}

#[test]
fn the_volume_of_a_clone_is_created_only_by_an_image_that_has_copied() {
    let create = |extra: &[(&str, &str)], more: &[&str]| {
        flex_pv(&[&["create", "--dry-run", "--nfs", "a:/b"], more].concat(), extra, "")
    };
    for (name, says) in [("CLONE_OF", "`clone`"), ("SNAPSHOT_ID", "`snapshot`")] {
        let of = [(name, "c0ffee00-0000-4000-8000-00000000000f")];
        let ended = create(&of, &[]);
        assert_eq!((ended.code, ended.out.as_str()), (65, ""), "{name}: {ended:?}");
        for says in [says, of[0].1, "--copied"] {
            assert!(ended.termination_message.contains(says), "{name}: {ended:?}");
        }
        let ended = create(&of, &["--copied"]);
        assert!(ended.code == 0 && ended.out.contains("nfs:"), "{name}: {ended:?}");
    }
    assert_eq!(create(&[], &["--copied"]).code, 0, "without a data source the option has no effect");
    let snapshot = ("SNAPSHOT_ID", "c0ffee00-0000-4000-8000-00000000000f");
    for operation in ["delete", "expand", "modify", "list", "capacity", "snapshot", "delete-snapshot"] {
        for more in [&[][..], &["--copied"]] {
            let ended = create(&[("OPERATION", operation), snapshot], more);
            assert_eq!((ended.code, ended.out.as_str()), (65, ""), "{operation}: {ended:?}");
            assert!(ended.termination_message.contains(&format!("OPERATION is {operation}")), "{ended:?}");
            let capability = operation.strip_prefix("delete-").unwrap_or(operation);
            let capability = format!("take `{capability}` out of the `capabilities`");
            assert_eq!(ended.termination_message.contains(&capability), operation != "delete", "{ended:?}");
            assert_eq!(ended.termination_message.contains("capabilities"), operation != "delete", "{ended:?}");
        }
    }
}

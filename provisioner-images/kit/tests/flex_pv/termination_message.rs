//! Tests of `flex-pv fail`, and of the file of its message.

use super::tool::flex_pv;

#[test]
fn each_kind_has_its_exit_code() {
    for (kind, code) in [("never", 65), ("no-room", 69), ("retry", 75), ("config", 78)] {
        let ended = flex_pv(&["fail", kind, "the", "disk", "--is", "full"], &[], "");
        assert_eq!(ended.code, code, "{kind}");
        assert_eq!(ended.termination_message, "the disk --is full");
        assert_eq!(ended.err, "the disk --is full\n");
    }
}

#[test]
fn an_invalid_kind_or_message_is_a_usage_error() {
    for args in [&["fail"][..], &["fail", "never"], &["fail", "sometimes", "x"], &["fai", "never", "x"], &[]] {
        let ended = flex_pv(args, &[], "");
        assert_eq!(ended.code, 64, "{args:?}");
        assert!(!ended.termination_message.is_empty(), "{args:?}");
    }
}

#[test]
fn long_messages_are_cut_to_the_kubelet_s_limit() {
    let ended = flex_pv(&["fail", "never", &"ä".repeat(4000)], &[], "");
    assert_eq!(ended.termination_message.len(), 4096);
}

#[test]
fn secrets_of_the_run_are_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("array")).unwrap();
    std::fs::write(folder.path().join("array/key"), "the-array-s-key\n").unwrap();
    let folder = folder.path().to_str().unwrap();
    let secret = [("ARRAY_PASSWORD", "hunter22"), ("FLEX_SECRETS_DIRECTORY", folder)];
    let ended = flex_pv(&["fail", "retry", "login hunter22 the-array-s-key data team"], &secret, "");
    for message in [ended.termination_message.as_str(), ended.err.trim_end()] {
        assert_eq!(message, "login *** *** data team", "{ended:?}");
    }
    // A capacity answer is not masked, even if a secret has its value.
    let ended = flex_pv(&["capacity", "--bytes", "12345678"], &[("ARRAY_PASSWORD", "12345678")], "");
    assert_eq!(ended.termination_message, "flex-capacity 1 12345678\n");
}

#[test]
fn capacity_is_reported_in_one_line() {
    for (args, line) in [
        (&["capacity", "--bytes", "10"][..], "flex-capacity 1 10\n"),
        (&["capacity", "--bytes", "1Ki", "--maximum-volume-size", "1k"], "flex-capacity 1 1024 1000\n"),
    ] {
        let ended = flex_pv(args, &[], "");
        assert_eq!((ended.code, ended.termination_message.as_str()), (0, line), "{args:?}");
    }
    for args in [&["capacity"][..], &["capacity", "--bytes", "-1"], &["capacity", "--bytes", "much"]] {
        assert_eq!(flex_pv(args, &[], "").code, 64, "{args:?}");
    }
}

#[test]
fn help_succeeds() {
    let ended = flex_pv(&["create", "--help"], &[], "");
    assert_eq!(ended.code, 0);
    assert!(ended.out.contains("--on-this-node"), "{}", ended.out);
}

//! `flex-pv fail`, and where its words end up.

use super::tool::flex_pv;

#[test]
fn each_kind_has_its_exit_code() {
    for (kind, code) in [("never", 65), ("no-room", 69), ("retry", 75), ("config", 78)] {
        let ended = flex_pv(&["fail", kind, "the", "disk", "--is", "full"], &[], "");
        assert_eq!(ended.code, code, "{kind}");
        assert_eq!(ended.last_words, "the disk --is full");
        assert_eq!(ended.err, "the disk --is full\n");
    }
}

#[test]
fn a_kind_or_message_that_is_none_is_a_usage_error() {
    for args in [&["fail"][..], &["fail", "never"], &["fail", "sometimes", "x"], &["fai", "never", "x"], &[]] {
        let ended = flex_pv(args, &[], "");
        assert_eq!(ended.code, 64, "{args:?}");
        assert!(!ended.last_words.is_empty(), "{args:?}");
    }
}

#[test]
fn long_words_are_cut_to_what_the_kubelet_keeps() {
    let ended = flex_pv(&["fail", "never", &"ä".repeat(4000)], &[], "");
    assert_eq!(ended.last_words.len(), 4096);
}

#[test]
fn help_is_no_failure() {
    let ended = flex_pv(&["create", "--help"], &[], "");
    assert_eq!(ended.code, 0);
    assert!(ended.out.contains("--on-this-node"), "{}", ended.out);
}

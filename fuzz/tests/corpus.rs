//! Runs the corpus without a fuzzer. It contains each input that has ever failed.

use std::fs;
use std::path::{Path, PathBuf};

use fuzz::TARGETS;

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

fn inputs(target: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(folder(target)).unwrap_or_else(|error| panic!("the corpus of {target}: {error}"));
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_input_of_the_corpus_passes() {
    let mut failed = Vec::new();
    for (target, check) in TARGETS {
        for file in inputs(target) {
            let data = fs::read(&file).unwrap();
            if std::panic::catch_unwind(|| check(&data)).is_err() {
                failed.push(file);
            }
        }
    }
    assert!(failed.is_empty(), "these inputs fail: {failed:?}");
}

#[test]
fn every_target_has_a_program_and_a_corpus() {
    for (target, _) in TARGETS {
        assert!(!inputs(target).is_empty(), "{target} has no corpus");
        let program = fs::read_to_string(folder("../fuzz_targets").join(format!("{target}.rs"))).unwrap();
        assert!(program.contains(&format!("fuzz::{target}::check(data)")), "{program}");
    }
    let programs = fs::read_dir(folder("../fuzz_targets")).unwrap().count();
    assert_eq!(programs, TARGETS.len());
}

/// A check that cannot fail would accept everything.
#[test]
fn a_check_fails_if_a_property_does_not_hold() {
    let marked = serde_json::json!({
        "metadata": { "annotations": { "a": format!("x{}", fuzz::draw::MARKER) } },
        "spec": { "command": [fuzz::draw::MARKER], fuzz::draw::MARKER: 1 },
    });
    let found: Vec<_> = fuzz::world::marked(&marked).into_iter().collect();
    let expected = ["/metadata/annotations/*", "/spec/command/*"].map(str::to_owned);
    assert_eq!(found[..2], expected);
    assert_eq!(found[2], format!("the key /spec/{}", fuzz::draw::MARKER));
    for text in ["a\u{1b}[2J", "much too long"] {
        assert!(std::panic::catch_unwind(|| fuzz::world::check_request_size(text, 8)).is_err(), "{text:?}");
    }
}

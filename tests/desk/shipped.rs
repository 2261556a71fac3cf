//! The shipped images and configs keep the contract. The page `docs/reference/conformance-of-images.md` has the results.
//!
//! `UPDATE_PAGES=1 cargo test --test desk shipped` rewrites the page.

use std::fs;
use std::path::Path;

use ganesha::{Ganesha, Options};
use serde_json::Value;

use crate::{Answer, built, call};

/// The page with the results.
const PAGE: &str = "docs/reference/conformance-of-images.md";
/// The lines around the table.
const EDGES: [&str; 2] =
    ["<!-- printed from tests/desk/shipped.rs: begin -->\n", "<!-- printed from tests/desk/shipped.rs: end -->\n"];

/// The arguments of a class whose directories have names by a pattern.
const NAMED: [&str; 4] = ["--set", "storage-mounts=", "--set", "path-pattern=${pvc.namespace}/${pvc.name}/${pv.name}"];

/// Runs all cases on a config, and returns a line of the table.
fn row(config: &str, arguments: &[&str]) -> String {
    changed_row(config, "", arguments)
}

/// Runs all cases on a config with a change, which the table names.
fn changed_row(config: &str, change: &str, arguments: &[&str]) -> String {
    let path = format!("configmaps/{config}");
    let answer: Answer = call(&[&["conformance", "-o", "json", "--config", &path], arguments].concat());
    let document: Value = serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    let cases = document["cases"].as_array().expect("a list of cases");
    let of = |outcome: &'static str| cases.iter().filter(move |case| case["outcome"] == outcome);
    let failed: Vec<String> = of("failed").map(|case| format!("{}: {}", case["id"], case["why"])).collect();
    assert!(failed.is_empty() && answer.code == Some(0), "{config}: {}", failed.join("\n"));
    // The words about a capability are the same for all its cases.
    let skipped = of("skipped").map(|case| {
        let (id, why) = (case["id"].as_str().unwrap_or_default(), case["why"].as_str().unwrap_or_default());
        match why.contains("capability") {
            true => format!("`{id}`"),
            false => format!("`{id}` ({why})"),
        }
    });
    let skipped: Vec<String> = skipped.collect();
    format!("| [{config}](../../{path}){change} | {} | {} |\n", of("passed").count(), skipped.join(", "))
}

#[test]
fn the_shipped_images_pass_and_the_page_says_so() {
    let script = "provisioner-images/hostpath/provision.sh";
    let server = Ganesha::start(Options::default());
    let (port, nfs) = (format!("port={}", server.port()), built("nfs-provisioner", "nfs-provisioner"));
    let of_server = ["--set", "server=127.0.0.1", "--set", &port, "--set", "on-delete=delete"];
    let export = format!("export={}", Ganesha::EXPORT);
    let nfs = nfs.to_str().expect("UTF-8");
    let rows = [
        row("script.yaml", &[]),
        row("hostpath.yaml", &[script]),
        changed_row("hostpath.yaml", " with `path-pattern`", &[&NAMED[..], &[script]].concat()),
        row("hostpath-pure.yaml", &[script]),
        row("nfs.yaml", &[&of_server[..], &["--set", &export, nfs]].concat()),
    ];
    let table = format!("\n| config | cases that pass | cases that are skipped |\n|---|---|---|\n{}\n", rows.concat());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(EDGES[0]).expect("the page has the first edge");
    let (_, after) = rest.split_once(EDGES[1]).expect("the page has the last edge");
    let renewed = format!("{before}{}{table}{}{after}", EDGES[0], EDGES[1]);
    if std::env::var_os("UPDATE_PAGES").is_some() {
        fs::write(&path, &renewed).unwrap();
    } else {
        assert_eq!(text, renewed, "UPDATE_PAGES=1 cargo test --test desk shipped");
    }
}

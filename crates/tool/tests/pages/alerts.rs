//! The alerts: their page, which is their runbook, and their tests, which `promtool` runs in `make lint`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::root;

const PAGE: &str = "docs/reference/alerts.md";

fn text(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn yaml(file: &str) -> Value {
    serde_saphyr::from_str(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the alerts by name.
fn alerts() -> BTreeMap<String, Value> {
    let rules = yaml("deploy/dashboards/alerts.yaml");
    let rules = rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    rules.map(|rule| (rule["alert"].as_str().expect("each rule is an alert").to_owned(), rule.clone())).collect()
}

/// Returns the headings of the page with two number signs.
fn sections() -> BTreeSet<String> {
    text(PAGE).lines().filter_map(|line| line.strip_prefix("## ").map(str::to_owned)).collect()
}

#[test]
fn each_alert_links_to_its_section_of_the_page_of_alerts() {
    let alerts = alerts();
    assert_eq!(alerts.keys().cloned().collect::<BTreeSet<_>>(), sections(), "{PAGE} has a section for each alert");
    let page = format!("{}/blob/main/{PAGE}", env!("CARGO_PKG_REPOSITORY"));
    for (name, alert) in alerts {
        let url = alert["annotations"]["runbook_url"].as_str();
        // In the link to a heading of one word, the word is in lower case.
        assert_eq!(url, Some(format!("{page}#{}", name.to_lowercase()).as_str()), "{name}");
    }
}

#[test]
fn each_alert_says_what_is_wrong_and_which_orchestrator_it_concerns() {
    for (name, alert) in alerts() {
        for annotation in ["summary", "description"] {
            let is_empty = alert["annotations"][annotation].as_str().unwrap_or_default().is_empty();
            assert!(!is_empty, "{name} has no {annotation}");
        }
        let query = alert["expr"].as_str().unwrap();
        let groupings: Vec<&str> = query.split("by (").skip(1).collect();
        assert!(!groupings.is_empty(), "{name} has no grouping");
        for grouping in groupings {
            assert!(grouping.starts_with("cluster, orchestrator"), "{name}: by ({grouping}");
        }
        // Other provisioners have series of these names, too.
        for series in query.split("controller_").skip(1) {
            assert!(series.contains(r#"{orchestrator!=""}"#), "{name}: controller_{series}");
        }
    }
}

#[test]
fn each_alert_has_a_test_that_fires_it_and_one_that_does_not() {
    let mut fired: BTreeMap<String, BTreeSet<bool>> = BTreeMap::new();
    let tests = yaml("deploy/dashboards/alerts.test.yaml");
    let tests = tests["tests"].as_array().unwrap().iter();
    for test in tests.flat_map(|test| test["alert_rule_test"].as_array().unwrap()) {
        let expected = test["exp_alerts"].as_array().is_some_and(|expected| !expected.is_empty());
        fired.entry(test["alertname"].as_str().unwrap().to_owned()).or_default().insert(expected);
    }
    let both = BTreeSet::from([false, true]);
    let expected: BTreeMap<String, BTreeSet<bool>> = alerts().into_keys().map(|name| (name, both.clone())).collect();
    assert_eq!(fired, expected);
}

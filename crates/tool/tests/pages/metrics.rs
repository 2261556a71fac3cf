//! The table of metrics in `docs/operations.md`, and the metrics that dashboard and alerts name.

use std::collections::BTreeSet;
use std::fs;

use flex_provisioner::metrics::{MetricKind, MetricSpec, Metrics, ORCHESTRATOR};
use serde_json::Value;

use crate::{Part, code, in_one_line, root, table};

const ALERTS: &str = "deploy/dashboards/alerts.yaml";
const DASHBOARD: &str = "deploy/dashboards/flex-provisioner.json";

pub fn parts() -> Vec<Part> {
    let print = |_: &str, _: &str| {
        let rows = Metrics::ALL.iter().map(|spec| {
            vec![code(&spec.exposed()), spec.kind.to_string(), spec.labels.join(", "), in_one_line(spec.doc)]
        });
        let all = format!("Each series also has the label `{ORCHESTRATOR}`, with the value of `--instance`.");
        format!("\n{all}\n\n{}\n", table(&["name", "type", "labels", "meaning"], rows))
    };
    vec![Part { file: "docs/operations.md", source: "src/metrics.rs", name: "", print }]
}

/// Returns the names of all series of a metric.
fn series(spec: &MetricSpec) -> Vec<String> {
    match spec.kind {
        MetricKind::Histogram => ["bucket", "sum", "count"].map(|part| format!("{}_{part}", spec.name)).into(),
        MetricKind::Counter | MetricKind::Gauge => vec![spec.exposed()],
    }
}

/// Returns the words of a text that are names of series, as far as their beginning says.
fn named(text: &str) -> BTreeSet<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let prefixes = ["flex_", "controller_persistentvolume", "process_"];
    text.split(|c| !is_word(c)).filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))).collect()
}

/// Returns the queries of the dashboard.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(root().join(DASHBOARD)).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().expect("each target has a query").to_owned()).collect()
}

#[test]
fn dashboard_and_alerts_name_only_existing_metrics() {
    let exposed: BTreeSet<String> = Metrics::ALL.iter().flat_map(series).collect();
    for file in [ALERTS, DASHBOARD] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let named = named(&text);
        assert!(named.len() > 3, "{file} names few metrics: {named:?}");
        for name in named {
            assert!(exposed.contains(name), "{file}: the metric {name} does not exist");
        }
    }
}

#[test]
fn the_dashboard_shows_every_metric() {
    let queries = queries().join("\n");
    let shown = named(&queries);
    for spec in Metrics::ALL {
        let is_shown = series(spec).iter().any(|series| shown.contains(series.as_str()));
        assert!(is_shown, "{DASHBOARD}: no panel shows {}", spec.exposed());
    }
}

#[test]
fn each_query_of_the_dashboard_selects_orchestrators() {
    for query in queries() {
        for name in named(&query) {
            for (at, _) in query.match_indices(name) {
                let selector = &query[at + name.len()..];
                assert!(selector.starts_with(r#"{orchestrator=~"$orchestrator""#), "{name} in {query}");
            }
        }
    }
}

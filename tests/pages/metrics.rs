//! The table of metrics in `docs/operations.md`, and the metrics that dashboard and alerts name.

use std::collections::BTreeSet;
use std::fs;

use flex_provisioner::metrics::{MetricKind, Metrics};

use crate::{Part, code, in_one_line, root, table};

pub fn parts() -> Vec<Part> {
    let print = |_: &str, _: &str| {
        let rows = Metrics::ALL.iter().map(|spec| {
            vec![code(&spec.exposed()), spec.kind.to_string(), spec.labels.join(", "), in_one_line(spec.doc)]
        });
        format!("\n{}\n", table(&["name", "type", "labels", "meaning"], rows))
    };
    vec![Part { file: "docs/operations.md", source: "src/metrics.rs", name: "", print }]
}

#[test]
fn dashboard_and_alerts_name_only_existing_metrics() {
    let mut exposed = BTreeSet::new();
    for spec in Metrics::ALL {
        exposed.insert(spec.exposed());
        if spec.kind == MetricKind::Histogram {
            exposed.extend(["bucket", "sum", "count"].map(|part| format!("{}_{part}", spec.name)));
        }
    }
    for file in ["deploy/dashboards/alerts.yaml", "deploy/dashboards/flex-provisioner.json"] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let texts = text.split(|c| !is_word(c));
        let named: BTreeSet<&str> =
            texts.filter(|word| word.starts_with("flex_") || word.starts_with("controller_persistentvolume")).collect();
        assert!(named.len() > 3, "{file} names few metrics: {named:?}");
        for name in named {
            assert!(exposed.contains(name), "{file}: the metric {name} does not exist");
        }
    }
}

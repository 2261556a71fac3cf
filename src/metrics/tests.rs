//! Tests of the table and of the functions that set the metrics.

use std::time::{Duration, Instant};

use flex_contract::operation::Operation;
use flex_core::capacity::{CapacityRecord, Published};
use flex_core::claim::progress::Progress;
use flex_core::claim::timeline::{Stage, Timeline};
use flex_core::config::Problem;
use flex_core::config::classes::Verdict;
use flex_core::findings::FindingKind;
use flex_core::object::ObjectName;

use super::*;

/// Returns the names of the labels of a line such as `name{a="x",b="y"} 1`.
fn labels(line: &str) -> Vec<&str> {
    let labels = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(labels, _)| labels);
    labels.split("=\"").filter_map(|part| part.rsplit(['"', ',']).next()).filter(|name| !name.is_empty()).collect()
}

#[test]
fn each_category_of_errors_is_documented() {
    let errors = Metrics::ALL.iter().find(|spec| spec.name == "flex_errors").unwrap();
    for category in <ErrorCategory as strum::VariantArray>::VARIANTS {
        assert!(errors.doc.concat().contains(&format!("`{}`", category.as_str())), "{category:?}");
    }
}

#[test]
fn each_metric_is_counted_and_has_the_labels_of_its_documentation() {
    let metrics = Metrics::default();
    let published = Published { class: "c".into(), record: Some(CapacityRecord::default()), ..Published::default() };
    metrics.provisioned("c", "", Duration::from_secs(1));
    metrics.provision_failed("c", "");
    metrics.deleted("c", Duration::from_secs(1));
    metrics.pv_synced(Duration::from_millis(20));
    metrics.capacities([&published].into_iter());
    metrics.capacity_run(true);
    metrics.snapshot_run(Operation::Snapshot, true);
    metrics.ready([(("c".to_owned(), 1), 1)].into());
    metrics.batch("c", 2);
    metrics.step_failed(ErrorCategory::Conflict);
    metrics.findings([FindingKind::NodeGone].iter());
    metrics.orphan_removed(FindingKind::JobFinished);
    metrics.configs([(&ObjectName::new("n", "c"), &Verdict::default())].into_iter());
    metrics.requested("get", RequestCode::Error, Duration::from_millis(1));
    metrics.watch_restarts("Pod");
    metrics.lease_age.begin(Instant::now());
    let waiting = Waiting { claims: 1, oldest: 2 };
    metrics.in_progress([(("c".into(), Progress::Waiting), waiting)].into(), [("provision".into(), 1)].into());
    metrics.outages(vec![("c".to_owned(), Operation::Provision)]);
    metrics.reconciled("claim", Duration::from_millis(1));
    metrics.reached("c", &{
        let mut timeline = Timeline::new(1, 0);
        timeline.reach(Stage::Bound, 1);
        timeline
    });
    type Counts = fn(&Metrics, &str);
    let by_class: [Counts; 8] = [
        Metrics::abandoned,
        Metrics::delete_failed,
        Metrics::expanded,
        Metrics::expand_failed,
        Metrics::modified,
        Metrics::modify_failed,
        Metrics::pool_hit,
        Metrics::pool_miss,
    ];
    by_class.iter().for_each(|count| count(&metrics, "c"));
    let text = metrics.text();
    for spec in Metrics::ALL {
        let name = match spec.kind {
            MetricKind::Histogram => format!("{}_count", spec.name),
            _ => spec.exposed(),
        };
        let is_of = |line: &&str| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        let line = text.lines().find(is_of).unwrap_or_else(|| panic!("no line counts {name}: {text}"));
        assert_eq!(labels(line), spec.labels, "{line}");
        assert!(text.contains(&format!("# TYPE {} {}\n", spec.name, spec.kind)), "{name}: {text}");
    }
}

#[test]
fn each_rule_is_known_before_it_applies() {
    use flex_core::run::{self, rule::Target};
    use flex_core::tables::Series;
    use flex_core::volume::rule::Rule;
    let metrics = Metrics::default();
    let is_line = |line: &&str| line.starts_with("flex_decisions_total{");
    let rules = tables::series().len();
    assert_eq!(metrics.text().lines().filter(is_line).count(), rules);
    metrics.decided(Rule::ConfirmClaimGone);
    metrics.decided(Rule::Run(Target::Storage, run::rule::Rule::RunDue));
    let text = metrics.text();
    for (run, rule, count) in [("", "ConfirmClaimGone", 1), ("storage", "RunDue", 1), ("size", "RunDue", 0)] {
        let line = format!("flex_decisions_total{{object=\"volume\",run=\"{run}\",rule=\"{rule}\"}} {count}\n");
        assert!(text.contains(&line), "{line} is not in {text}");
        assert_eq!(metrics.decisions(Series { object: "volume", run, rule }), count);
    }
    assert_eq!(text.lines().filter(is_line).count(), rules);
}

#[test]
fn capacity_metrics_show_the_published_capacity() {
    let metrics = Metrics::default();
    let published = |class: &str, node: &str, bytes: u64, asked: bool| Published {
        class: class.into(),
        topology: [("kubernetes.io/hostname".to_owned(), node.to_owned())].into(),
        bytes,
        record: asked.then(CapacityRecord::default),
        ..Published::default()
    };
    let (a, b) = (published("c", "a", 10, true), published("c", "b", u64::MAX, true));
    metrics.capacities([&a, &b, &published("unasked", "a", 1, false)].into_iter());
    metrics.capacity_run(true);
    let line = |node: &str, bytes: u64| {
        format!("flex_capacity_bytes{{class=\"c\",topology=\"kubernetes.io/hostname={node}\"}} {bytes}\n")
    };
    let text = metrics.text();
    assert!(text.contains(&line("a", 10)) && text.contains(&line("b", u64::MAX)), "{text}");
    assert!(!text.contains("unasked"), "{text}");
    assert!(text.contains("flex_capacity_runs_total{operation=\"capacity\",outcome=\"done\"} 1\n"), "{text}");
    metrics.capacities([&a].into_iter());
    assert!(metrics.text().contains(&line("a", 10)) && !metrics.text().contains(&line("b", u64::MAX)));
    metrics.forget();
    assert!(!metrics.text().contains("flex_capacity_bytes{"));
}

#[test]
fn each_series_names_the_orchestrator() {
    let metrics = Metrics::of("second");
    metrics.provisioned("c", "", Duration::from_secs(1));
    metrics.lease_age.begin(Instant::now());
    let text = metrics.text();
    let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(series.len() > 100, "{text}");
    for line in series {
        let (_, labels) = line.split_once('{').unwrap_or_else(|| panic!("{line} has no labels"));
        assert!(labels.starts_with("orchestrator=\"second\""), "{line}");
    }
}

#[test]
fn a_config_has_one_state_and_loses_it_with_the_lead() {
    let metrics = Metrics::default();
    let problem = || vec![Problem::new("timeout", "is no duration")];
    let verdicts = [
        (ObjectName::new("n", "fine"), Verdict::default()),
        (ObjectName::new("n", "doubtful"), Verdict { warnings: problem(), ..Verdict::default() }),
        (ObjectName::new("n", "wrong"), Verdict { problems: problem(), warnings: problem(), ..Verdict::default() }),
    ];
    metrics.configs(verdicts.iter().map(|(name, verdict)| (name, verdict)));
    let states = |metrics: &Metrics| {
        let text = metrics.text();
        let mut states: Vec<String> =
            text.lines().filter_map(|line| line.strip_prefix("flex_config_state").map(str::to_owned)).collect();
        states.sort();
        states
    };
    assert_eq!(
        states(&metrics),
        [
            "{config=\"n/doubtful\",state=\"warnings\"} 1",
            "{config=\"n/fine\",state=\"accepted\"} 1",
            "{config=\"n/wrong\",state=\"refused\"} 1",
        ]
    );
    let text = metrics.text();
    assert!(text.contains("\nflex_configs 3\n") && text.contains("\nflex_configs_refused 1\n"), "{text}");
    metrics.forget();
    assert_eq!(states(&metrics), [""; 0]);
    assert!(metrics.text().contains("\nflex_configs 0\n"));
}

#[test]
fn an_age_is_absent_without_an_event_and_grows_with_it() {
    let metrics = Metrics::default();
    let age = || {
        let text = metrics.text();
        let value = text.lines().find_map(|line| line.strip_prefix("flex_lease_age_seconds "));
        value.map(|value| value.parse::<f64>().unwrap())
    };
    assert_eq!(age(), None);
    metrics.lease_age.begin(Instant::now().checked_sub(Duration::from_secs(7)).unwrap());
    let first = age().unwrap();
    assert!((7.0..60.0).contains(&first), "{first}");
    assert!(age().unwrap() >= first);
    metrics.lease_age.forget();
    assert_eq!(age(), None);
}

#[test]
fn requests_are_counted_by_verb_and_code() {
    let metrics = Metrics::default();
    for code in [RequestCode::Status(200), RequestCode::Status(200), RequestCode::Error] {
        metrics.requested("get", code, Duration::from_millis(3));
    }
    let text = metrics.text();
    for line in [
        "flex_api_request_duration_seconds_count{verb=\"get\",code=\"200\"} 2\n",
        "flex_api_request_duration_seconds_count{verb=\"get\",code=\"error\"} 1\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[test]
fn a_watch_counts_from_zero() {
    let metrics = Metrics::default();
    let restarts = metrics.watch_restarts("Pod");
    let line = |count: u64| format!("flex_watch_restarts_total{{kind=\"Pod\"}} {count}\n");
    assert!(metrics.text().contains(&line(0)));
    restarts.inc();
    assert!(metrics.text().contains(&line(1)));
}

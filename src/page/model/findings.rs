//! The findings of the last sweep.

use flex_core::findings::Severity;
use serde::Serialize;

use super::{Rows, message, name};
use crate::reconcile::SweepReport;

/// The findings of the last sweep.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    /// The time of the sweep, in seconds since 1970; `None` before the first.
    pub swept_at: Option<i64>,
    /// The seconds between two sweeps; `None` if the flags turn them off.
    pub interval: Option<u64>,
    /// The findings, the most severe first.
    pub findings: Rows<FindingRow>,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FindingRow {
    /// The kind.
    pub kind: &'static str,
    /// The severity: `error`, `warning` or `info`.
    pub severity: &'static str,
    /// The object, with its kind.
    pub object: String,
    /// The time since when, in seconds since 1970, where it is known.
    pub since: Option<i64>,
    /// The meaning of the kind.
    pub meaning: &'static str,
    /// The problem.
    pub detail: String,
    /// The remedy.
    pub remedy: String,
}

impl Findings {
    /// Describes the report of a sweep; `interval` in seconds.
    pub fn of(report: &SweepReport, interval: Option<u64>) -> Self {
        let rows = report.findings.iter().map(|finding| FindingRow {
            kind: finding.kind.as_str(),
            severity: severity(finding.severity),
            object: name(&finding.object.to_string()),
            since: finding.since,
            meaning: finding.kind.meaning(),
            detail: message(&finding.detail),
            remedy: message(&finding.remedy),
        });
        let mut findings = Rows::cut(rows.collect());
        findings.more = report.total.saturating_sub(findings.rows.len());
        Findings { swept_at: report.at, interval, findings }
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "info",
    }
}

#[cfg(test)]
mod tests {
    use flex_core::findings::Finding;
    use flex_core::object::ObjectName;

    use super::*;

    #[test]
    fn findings_are_counted_also_where_the_sweep_kept_only_some() {
        let finding = Finding::without_account(ObjectName::new("admin", "gold"), "robot\u{202e}");
        let report = SweepReport { at: Some(5), findings: vec![finding], total: 3 };
        let Findings { swept_at, interval, findings } = Findings::of(&report, Some(600));
        assert_eq!((swept_at, interval, findings.more, findings.rows.len()), (Some(5), Some(600), 2, 1));
        let row = &findings.rows[0];
        assert_eq!((row.kind, row.object.as_str()), ("account-missing", "ConfigMap admin/gold"));
        assert!(row.detail.contains("robot\\u{202e}") && !row.remedy.is_empty(), "{row:?}");
        assert_eq!(severity(Severity::Info), "info");
    }

    #[test]
    fn nothing_is_known_before_the_first_sweep() {
        let Findings { swept_at, findings, .. } = Findings::of(&SweepReport::default(), None);
        assert_eq!((swept_at, findings), (None, Rows::default()));
    }
}

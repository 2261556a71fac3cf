//! The findings of the last sweep.

use flex_core::findings::Finding;
use serde::Serialize;

use super::Rows;
use crate::reconcile::SweepReport;

/// The findings of the last sweep.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    /// The time of the sweep, in seconds since 1970; `None` before the first.
    pub swept_at: Option<i64>,
    /// The seconds between two sweeps; `None` if the flags turn them off.
    pub interval: Option<u64>,
    /// The findings, the most severe first. Their texts are as others wrote them.
    pub findings: Rows<Finding>,
}

impl Findings {
    /// Describes the report of a sweep; `interval` in seconds.
    pub fn of(report: &SweepReport, interval: Option<u64>) -> Self {
        let mut findings = Rows::cut(report.findings.clone());
        findings.more = report.total.saturating_sub(findings.rows.len());
        Findings { swept_at: report.at, interval, findings }
    }
}

#[cfg(test)]
mod tests {
    use flex_core::object::ObjectName;

    use super::*;

    #[test]
    fn findings_are_counted_also_where_the_sweep_kept_only_some() {
        let finding = Finding::without_account(ObjectName::new("admin", "gold"), "robot");
        let report = SweepReport { at: Some(5), findings: vec![finding.clone()], total: 3 };
        let Findings { swept_at, interval, findings } = Findings::of(&report, Some(600));
        assert_eq!((swept_at, interval, findings), (Some(5), Some(600), Rows { rows: vec![finding], more: 2 }));
        let Findings { swept_at, findings, .. } = Findings::of(&SweepReport::default(), None);
        assert_eq!((swept_at, findings), (None, Rows::default()), "nothing is known before the first sweep");
    }
}

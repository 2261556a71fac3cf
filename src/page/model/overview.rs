//! The overview: the classes with their limits and pools, and the admission policies.

use std::time::Duration;

use flex_core::policies::CheckedPolicy;
use serde::Serialize;

use super::message;
use crate::last_hour::BoundClaims;
use crate::overview;

/// The overview.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// The classes that the orchestrator serves, by name.
    pub classes: Vec<ClassRow>,
    /// The admission policies.
    pub policies: Policies,
    /// The work items that wait.
    pub queue: usize,
    /// The Jobs in progress.
    pub runs: usize,
}

/// The admission policies, as they were when the process began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policies {
    /// The policies; empty if they are not known.
    pub policies: Vec<PolicyRow>,
    /// The reason why they are not known.
    pub unknown: Option<String>,
}

/// An admission policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRow {
    /// The name.
    pub name: &'static str,
    /// The policy works as shipped.
    pub is_installed: bool,
    /// The state.
    pub state: String,
    /// What is off without the policy; `None` if it works.
    pub without: Option<&'static str>,
}

impl Policies {
    /// Describes the policies. `None` as the argument means that they have not been read yet.
    pub fn of(read: Option<&Result<Vec<CheckedPolicy>, String>>) -> Self {
        let states = match read {
            Some(Ok(states)) => states,
            Some(Err(why)) => return Policies { unknown: Some(message(why)), ..Policies::default() },
            None => return Policies { unknown: Some("they are being read".into()), ..Policies::default() },
        };
        let row = |CheckedPolicy { policy, state }: &CheckedPolicy| PolicyRow {
            name: policy.name,
            is_installed: state.is_installed(),
            state: state.describe(),
            without: (!state.is_installed()).then_some(policy.without),
        };
        Policies { policies: states.iter().map(row).collect(), unknown: None }
    }
}

/// A class.
#[derive(Clone, Debug, Serialize)]
pub struct ClassRow {
    /// The class, as `status` shows it. Its texts are as others wrote them.
    #[serde(flatten)]
    pub row: overview::ClassRow,
    /// The claims that were bound within the last hour.
    pub hour: Hour,
}

/// The claims that were bound within the last hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hour {
    /// Their number.
    pub bound: u64,
    /// The time that half of them needed at most, in seconds.
    pub p50: Option<f64>,
    /// The time that 95 of 100 needed at most, in seconds.
    pub p95: Option<f64>,
}

impl From<BoundClaims> for Hour {
    fn from(bound: BoundClaims) -> Self {
        // The histogram knows no more digits.
        let rounded = |time: Duration| (time.as_secs_f64() * 100.0).round() / 100.0;
        Hour { bound: bound.count, p50: bound.p50.map(rounded), p95: bound.p95.map(rounded) }
    }
}

#[cfg(test)]
mod tests {
    use flex_core::policies;

    use super::*;

    #[test]
    fn policies_are_known_or_the_reason_is_shown() {
        assert_eq!(Policies::of(None).unknown.as_deref(), Some("they are being read"));
        assert_eq!(Policies::of(Some(&Err("forbidden".into()))).unknown.as_deref(), Some("forbidden"));
        let missing = Policies::of(Some(&Ok(policies::states(&[]))));
        assert!(!missing.policies.is_empty() && missing.unknown.is_none());
        assert!(missing.policies.iter().all(|row| !row.is_installed && row.without.is_some()));
    }
}

//! A finding, with its remedy.

use super::kind::{FindingKind, Severity};
use crate::model::object_ref::ObjectRef;
use crate::object::ObjectName;
use crate::policies::{INSTALL, Policy, PolicyState};

/// The age below which an object may be in progress and not yet in each cache, in seconds.
pub const MIN_AGE: i64 = 20;
/// The duration after which work in progress counts as stuck, in seconds.
pub const STUCK_AFTER: i64 = 600;

/// A safe way to fix a finding. It deletes an object of the orchestrator that nothing can need any more, or repairs
/// without harm.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Removal {
    /// Deletes a Job with its pods, after the API has confirmed that nothing needs them. No claim has this id, or the
    /// claim is bound and settled; and no volume has this name.
    Job {
        /// The claim that must be gone, or settled.
        claim: String,
        /// The volume that must be gone; `None` for runs of a claim.
        volume: Option<String>,
    },
    /// Deletes a finished pod, if the API confirms that no claim has this id.
    Pod {
        /// The claim that must be gone.
        claim: String,
    },
    /// Deletes a finished Job that is older than its time to live.
    OldJob,
    /// Deletes a stuck Job. The reconciler that created the run begins it again.
    StalledJob,
    /// Deletes a copy of another cluster's Job.
    CopiedJob,
    /// Gives a restored volume its adoption mark again. Only at the request of an admin.
    Vouch,
    /// Deletes a revision.
    Revision {
        /// The hash of the revision.
        hash: String,
    },
}

/// An orphaned or stuck object.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The kind of the finding.
    pub kind: FindingKind,
    /// The severity of the finding.
    pub severity: Severity,
    /// The meaning of the kind.
    pub meaning: &'static str,
    /// The object of the finding.
    pub object: ObjectRef,
    /// The time since when, in seconds since 1970, where it is known.
    pub since: Option<i64>,
    /// The problem.
    pub detail: String,
    /// The remedy: a command, or where to look.
    pub remedy: String,
    /// The safe way to fix the finding, if there is one.
    pub removal: Option<Removal>,
}

impl Finding {
    pub(super) fn new(
        kind: FindingKind,
        object: ObjectRef,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (detail, remedy) = (detail.into(), remedy.into());
        let (severity, meaning) = (kind.severity(), kind.meaning());
        Finding { kind, severity, meaning, object, since: None, detail, remedy, removal: None }
    }

    /// Makes the finding that no orchestrator holds the Lease; `idle` is the number of seconds since its last renewal.
    pub fn no_leader(lease: ObjectName, idle: Option<i64>) -> Self {
        let detail = match idle {
            Some(idle) => format!("nobody has renewed the Lease for {idle} s"),
            None => "there is no Lease: no orchestrator of this instance has ever led".to_owned(),
        };
        let remedy = format!("kubectl -n {} get pods,lease", lease.namespace);
        Finding::new(
            FindingKind::NoLeader,
            ObjectRef { kind: "Lease", name: lease, uid: String::new() },
            detail,
            remedy,
        )
    }

    /// Makes the finding that a config names a ServiceAccount that does not exist in its namespace.
    pub fn without_account(config: ObjectName, account: &str) -> Self {
        let namespace = &config.namespace;
        let detail =
            format!("its `service-account-name` is `{account}`, and the namespace {namespace} has no such account");
        let remedy = format!(
            "correct the key, or kubectl -n {namespace} create serviceaccount {account}, and bind it to the ClusterRole flex-provisioner-image"
        );
        Finding::new(
            FindingKind::AccountMissing,
            ObjectRef { kind: "ConfigMap", name: config, uid: String::new() },
            detail,
            remedy,
        )
    }

    /// Makes the finding about the state of an admission policy; `None` if the policy works as shipped.
    pub fn of_policy(policy: &Policy, state: &PolicyState) -> Option<Self> {
        let kind = match state {
            PolicyState::Installed | PolicyState::Limited => return None,
            PolicyState::Missing => FindingKind::PolicyMissing,
            PolicyState::Unbound | PolicyState::Differs(_) => FindingKind::PolicyOutdated,
        };
        let object =
            ObjectRef { kind: policy.kind.policy(), name: ObjectName::new("", policy.name), uid: String::new() };
        Some(Finding::new(kind, object, format!("it is {}: {}", state.describe(), policy.without), INSTALL))
    }

    pub(super) fn since(self, since: i64) -> Self {
        Finding { since: Some(since), ..self }
    }

    pub(super) fn removed_by(self, removal: Removal) -> Self {
        Finding { removal: Some(removal), ..self }
    }
}

/// Writes what to do after a failed run, and what else if that does not help.
pub(super) fn correct_or(else_by_hand: &str) -> String {
    format!("correct the image, the script or the config: a run is then tried at once; else {else_by_hand}")
}

//! Everything that the page reads.

use std::sync::{Arc, OnceLock};

use flex_core::policies::CheckedPolicy;
use kube::Client;
use tokio::sync::watch;

use crate::reconcile::Context;

/// The admission policies, once they have been read.
pub type PolicyStates = Arc<OnceLock<Result<Vec<CheckedPolicy>, String>>>;

/// Everything that the page reads.
pub struct Sources {
    /// The cache, the ledgers and the names of the process.
    pub context: Arc<Context>,
    /// The client for the events of a claim.
    pub client: Client,
    /// The name of this replica.
    pub replica: String,
    /// Whether this replica leads.
    pub leading: watch::Receiver<bool>,
    /// The replica that the Lease names; empty for none.
    pub holder: watch::Receiver<String>,
    /// The admission policies.
    pub policies: PolicyStates,
}

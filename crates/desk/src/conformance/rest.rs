//! What a program leaves on its storage when everything is deleted, such as a lock file or a directory of all volumes.

use flex_core::model::claim::Claim;

use super::bench::{Bench, Step, check};
use super::tree::Tree;
use crate::order::{Made, Order};

/// The largest number of paths that a message names.
const SHOWN: usize = 5;

/// What an undisturbed run and its deletion leave; `None` where the case sees no files.
pub(super) struct Rest(Option<Tree>);

impl Rest {
    /// Returns what the storage has now.
    pub(super) fn now(bench: &Bench) -> Self {
        Rest(bench.sees_files().then(|| bench.tree()))
    }

    /// Makes and deletes a volume, and returns what that leaves.
    pub(super) async fn of_volume(bench: &Bench, claim: &Claim) -> Step<Self> {
        if !bench.sees_files() {
            return Ok(Rest(None));
        }
        let made = bench.provision(claim).await?;
        bench.succeed(&Order::Delete(made)).await?;
        bench.forget(claim).await?;
        Ok(Rest::now(bench))
    }

    /// Checks that the storage has no more now, whatever the names.
    pub(super) fn check(&self, bench: &Bench) -> Step<()> {
        let Some(rest) = &self.0 else { return Ok(()) };
        let added = rest.added(&bench.tree());
        check(added.is_empty(), || {
            let more = if added.len() > SHOWN { ", …" } else { "" };
            let shown = added.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
            format!(
                "after the deletion, the storage still has {shown}{more}, which an undisturbed run and its deletion do not leave"
            )
        })
    }

    /// Deletes a volume that a disturbed run and its repetition have made, and checks that the storage has no more then.
    /// Without files there is nothing to compare.
    pub(super) async fn after_deletion(&self, bench: &Bench, made: Made) -> Step<()> {
        if self.0.is_none() {
            return Ok(());
        }
        let claim = made.claim.clone();
        bench.succeed(&Order::Delete(made)).await?;
        bench.forget(&claim).await?;
        bench.check_no_trace(&claim.volume_id())?;
        self.check(bench)
    }
}

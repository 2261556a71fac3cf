//! Cases of delete runs.

use flex_core::object::ObjectName;

use super::bench::{Bench, Step, check};
use super::listed::{list, shown_by_storage, unlisted};
use crate::api::Hold;
use crate::order::{Made, Order};

/// Checks that nothing is left of the volume of the case.
async fn gone(bench: &Bench) -> Step<()> {
    let id = bench.claim().volume_id();
    bench.check_no_trace(&id)?;
    unlisted(bench, &id).await
}

pub(super) async fn delete_gone(bench: &Bench) -> Step<()> {
    let made = bench.provision(&bench.claim()).await?;
    shown_by_storage(bench, &bench.claim().volume_id()).await?;
    bench.succeed(&Order::Delete(made)).await?;
    gone(bench).await
}

pub(super) async fn delete_twice(bench: &Bench) -> Step<()> {
    let made = bench.provision(&bench.claim()).await?;
    bench.succeed(&Order::Delete(made.clone())).await?;
    bench.succeed(&Order::Delete(made)).await.map_err(|halt| halt.during("the second time")).map(drop)
}

pub(super) async fn delete_unknown(bench: &Bench) -> Step<()> {
    let other = bench.numbered(0);
    bench.provision(&other).await?;
    shown_by_storage(bench, &other.volume_id()).await?;
    let before = bench.tree();
    bench.succeed(&Order::Undo { claim: bench.claim() }).await?;
    let changes: Vec<String> = before.changes(&bench.tree());
    let theirs: Vec<String> = changes.into_iter().filter(|path| path.contains(&other.volume_id())).collect();
    check(theirs.is_empty(), || format!("the run has changed {}", theirs.join(", ")))?;
    let Some(entries) = list(bench).await? else { return Ok(()) };
    check(entries.iter().any(|entry| entry.id == other.volume_id()), || {
        "a list run does not print another volume any more".into()
    })
}

pub(super) async fn delete_half_made(bench: &Bench) -> Step<()> {
    let other = bench.numbered(0);
    bench.provision(&other).await?;
    shown_by_storage(bench, &other.volume_id()).await?;
    bench.killed_at(Hold::BeforeCreate).await?;
    bench.succeed(&Order::Undo { claim: bench.claim() }).await?;
    gone(bench).await
}

pub(super) async fn delete_by_id(bench: &Bench) -> Step<()> {
    let mut made = bench.provision(&bench.claim()).await?;
    shown_by_storage(bench, &bench.claim().volume_id()).await?;
    let reference = made.volume.spec.as_mut().and_then(|spec| spec.claim_ref.as_mut());
    if let Some(reference) = reference {
        reference.name = Some("flex-other-claim".into());
        reference.namespace = Some("flex-other-namespace".into());
    }
    made.claim.name = ObjectName::new("flex-other-namespace", "flex-other-claim");
    bench.succeed(&Order::Delete(made)).await?;
    gone(bench).await
}

pub(super) async fn delete_killed(bench: &Bench) -> Step<()> {
    let made = bench.provision(&bench.claim()).await?;
    shown_by_storage(bench, &bench.claim().volume_id()).await?;
    let order = Order::Delete(made.clone());
    let repeated = async |made: Made| {
        bench.succeed(&Order::Delete(made)).await?;
        gone(bench).await
    };
    let again = async || {
        bench.forget(&bench.claim()).await?;
        bench.provision(&bench.claim()).await.map(drop)
    };
    bench.at_each_child(&order, async |_, _| repeated(made.clone()).await, again).await.map(drop)
}

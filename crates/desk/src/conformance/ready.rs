//! The content of a volume at the moment when the volume exists, where commands of a person write and read it.

use std::cell::RefCell;
use std::convert::Infallible;

use flex_core::config::capability;
use flex_core::model::claim::Claim;

use super::bench::{Bench, Halt, Step, check, shown};
use super::sample::{Sample, fill};
use crate::api::Hold;
use crate::desk::Stop;
use crate::order::{Content, Made, Order};

/// A volume can be used as soon as it exists, and has the content of its source then. The end of its run changes nothing.
pub(super) async fn volume_is_ready(bench: &Bench) -> Step<()> {
    let claim = bench.claim();
    let written = async |made: &Made| fill(bench, made).await;
    let (made, sample) = at_volume(bench, &claim, Content::Empty, &written).await?;
    let kept = sample.check_made(bench, &made).await;
    kept.map_err(|halt| halt.during("after the end of the run that made the volume"))?;
    let can = |name| bench.setting.recipe.can(name);
    let source = Box::new(made.clone());
    if can(capability::CLONE) {
        copied(bench, &bench.numbered(1), Content::CloneOf(source.clone()), &sample).await?;
    }
    if can(capability::SNAPSHOT) {
        let snapshot = bench.ids.snapshot();
        bench.succeed(&Order::Snapshot(made.clone(), snapshot.clone())).await?;
        copied(bench, &bench.numbered(2), Content::Snapshot(source, snapshot.clone()), &sample).await?;
        bench.succeed(&Order::DeleteSnapshot(made, snapshot)).await?;
    }
    Ok(())
}

/// Makes a volume with content, and removes it.
async fn copied(bench: &Bench, claim: &Claim, content: Content, sample: &Sample) -> Step<()> {
    let whole = async |made: &Made| sample.check_made(bench, made).await;
    at_volume(bench, claim, content, &whole).await?;
    bench.remove(claim).await
}

/// Makes a volume. Before the run hears that the API has stored it, a function looks at it. Returns what that has found, too.
pub(super) async fn at_volume<T>(
    bench: &Bench,
    claim: &Claim,
    content: Content,
    look: &impl AsyncFn(&Made) -> Step<T>,
) -> Step<(Made, T)> {
    let order = Order::Provision { claim: claim.clone(), content };
    let (api, seen) = (&bench.desk()?.desk.api, RefCell::new(None));
    let attempt = async |attempt| {
        api.hold(Hold::AfterCreate);
        let at_volume = async {
            api.reached().await;
            let found = match bench.volume(claim).await {
                Ok(Some(volume)) => look(&bench.setting.adopted(claim, volume)).await,
                Ok(None) => Err(Halt::Failed("there is none".into())),
                Err(halt) => Err(halt),
            };
            *seen.borrow_mut() = Some(found);
            api.release();
            std::future::pending::<Infallible>().await
        };
        let ended = tokio::select! {
            never = at_volume => match never {},
            ended = bench.attempt(&order, attempt, Stop::Never) => ended,
        };
        api.hold(Hold::Never);
        ended
    };
    let ended = bench.patiently(order.operation().as_str(), attempt).await?;
    let Some(found) = seen.take() else {
        return Err(Halt::Failed(format!("the run created no volume: it {}", shown(&ended))));
    };
    let found = found.map_err(|halt| halt.during("when the PersistentVolume existed"))?;
    check(ended.is_success(), || format!("the run {}", shown(&ended)))?;
    Ok((bench.fitting(claim, &ended).await?, found))
}

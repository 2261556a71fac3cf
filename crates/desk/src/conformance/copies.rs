//! Cases of clones and snapshots.

use std::cell::Cell;

use flex_core::config::capability;
use flex_core::model::claim::Claim;

use super::bench::{Bench, Halt, Step, check, shown};
use super::listed::{list, unlisted};
use super::moments::SOME;
use super::rest::Rest;
use super::sample::{Sample, fill};
use super::told::at_least;
use super::variable::with_variable;
use crate::desk::{Ended, Stop};
use crate::order::{Content, Made, Order};

/// Makes a volume with the content of its user in it.
async fn written(bench: &Bench) -> Step<(Made, Sample)> {
    let made = bench.provision(&bench.claim()).await?;
    let sample = fill(bench, &made).await?;
    Ok((made, sample))
}

/// Makes a volume from a volume or a snapshot, and checks that it has the content.
async fn filled(bench: &Bench, claim: &Claim, content: Content, sample: &Sample) -> Step<Made> {
    let made = bench.provision_with(claim, content).await?;
    sample.check_made(bench, &made).await?;
    Ok(made)
}

fn clone_of(made: &Made) -> Content {
    Content::CloneOf(Box::new(made.clone()))
}

fn from_snapshot(made: &Made, snapshot: &str) -> Content {
    Content::Snapshot(Box::new(made.clone()), snapshot.to_owned())
}

pub(super) async fn clone_content(bench: &Bench) -> Step<()> {
    let (made, sample) = written(bench).await?;
    let copy = bench.numbered(1);
    filled(bench, &copy, clone_of(&made), &sample).await?;
    let cloned = filled(bench, &copy, clone_of(&made), &sample).await?;
    // With pods, each step takes long.
    if bench.mounts().is_some() {
        return Ok(());
    }
    let later = sample.overwrite(bench, &made).await?;
    sample.check_made(bench, &cloned).await.map_err(|halt| halt.during("after a user has written into the source"))?;
    let of_clone = sample.overwrite(bench, &cloned).await?;
    later.check_made(bench, &made).await.map_err(|halt| halt.during("after a user has written into the clone"))?;
    bench.remove(&bench.claim()).await?;
    of_clone.check_made(bench, &cloned).await.map_err(|halt| halt.during("after the source was deleted"))?;
    larger(bench, &cloned).await
}

/// Makes a clone that is larger than its source.
async fn larger(bench: &Bench, made: &Made) -> Step<()> {
    let copy = bench.numbered(2);
    let bytes = copy.size.clone().unwrap_or_default().saturating_mul(2);
    if bench.setting.recipe.max_size.is_some_and(|most| bytes > most) {
        return Ok(());
    }
    let copy = Claim { size: Ok(bytes), ..copy };
    let ended = bench.run(&Order::Provision { claim: copy.clone(), content: clone_of(made) }).await?;
    // The storage may have no room.
    if !ended.is_success() {
        return Ok(());
    }
    let larger = bench.fitting(&copy, &ended).await?;
    at_least(bench, &larger, bytes)
        .await
        .map(drop)
        .map_err(|halt| halt.during("a clone that is larger than its source"))
}

/// Kills a run that makes a volume from another one, or from a snapshot: before each process that it starts, and with many
/// files at times.
async fn copy_killed(bench: &Bench, content: &impl Fn() -> Content, sample: &Sample, at_times: bool) -> Step<()> {
    let copy = bench.numbered(1);
    let order = Order::Provision { claim: copy.clone(), content: content() };
    filled(bench, &copy, content(), sample).await?;
    bench.remove(&copy).await?;
    let rest = Rest::now(bench);
    let after = async |_: usize, _: &Ended| {
        if let Some(volume) = bench.volume(&copy).await? {
            let whole = sample.check(bench, &volume, &copy.volume_id()).await;
            whole.map_err(|halt| halt.during("the PersistentVolume exists"))?;
        }
        let made = filled(bench, &copy, content(), sample).await.map_err(|halt| halt.during("the repeated run"))?;
        rest.after_deletion(bench, made).await
    };
    let reset = async || match bench.volume(&copy).await? {
        Some(_) => bench.remove(&copy).await,
        None => bench.forget(&copy).await,
    };
    // A program that starts no other is killed at times alone.
    match at_times {
        true => bench.at_times(&|_| order.clone(), &after, &reset).await,
        false => bench.before_children(&|_| order.clone(), SOME, &after, &reset).await.map(drop),
    }
}

pub(super) async fn clone_killed(bench: &Bench) -> Step<()> {
    let (made, sample) = written(bench).await?;
    let content = || clone_of(&made);
    copy_killed(bench, &content, &sample, false).await?;
    let sample = sample.add_many(bench, &made).await?;
    copy_killed(bench, &content, &sample, true).await
}

pub(super) async fn snapshot_restore(bench: &Bench) -> Step<()> {
    let (made, sample) = written(bench).await?;
    let snapshot = bench.ids.snapshot();
    bench.succeed(&Order::Snapshot(made.clone(), snapshot.clone())).await?;
    sample.overwrite(bench, &made).await?;
    let restored = filled(bench, &bench.numbered(1), from_snapshot(&made, &snapshot), &sample).await?;
    if bench.mounts().is_some() {
        return Ok(());
    }
    sample.overwrite(bench, &restored).await?;
    let again = filled(bench, &bench.numbered(2), from_snapshot(&made, &snapshot), &sample).await;
    again.map(drop).map_err(|halt| halt.during("after a user has written into a restored volume, the next one"))
}

/// A snapshot run is killed, and then repeated or undone. After that, runs that restore the snapshot are killed.
pub(super) async fn snapshot_killed(bench: &Bench) -> Step<()> {
    let (made, sample) = written(bench).await?;
    snapshots_cut(bench, &made, &sample, false).await?;
    let sample = sample.add_many(bench, &made).await?;
    snapshots_cut(bench, &made, &sample, true).await?;
    let snapshot = bench.ids.numbered(3);
    bench.succeed(&Order::Snapshot(made.clone(), snapshot.clone())).await?;
    let content = || from_snapshot(&made, &snapshot);
    copy_killed(bench, &content, &sample, false).await?;
    copy_killed(bench, &content, &sample, true).await
}

async fn snapshots_cut(bench: &Bench, made: &Made, sample: &Sample, at_times: bool) -> Step<()> {
    // No id of a deleted snapshot is used again.
    let first = if at_times { 200 } else { 100 };
    let id = |number: usize| bench.ids.numbered(first + u32::try_from(number).unwrap_or_default());
    let last = Cell::new(0);
    let order = |number: usize| {
        last.set(number);
        Order::Snapshot(made.clone(), id(number))
    };
    let deleted = async || bench.succeed(&Order::DeleteSnapshot(made.clone(), id(last.get()))).await.map(drop);
    bench.succeed(&order(50)).await?;
    deleted().await?;
    let rest = Rest::now(bench);
    let after = async |number: usize, _: &Ended| {
        // The snapshot may be deleted before its run is repeated.
        if number % 2 == 1 {
            bench.succeed(&order(number)).await.map_err(|halt| halt.during("the repeated run"))?;
            let copy = bench.numbered(1);
            filled(bench, &copy, from_snapshot(made, &id(number)), sample).await?;
            bench.remove(&copy).await?;
        }
        deleted().await?;
        bench.check_no_trace(&id(number))?;
        rest.check(bench)
    };
    match at_times {
        true => bench.at_times(&order, &after, &deleted).await,
        false => bench.before_children(&order, SOME, &after, &deleted).await.map(drop),
    }
}

/// Snapshots are no volumes, and each of them is independent of its volume and of the other.
pub(super) async fn snapshot_outlives(bench: &Bench) -> Step<()> {
    let (made, sample) = written(bench).await?;
    let [first, second] = [bench.ids.snapshot(), bench.ids.numbered(3)];
    bench.succeed(&Order::Snapshot(made.clone(), first.clone())).await?;
    // A server may not see at once what the case writes into its files.
    let is_late = bench.is_external() && bench.commands().is_none();
    let later = if is_late { sample } else { sample.overwrite(bench, &made).await? };
    bench.succeed(&Order::Snapshot(made.clone(), second.clone())).await?;
    let entries = list(bench).await?.unwrap_or_default();
    let listed = entries.iter().find(|entry| entry.id.contains(&first) || entry.id.contains(&second));
    check(listed.is_none(), || "a list run prints a snapshot as a volume".into())?;
    bench.succeed(&Order::DeleteSnapshot(made.clone(), first.clone())).await?;
    bench.check_no_trace(&first)?;
    let after = |what: &'static str| move |halt: Halt| halt.during(what);
    later.check_made(bench, &made).await.map_err(after("after another snapshot was deleted, the volume"))?;
    let restored = filled(bench, &bench.numbered(1), from_snapshot(&made, &second), &later).await;
    let restored = restored.map_err(after("after another snapshot was deleted"))?;
    // Storage whose snapshots need their volume may keep it: the delete run fails until they are gone.
    let ended = bench.run(&Order::Delete(made.clone())).await?;
    match ended.is_success() {
        true => bench.forget(&bench.claim()).await?,
        false => later.check_made(bench, &made).await.map_err(after("after a delete run that failed, the volume"))?,
    }
    let last = filled(bench, &bench.numbered(2), from_snapshot(&made, &second), &later).await;
    let last = last.map_err(after("after the volume of the snapshot was deleted"))?;
    for made in [restored, last] {
        bench.succeed(&Order::Delete(made)).await?;
    }
    bench.succeed(&Order::DeleteSnapshot(made, second.clone())).await?;
    if !ended.is_success() {
        let gone = bench.remove(&bench.claim()).await;
        gone.map_err(after("after its snapshots were deleted, the volume"))?;
    }
    [&bench.ids.first(), &first, &second].into_iter().try_for_each(|id| bench.check_no_trace(id))
}

pub(super) async fn snapshot_again(bench: &Bench) -> Step<()> {
    let made = bench.provision(&bench.claim()).await?;
    let snapshot = bench.ids.snapshot();
    for order in [
        Order::Snapshot(made.clone(), snapshot.clone()),
        Order::Snapshot(made.clone(), snapshot.clone()),
        Order::DeleteSnapshot(made.clone(), snapshot.clone()),
        Order::DeleteSnapshot(made.clone(), snapshot.clone()),
        Order::DeleteSnapshot(made, bench.ids.numbered(2)),
    ] {
        bench.succeed(&order).await?;
    }
    bench.check_no_trace(&snapshot)?;
    unlisted(bench, &snapshot).await
}

/// Runs get the id of a snapshot as a person may have written it. As a part of a path, the id leads from a snapshot to a
/// volume.
pub(super) async fn hostile_ids(bench: &Bench) -> Step<()> {
    if !bench.setting.recipe.can(capability::SNAPSHOT) {
        return Ok(());
    }
    let (claim, snapshot) = (bench.numbered(0), bench.ids.snapshot());
    let made = bench.provision(&claim).await?;
    bench.succeed(&Order::Snapshot(made.clone(), snapshot.clone())).await?;
    let (id, before) = (claim.volume_id(), bench.tree());
    let untouched = async |what: String| {
        let changes = before.changes(&bench.tree());
        let of_others = changes.iter().filter(|path| path.contains(&id) || path.contains(&snapshot));
        let lost = of_others.map(String::as_str).collect::<Vec<_>>().join(", ");
        check(lost.is_empty(), || format!("{what} has changed {lost}"))?;
        let listed = list(bench).await?.is_none_or(|entries| entries.iter().any(|entry| entry.id == id));
        check(listed, || format!("{what} has deleted the volume {id}"))
    };
    for hostile in [format!("{snapshot}/../{id}"), format!("../{id}")] {
        let refused = bench.numbered(1);
        let content = Content::Snapshot(Box::new(made.clone()), hostile.clone());
        let ended = bench.run(&Order::Provision { claim: refused.clone(), content }).await?;
        check(!ended.is_success(), || format!("a run has made a volume from the snapshot {hostile}, which is none"))?;
        bench.run(&Order::DeleteSnapshot(made.clone(), hostile.clone())).await?;
        untouched(format!("the deletion of the snapshot {hostile}, which is none,")).await?;
        let what = format!("the delete run of a claim from the snapshot {hostile}, which is none,");
        let ended = undo(bench, &refused, &hostile).await?;
        check(ended.is_success(), || format!("{what} {}", shown(&ended)))?;
        bench.check_no_trace(&refused.volume_id())?;
        untouched(what).await?;
    }
    Ok(())
}

/// Deletes what the attempts of a claim have left. The run has the id of the claim's snapshot, as its provision runs had.
async fn undo(bench: &Bench, claim: &Claim, snapshot: &str) -> Step<Ended> {
    let order = Order::Undo { claim: claim.clone() };
    let attempt = async |attempt| {
        let mut job = bench.job(&order, attempt)?;
        with_variable(&mut job, "SNAPSHOT_ID", snapshot);
        bench.run_job(job, std::slice::from_ref(&order), Stop::Never).await
    };
    bench.patiently(order.operation().as_str(), attempt).await
}

//! Cases of delete runs.

use std::path::{Path, PathBuf};

use flex_core::object::ObjectName;

use super::bench::{Bench, Halt, Step, check};
use super::content::{TEXT, directory, shows};
use super::listed::{list, shown_by_storage, unlisted};
use super::provision::order;
use super::rest::Rest;
use super::sample::{fill, fill_if_seen};
use super::user_tree::{UserTree, is_of_user};
use super::variable::with_variable;
use crate::api::Hold;
use crate::desk::{Ended, Stop};
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
    gone(bench).await?;
    if bench.is_external() {
        return Ok(());
    }
    // The run may die before each of its processes, too. A claim may be deleted then.
    bench.reset().await?;
    let claim = bench.claim();
    let rest = Rest::of_volume(bench, &claim).await?;
    let after = async |_: usize, _: &Ended| {
        bench.remove(&claim).await?;
        gone(bench).await?;
        rest.check(bench)
    };
    let reset = async || bench.reset().await;
    bench.at_each_moment(&order(&claim), &after, &reset).await
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
    let rest = Rest::of_volume(bench, &bench.claim()).await?;
    let made = bench.provision(&bench.claim()).await?;
    shown_by_storage(bench, &bench.claim().volume_id()).await?;
    let order = Order::Delete(made.clone());
    let after = async |_: usize, _: &Ended| {
        bench.succeed(&Order::Delete(made.clone())).await?;
        gone(bench).await?;
        rest.check(bench)
    };
    let again = async || {
        bench.forget(&bench.claim()).await?;
        bench.provision(&bench.claim()).await.map(drop)
    };
    bench.at_each_child(&order, &after, &again).await
}

/// Deletes a volume with the data of a user, and makes new ones. They are as empty as the first one was.
pub(super) async fn next_volume_empty(bench: &Bench) -> Step<()> {
    let claim = bench.claim();
    let made = bench.provision(&claim).await?;
    let names = |made: &Made| -> Step<Option<Vec<PathBuf>>> {
        let Some(root) = directory(bench, &made.volume, &made.claim.volume_id())? else { return Ok(None) };
        Ok(Some(UserTree::read(&root)?.paths().into_iter().map(Path::to_path_buf).collect()))
    };
    let first = names(&made)?;
    fill(bench, &made).await?;
    bench.succeed(&Order::Delete(made)).await?;
    bench.forget(&claim).await?;
    gone(bench).await?;
    let rest = Rest::now(bench);
    for next in [bench.numbered(0), claim] {
        let made = bench.provision(&next).await?;
        let found = names(&made)?;
        check(first == found, || {
            let more = found.iter().flatten().filter(|path| !first.iter().flatten().any(|known| known == *path));
            let more: Vec<String> = more.take(3).map(|path| path.display().to_string()).collect();
            let has = if more.is_empty() {
                "lacks what the first one had".to_owned()
            } else {
                format!("has {}", more.join(", "))
            };
            format!("a volume was deleted with the data of its user, and the next new volume {has}")
        })?;
        let has_text = shows(bench, &made, TEXT).await?;
        check(!has_text, || "a volume was deleted, and the next new volume has the data of its user".into())?;
        bench.succeed(&Order::Delete(made)).await?;
        bench.forget(&next).await?;
        bench.check_no_trace(&next.volume_id())?;
        rest.check(bench)?;
    }
    Ok(())
}

/// Returns the ids that lead a path to another volume.
fn hostile_ids(other: &str) -> [String; 3] {
    [String::new(), format!("../{other}"), format!("{other}/../{other}")]
}

/// Delete runs have the source of another volume, or an id that is none. Only the storage of the run's own id may go.
pub(super) async fn delete_alone(bench: &Bench) -> Step<()> {
    if bench.is_external() {
        let why = "a server, a cloud or a driver may know a volume only by the source in its PersistentVolume";
        return Err(Halt::NotPossible(why.into()));
    }
    let (other, own) = (bench.numbered(0), bench.claim());
    let theirs = bench.provision(&other).await?;
    bench.stored(&other.volume_id())?;
    let sample = fill_if_seen(bench, &theirs).await?;
    let before = bench.tree();
    let untouched = async |what: &str| {
        let changes = before.changes(&bench.tree());
        let lost = changes.iter().find(|path| path.contains(&other.volume_id()) && !is_of_user(path));
        check(lost.is_none(), || format!("{what} has changed {}", lost.map_or("", String::as_str)))?;
        let Some(sample) = &sample else { return Ok(()) };
        sample
            .check_made(bench, &theirs)
            .await
            .map_err(|halt| halt.during(&format!("{what} has changed another volume")))
    };
    let mine = bench.provision(&own).await?;
    let run = async |name: &str, value: &str| {
        let order = Order::Delete(mine.clone());
        let mut job = bench.job(&order, 1)?;
        with_variable(&mut job, name, value);
        bench.run_job(job, &[order], Stop::Never).await
    };
    let source = flex_contract::volume::volume_source(&theirs.volume);
    let ended = run("VOLUME_SOURCE", &source).await?;
    untouched("a delete run with the VOLUME_SOURCE of another volume").await?;
    if ended.is_success() {
        bench.check_no_trace(&own.volume_id())?;
    }
    for id in hostile_ids(&other.volume_id()) {
        bench.forget(&own).await?;
        bench.provision(&own).await?;
        let what = format!("a delete run with the CLAIM_UUID `{id}`");
        let ended = run("CLAIM_UUID", &id).await?;
        untouched(&what).await?;
        check(bench.shows(&own.volume_id()), || format!("{what} has deleted another volume"))?;
        check(!ended.is_success(), || format!("{what}, which names no volume, exits 0"))?;
    }
    Ok(())
}

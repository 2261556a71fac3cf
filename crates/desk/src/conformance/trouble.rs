//! Cases in which the storage fails, or the config names what the program does not know.

use flex_contract::exit;

use super::bench::{Bench, Halt, Step, check, shown};
use super::content::path_on_node;
use super::provision::order;
use super::sample::{Sample, fill};
use crate::container::{Container, Content as Source};
use crate::desk::{Ended, Isolation};
use crate::on_node::host_paths;
use crate::order::{Content, Made, Order};

/// A parameter that no program reads.
const UNREAD: &str = "unread-by-conformance";
/// The name of the parameter with the directory of the volumes, where the config does not say.
const BASE_PATH: &str = "base-path";
/// Directories of a node that store nothing, though pods mount them.
const NO_STORAGE: [&str; 4] = ["/dev", "/run", "/sys", "/proc"];
/// The number of attempts of a run that finds its storage read-only.
const ATTEMPTS: usize = 3;
/// The blocks of 512 bytes of the largest file that a run can write. That of a user is larger.
const LARGEST_FILE: u32 = 2048;

fn is_storage(path: &str) -> bool {
    !NO_STORAGE.iter().any(|other| path == *other || path.strip_prefix(other).is_some_and(|rest| rest.starts_with('/')))
}

/// A change of a run's container.
type Change = fn(&mut Container);

/// Makes the storage of a run read-only.
fn read_only(container: &mut Container) {
    for mount in &mut container.mounts {
        let stores = match &mount.content {
            Source::OnNode { path, .. } => is_storage(path),
            Source::Remote { .. } => true,
            Source::Files(_) | Source::Empty | Source::OfDesk(_) => false,
        };
        mount.read_only |= stores;
    }
}

/// Lets a run write no large file, as on storage that becomes full.
fn without_room(container: &mut Container) {
    let limit = format!("ulimit -f {LARGEST_FILE}; exec \"$@\"");
    let words = ["/bin/sh".to_owned(), "-c".to_owned(), limit, "sh".to_owned()];
    container.command = words.into_iter().chain(container.command.drain(..)).collect();
}

/// Runs find their storage read-only, or full. They fail, and the next run, with the storage mended, succeeds.
pub(super) async fn storage_fails(bench: &Bench) -> Step<()> {
    if let Isolation::None(why) = bench.desk()?.desk.isolation() {
        return Err(Halt::NotPossible(format!("the command cannot make the storage of a run read-only: {why}")));
    }
    if bench.is_external() {
        let why = "the command cannot let storage fail that a server, a cloud or a driver has";
        return Err(Halt::NotPossible(why.into()));
    }
    let other = bench.provision(&bench.numbered(0)).await?;
    bench.stored(&other.claim.volume_id())?;
    let made = provision_fails(bench).await?;
    copies_fail(bench, &made).await?;
    let ended = bench.run_changed(&Order::Delete(made.clone()), read_only).await?;
    let is_there = bench.shows(&made.claim.volume_id());
    check(!ended.is_success() || !is_there, || {
        "the storage was read-only, and the delete run exits 0, although it has deleted nothing".into()
    })?;
    let deleted = bench.succeed(&Order::Delete(made.clone())).await;
    deleted.map_err(|halt| halt.during("after the storage was read-only"))?;
    bench.check_no_trace(&made.claim.volume_id())
}

async fn provision_fails(bench: &Bench) -> Step<Made> {
    let claim = bench.claim();
    // A program may ask for another attempt first, and give up in that one.
    for _ in 0..ATTEMPTS {
        let ended = bench.run_changed(&order(&claim), read_only).await?;
        let volume = bench.volume(&claim).await?;
        if ended.is_success() || volume.is_some() {
            check(volume.is_some() && bench.shows(&claim.volume_id()), || {
                "the storage was read-only, and the provision run has created a volume without storage, or exits 0"
                    .into()
            })?;
            break;
        }
        check_not_given_up(&order(&claim), &ended, "read-only")?;
    }
    bench.provision(&claim).await.map_err(|halt| halt.during("after the storage was read-only"))
}

/// Checks that a run does not end with the words that it can never succeed, for which only its claim may be the reason.
fn check_not_given_up(order: &Order, ended: &Ended, state: &str) -> Step<()> {
    let is_never = [exit::USAGE, exit::DATAERR].contains(&ended.code);
    check(!is_never, || {
        let (operation, shown) = (order.operation(), shown(ended));
        format!("the storage was {state}, and the {operation} run {shown}: that is for requests that can never succeed")
    })
}

/// Copies cannot be written, or only in part. None of them becomes a volume or a snapshot.
async fn copies_fail(bench: &Bench, made: &Made) -> Step<()> {
    let can = |name| bench.setting.recipe.can(name);
    let (clones, snapshots) = (can(flex_core::config::capability::CLONE), can(flex_core::config::capability::SNAPSHOT));
    if !clones && !snapshots {
        return Ok(());
    }
    let sample = match fill(bench, made).await {
        Ok(sample) => sample,
        Err(Halt::Skipped(_)) => return Ok(()),
        Err(other) => return Err(other),
    };
    if clones {
        copy_fails(bench, Content::CloneOf(Box::new(made.clone())), &sample, "the clone").await?;
    }
    if !snapshots {
        return Ok(());
    }
    let id = bench.ids.snapshot();
    let snapshot = Order::Snapshot(made.clone(), id.clone());
    let restored = || Content::Snapshot(Box::new(made.clone()), id.clone());
    let changes: [(&str, Change); 2] = [("read-only", read_only), ("full", without_room)];
    for (what, change) in changes {
        let ended = bench.run_changed(&snapshot, change).await?;
        check_not_given_up(&snapshot, &ended, what)?;
        if ended.is_success() {
            let whole = restore(bench, restored(), &sample).await;
            let what = format!("the storage was {what}, and the snapshot run exits 0");
            whole.map_err(|halt| halt.during(&what))?;
        }
    }
    bench.succeed(&snapshot).await.map_err(|halt| halt.during("after the storage was read-only and full"))?;
    restore(bench, restored(), &sample).await?;
    copy_fails(bench, restored(), &sample, "the restored volume").await?;
    bench.succeed(&Order::DeleteSnapshot(made.clone(), id.clone())).await.map(drop)
}

/// Makes a volume with content, compares it, and deletes it.
async fn restore(bench: &Bench, content: Content, sample: &Sample) -> Step<()> {
    let claim = bench.numbered(2);
    let made = bench.provision_with(&claim, content).await?;
    sample.check_made(bench, &made).await?;
    bench.remove(&claim).await
}

async fn copy_fails(bench: &Bench, content: Content, sample: &Sample, what: &str) -> Step<()> {
    let claim = bench.numbered(1);
    let order = Order::Provision { claim: claim.clone(), content };
    let ended = bench.run_changed(&order, without_room).await?;
    check_not_given_up(&order, &ended, "full")?;
    if let Some(volume) = bench.volume(&claim).await? {
        let whole = sample.check(bench, &volume, &claim.volume_id()).await;
        let when = format!("the storage became full, and the run has created {what}");
        whole.map_err(|halt| halt.during(&when))?;
    }
    let ended = bench.succeed(&order).await.map_err(|halt| halt.during("after the storage was full"))?;
    let made = bench.fitting(&claim, &ended).await?;
    let whole = sample.check_made(bench, &made).await;
    let when = format!("the storage was full, and is not any more: {what}");
    whole.map_err(|halt| halt.during(&when))?;
    bench.remove(&claim).await
}

/// The config has a parameter that no program reads. Nothing begins with it, and what exists can be deleted.
pub(super) async fn unknown_parameter(bench: &Bench) -> Step<()> {
    let changed = bench.setting.changed(&[(UNREAD, "x")]);
    let setting = changed.map_err(|error| Halt::Skipped(error.to_string()))?;
    let (odd, claim) = (bench.with_setting(&setting), bench.claim());
    let ended = odd.run(&order(&claim)).await?;
    if ended.is_success() && bench.is_external() {
        let why = "the program takes a parameter that the case has invented, as one does that hands parameters on";
        return Err(Halt::Skipped(why.into()));
    }
    let code = exit::CONFIG;
    check(ended.code == code && bench.volume(&claim).await?.is_none(), || {
        format!(
            "the config has the parameter {UNREAD}, and the provision run {}; it must end with {code}",
            shown(&ended)
        )
    })?;
    let nothing = bench.check_no_trace(&claim.volume_id());
    nothing.map_err(|halt| halt.during("the program does not know a parameter, and begins nevertheless"))?;
    let made = bench.provision(&claim).await?;
    let made = setting.adopted(&claim, made.volume);
    let deleted = odd.succeed(&Order::Delete(made)).await;
    deleted.map_err(|halt| halt.during("a volume that has a parameter which the program does not know"))?;
    bench.check_no_trace(&claim.volume_id())
}

/// The config has another directory for its volumes, by a parameter. All of a volume is there, and goes from there.
pub(super) async fn other_path(bench: &Bench) -> Step<()> {
    if bench.shares_storage() {
        return Err(Halt::NotPossible("the storage of the case has one place".into()));
    }
    let claim = bench.claim();
    let whole = bench.setting.recipe.storage_mounts.first().cloned();
    let path =
        whole.or_else(|| host_paths(&bench.job(&order(&claim), 1).ok()?).into_iter().find(|path| is_storage(path)));
    let Some(path) = path else {
        return Err(Halt::Skipped("the config mounts no directory of the node".into()));
    };
    let named = bench.setting.parameters_with(&path);
    let (parameter, is_own) = named.first().map_or((BASE_PATH, false), |name| (name.as_str(), true));
    let other = format!("{path}-other");
    let moved = bench.setting.moved(&path, &other, parameter);
    let setting = moved.map_err(|error| Halt::Skipped(format!("the config cannot have another path: {error}")))?;
    let there = bench.with_setting(&setting);
    let ended = there.run(&order(&claim)).await?;
    if ended.code == exit::CONFIG && !is_own {
        return Err(Halt::Skipped("the config has no parameter with the path of its storage".into()));
    }
    let what = format!("the config mounts {other}, and its parameter {parameter} names that");
    let made = there.fitting(&claim, &ended).await.map_err(|halt| halt.during(&what))?;
    let source = path_on_node(&made.volume).unwrap_or(&other);
    check(source.starts_with(&other), || format!("{what}, but the volume is {source}"))?;
    there.succeed(&Order::Delete(made)).await.map_err(|halt| halt.during(&what))?;
    bench.check_no_trace(&claim.volume_id()).map_err(|halt| halt.during(&what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_processes_are_no_storage() {
        for (path, expected) in [("/dev", false), ("/dev/flex", false), ("/devices", true), ("/var/lib/flex", true)] {
            assert_eq!(is_storage(path), expected, "{path}");
        }
    }
}

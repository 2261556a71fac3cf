//! Cases about volumes beside the one of a run: those that links of a user lead to, and those of runs at the same time.

use flex_core::config::capability;

use super::bench::{Bench, Halt, Step, check};
use super::content::{directory, path_on_node};
use super::listed::list;
use super::provision::order;
use super::rest::Rest;
use super::sample::{fill, fill_if_seen};
use super::user_tree::is_of_user;
use crate::desk::Ended;
use crate::order::{Content, Order};

/// A user has made links to another volume, and to files of the node. Runs leave them links, and follow none.
pub(super) async fn hostile_content(bench: &Bench) -> Step<()> {
    let (other, claim) = (bench.numbered(0), bench.claim());
    let theirs = bench.provision(&other).await?;
    let secret = fill(bench, &theirs).await?;
    let made = bench.provision(&claim).await?;
    let Some(root) = directory(bench, &theirs.volume, &other.volume_id())? else {
        return Err(Halt::Skipped("the volume is no directory of this machine".into()));
    };
    let path = path_on_node(&theirs.volume).map_or_else(|| root.display().to_string(), str::to_owned);
    let name = root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let links = [
        ("to-volume", path.clone()),
        ("to-file", format!("{path}/flex-content")),
        ("beside", format!("../../{name}")),
        ("file-beside", format!("../../{name}/flex-content")),
        ("of-node", "/etc/passwd".to_owned()),
    ];
    let own = fill(bench, &made).await?.add_links(bench, &made, &links).await?;
    let before = bench.tree();
    let untouched = async |what: &str| {
        let changes = before.changes(&bench.tree());
        let lost = changes.iter().find(|path| path.contains(&other.volume_id()) && !is_of_user(path));
        let lost = lost.map_or("", String::as_str);
        check(lost.is_empty(), || format!("{what} has followed a link of a user, and has changed {lost}"))?;
        let kept = secret.check_made(bench, &theirs).await;
        kept.map_err(|halt| halt.during(&format!("{what} has followed a link of a user: the other volume")))
    };
    bench.provision(&claim).await?;
    own.check_made(bench, &made).await.map_err(|halt| halt.during("after a repeated run"))?;
    untouched("a repeated provision run").await?;
    let mut copies = Vec::new();
    if bench.setting.recipe.can(capability::CLONE) {
        copies.push((bench.numbered(1), Content::CloneOf(Box::new(made.clone()))));
    }
    let snapshot = bench.ids.snapshot();
    if bench.setting.recipe.can(capability::SNAPSHOT) {
        bench.succeed(&Order::Snapshot(made.clone(), snapshot.clone())).await?;
        copies.push((bench.numbered(2), Content::Snapshot(Box::new(made.clone()), snapshot.clone())));
    }
    for (copy, content) in copies {
        let cloned = bench.provision_with(&copy, content).await?;
        let same = own.check_made(bench, &cloned).await;
        same.map_err(|halt| {
            halt.during("the source has links to another volume and to files of the node; in the copy")
        })?;
        bench.remove(&copy).await?;
        untouched("the deletion of a copy").await?;
    }
    if bench.setting.recipe.can(capability::SNAPSHOT) {
        bench.succeed(&Order::DeleteSnapshot(made.clone(), snapshot)).await?;
        untouched("the deletion of a snapshot").await?;
    }
    bench.succeed(&Order::Delete(made)).await?;
    untouched("a delete run").await
}

/// A run stands still before some of the processes that it starts, while a run for another claim does all its work.
pub(super) async fn interleaved(bench: &Bench) -> Step<()> {
    let (claim, other) = (bench.claim(), bench.numbered(0));
    let rest = Rest::of_volume(bench, &claim).await?;
    let theirs = async || bench.provision(&other).await.map(drop).map_err(|halt| halt.during("the other run"));
    let after = async |_: &Ended| {
        // The first run may have asked for another attempt.
        let mine = bench.provision(&claim).await?;
        let Some(volume) = bench.volume(&other).await? else {
            return Err(Halt::Failed("the volume of the other run is missing".into()));
        };
        let theirs = bench.setting.adopted(&other, volume);
        let sources = [&mine, &theirs].map(|made| flex_contract::volume::volume_source(&made.volume));
        check(sources[0] != sources[1], || "both volumes have the same storage".into())?;
        if let Some(entries) = list(bench).await? {
            let missing = [&claim, &other].map(flex_core::model::claim::Claim::volume_id);
            let missing = missing.iter().find(|id| !entries.iter().any(|entry| entry.id == **id));
            check(missing.is_none(), || format!("a list run lacks {}", missing.map_or("", String::as_str)))?;
        }
        if let Some(sample) = fill_if_seen(bench, &mine).await? {
            let both = fill_if_seen(bench, &theirs).await?.is_some();
            check(both, || "the directory of the other volume is missing".into())?;
            bench.remove(&other).await?;
            let kept = sample.check_made(bench, &mine).await;
            kept.map_err(|halt| halt.during("after the other volume was deleted"))?;
        } else {
            bench.remove(&other).await?;
        }
        bench.check_no_trace(&other.volume_id())?;
        rest.after_deletion(bench, mine).await
    };
    let reset = async || {
        bench.forget(&other).await?;
        bench.reset().await
    };
    bench.while_still(&order(&claim), &theirs, &after, &reset).await
}

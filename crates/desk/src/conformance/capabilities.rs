//! Cases of the operations that a config declares.

use flex_contract::batch;
use flex_contract::capacity::Answer;
use flex_contract::listing;
use flex_contract::names::pv_name;
use flex_contract::operation::Operation;
use flex_core::batch::{Member, MemberObject, MemberRun, job as batch_job};
use flex_core::config::capability;
use flex_core::config::modify::Attributes;
use flex_core::model::claim::Claim;

use super::bench::{Bench, Halt, Step, check, shown};
use super::content::{LATER, TEXT, has_text, write};
use super::listed::{list, unlisted};
use super::patience::is_repeated;
use super::provision::{good, order};
use super::variable::with_variable;
use crate::desk::{Ended, Stop};
use crate::order::{Content, Made, Order};

pub(super) async fn expand(bench: &Bench) -> Step<()> {
    let claim = bench.claim();
    let made = bench.provision(&claim).await?;
    let size = claim.size.unwrap_or_default().saturating_mul(2);
    bench.succeed(&Order::Expand(made.clone(), size)).await?;
    bench.succeed(&Order::Expand(made, size)).await.map_err(|halt| halt.during("the second time")).map(drop)
}

/// Makes a volume with a text of its user in it.
async fn written(bench: &Bench) -> Step<Made> {
    let made = bench.provision(&bench.claim()).await?;
    write(bench, &made, TEXT).await?;
    Ok(made)
}

/// Makes a volume with content, and checks that it has the text.
async fn filled(bench: &Bench, claim: &Claim, content: Content) -> Step<()> {
    let made = bench.provision_with(claim, content).await?;
    has_text(bench, &made.volume, &claim.volume_id()).await
}

pub(super) async fn clone_content(bench: &Bench) -> Step<()> {
    let made = written(bench).await?;
    let copy = bench.numbered(1);
    filled(bench, &copy, Content::CloneOf(Box::new(made.clone()))).await?;
    filled(bench, &copy, Content::CloneOf(Box::new(made))).await
}

pub(super) async fn clone_killed(bench: &Bench) -> Step<()> {
    let made = written(bench).await?;
    let copy = bench.numbered(1);
    let content = || Content::CloneOf(Box::new(made.clone()));
    let order = Order::Provision { claim: copy.clone(), content: content() };
    let after = async |_, _: &Ended| {
        if let Some(volume) = bench.volume(&copy).await? {
            has_text(bench, &volume, &copy.volume_id()).await?;
        }
        filled(bench, &copy, content()).await
    };
    let reset = async || {
        if let Some(volume) = bench.volume(&copy).await? {
            bench.succeed(&Order::Delete(bench.setting.adopted(&copy, volume))).await?;
        }
        bench.forget(&copy).await
    };
    bench.at_each_child(&order, after, reset).await.map(drop)
}

pub(super) async fn snapshot_restore(bench: &Bench) -> Step<()> {
    let made = written(bench).await?;
    let snapshot = bench.ids.snapshot();
    bench.succeed(&Order::Snapshot(made.clone(), snapshot.clone())).await?;
    write(bench, &made, LATER).await?;
    filled(bench, &bench.numbered(1), Content::Snapshot(Box::new(made), snapshot)).await
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

pub(super) async fn modify(bench: &Bench) -> Step<()> {
    let made = bench.provision(&bench.claim()).await?;
    let to = |class: Option<&str>| {
        let attributes = Attributes { class: class.map(str::to_owned), parameters: Default::default() };
        Order::Modify(made.clone(), attributes)
    };
    for order in [to(Some("flex-gold")), to(Some("flex-gold")), to(None)] {
        bench.succeed(&order).await?;
    }
    Ok(())
}

pub(super) async fn capacity(bench: &Bench) -> Step<()> {
    bench.provision(&bench.claim()).await?;
    let before = bench.tree();
    let ended = bench.succeed(&Order::Capacity).await?;
    Answer::read(&ended.last_words()).map_err(|error| Halt::Failed(error.to_string()))?;
    let changes = before.changes(&bench.tree());
    check(changes.is_empty(), || format!("the run has changed {}", changes.join(", ")))
}

/// Makes two volumes, and returns their ids.
async fn two(bench: &Bench) -> Step<[String; 2]> {
    let ids = [bench.ids.numbered(0), bench.ids.numbered(1)];
    for id in &ids {
        bench.provision(&bench.setting.claim_with_id(id)).await?;
    }
    Ok(ids)
}

pub(super) async fn list_whole(bench: &Bench) -> Step<()> {
    let ids = two(bench).await?;
    let before = bench.tree();
    let ended = bench.succeed(&Order::List).await?;
    good(bench, Operation::List, &ended)?;
    let entries = listing::read(&ended.log).map_err(|error| Halt::Failed(error.to_string()))?;
    let volumes = entries.iter().filter(|entry| entry.state == listing::State::Volume);
    let mut listed: Vec<&String> = volumes.map(|entry| &entry.id).collect();
    listed.sort();
    // Only directories of the desk are empty at the beginning of a case.
    if bench.shares_storage() || bench.tree().with(&ids[0]).is_empty() {
        listed.retain(|id| id.starts_with(bench.ids.prefix()));
    }
    check(listed == ids.iter().collect::<Vec<_>>(), || format!("the list has {listed:?}, and the storage {ids:?}"))?;
    let changes = before.changes(&bench.tree());
    check(changes.is_empty(), || format!("the run has changed {}", changes.join(", ")))
}

pub(super) async fn list_or_nothing(bench: &Bench) -> Step<()> {
    let ids = two(bench).await?;
    let after = async |_, ended: &Ended| match listing::read(&ended.log) {
        Ok(entries) if entries.len() < ids.len() => Err(Halt::Failed("half a list looks like a whole one".into())),
        _ => Ok(()),
    };
    bench.at_each_child(&Order::List, after, async || Ok(())).await.map(drop)
}

pub(super) async fn batch_of_three(bench: &Bench) -> Step<()> {
    let setting = &bench.setting;
    let claims: Vec<Claim> = (0..3).map(|n| bench.numbered(n)).collect();
    let run = |claim: &Claim, attempt| MemberRun {
        member: Member {
            object: MemberObject::Claim(claim.name.clone()),
            id: claim.volume_id(),
            attempt,
            attributes: None,
            is_first: false,
        },
        request: setting.request(claim, attempt, &bench.kube_api()),
    };
    let orders: Vec<Order> = claims.iter().map(order).collect();
    let attempt = async |attempt| {
        let runs: Vec<MemberRun> = claims.iter().map(|claim| run(claim, attempt)).collect();
        let target = setting.target(&setting.recipe, None);
        let mut job = batch_job(&setting.recipe, &bench.ids.batch(), &runs, &target).job;
        setting.complete(&mut job).map_err(Halt::Failed)?;
        bench.run_job(job, &orders, Stop::Never).await
    };
    let ended = bench.patiently(batch::OPERATION, attempt).await?;
    check(ended.is_success(), || format!("the batch {}", shown(&ended)))?;
    // The orchestrator gives each member that asks for another attempt a run of its own.
    let failed = batch::read_outcomes(&ended.last_words()).unwrap_or_default();
    for failed in failed.into_iter().filter(|failed| is_repeated(failed.code, false)) {
        let Some(order) = failed.member.checked_sub(1).and_then(|n| orders.get(n)) else { continue };
        bench.repeats().note(batch::OPERATION, 1, failed.code, &failed.message);
        bench.succeed(order).await?;
    }
    for claim in &claims {
        check(bench.volume(claim).await?.is_some(), || {
            format!("{} is missing; the run said: {}", pv_name(&claim.volume_id()), ended.last_words())
        })?;
        bench.fitting(claim, &ended).await?;
    }
    // The members can be repeated alone.
    bench.succeed(&order(&claims[0])).await.map(drop)
}

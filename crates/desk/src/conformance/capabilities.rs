//! Cases of the operations that a config declares.

use flex_contract::batch;
use flex_contract::capacity::Answer;
use flex_contract::listing;
use flex_contract::names::pv_name;
use flex_contract::operation::Operation;
use flex_core::batch::{Member, MemberObject, MemberRun, job as batch_job};
use flex_core::config::modify::Attributes;
use flex_core::model::claim::Claim;

use super::bench::{Bench, Halt, Step, check, shown};
use super::patience::is_repeated;
use super::provision::{good, order};
use super::sample::fill_if_seen;
use super::told::{at_least, not_smaller};
use crate::desk::{Ended, Stop};
use crate::order::Order;

pub(super) async fn expand(bench: &Bench) -> Step<()> {
    let claim = bench.claim();
    let made = bench.provision(&claim).await?;
    let usual = claim.size.clone().unwrap_or_default();
    let mut size = at_least(bench, &made, usual).await?;
    let sample = fill_if_seen(bench, &made).await?;
    let double = usual.saturating_mul(2);
    let steps = [
        (double, "to twice its size"),
        (double, "the second time"),
        // After a failure, the user may ask for less than before.
        (usual.saturating_add(usual / 2), "to a smaller size than before"),
        (usual, "to the size that the claim has"),
    ];
    // On a cluster, a run takes seconds.
    let count = if bench.desk().is_ok() { steps.len() } else { 2 };
    for (n, (bytes, what)) in steps.into_iter().take(count).enumerate() {
        let step = async {
            bench.succeed(&Order::Expand(made.clone(), bytes)).await?;
            let now = at_least(bench, &made, bytes).await?;
            not_smaller(size, now)?;
            check(n != 1 || now == size, || format!("the size was {size:?} bytes, and is {now:?}"))?;
            if let Some(sample) = &sample {
                sample.check_made(bench, &made).await?;
            }
            Ok::<_, Halt>(now)
        };
        size = step.await.map_err(|halt| halt.during(what))?;
    }
    Ok(())
}

/// Returns the classes that a volume gets. Images accept a parameter whose prefix says whose it is, and drivers only their own.
fn attribute_classes(bench: &Bench) -> Step<Vec<Attributes>> {
    let named = bench.setting.attribute_classes();
    if !named.is_empty() {
        return Ok(named);
    }
    if bench.is_external() {
        let why =
            "a driver may know only its own parameters: add a VolumeAttributesClass to the file of config or claim";
        return Err(Halt::Skipped(why.into()));
    }
    let class = |name: &str| Attributes {
        class: Some(format!("flex-{name}")),
        parameters: [("conformance.example/tier".to_owned(), name.to_owned())].into(),
    };
    Ok(vec![class("gold"), class("silver")])
}

pub(super) async fn modify(bench: &Bench) -> Step<()> {
    let classes = attribute_classes(bench)?;
    let made = bench.provision(&bench.claim()).await?;
    // Some drivers refuse a call without parameters.
    let none = (!bench.is_external()).then(|| Attributes { class: None, parameters: Default::default() });
    // Each class is asked for twice.
    let twice = classes.into_iter().flat_map(|class| [class.clone(), class]);
    for attributes in twice.chain(none) {
        bench.succeed(&Order::Modify(made.clone(), attributes)).await?;
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
    bench.at_each_child(&Order::List, &after, &async || Ok(())).await
}

pub(super) async fn batch_of_three(bench: &Bench) -> Step<()> {
    let setting = &bench.setting;
    let claims: Vec<Claim> = (0..3).map(|n| bench.numbered(n)).collect();
    let run = |claim: &Claim, attempt| MemberRun {
        member: Member {
            object: MemberObject::Claim(claim.name.clone()),
            id: claim.volume_id(),
            attempt,
            scope: String::new(),
            attributes: None,
            is_first: false,
        },
        request: setting.request(claim, attempt, &bench.kube_api()),
    };
    let orders: Vec<Order> = claims.iter().map(order).collect();
    let attempt = async |attempt| {
        let numbers = orders.iter().map(|order| bench.place.attempt(order, attempt));
        let runs: Vec<MemberRun> = claims.iter().zip(numbers).map(|(claim, number)| run(claim, number)).collect();
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

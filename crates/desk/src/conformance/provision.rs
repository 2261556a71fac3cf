//! Cases of provision runs.

use std::time::Duration;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::config::capability;
use flex_core::model::claim::Claim;
use futures::future::join_all;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;

use super::bench::{Bench, Halt, Step, check, shown};
use super::listed::list;
use super::ready::at_volume;
use super::rest::Rest;
use super::sample::{Sample, fill_if_seen};
use super::told::at_least;
use super::user_tree::is_of_user;
use super::variable::{storage_root, with_variable};
use crate::api::Hold;
use crate::desk::{Ended, Stop};
use crate::order::{Content, Made, Order};
use crate::verdict::verdict;

/// The time after SIGTERM in which a run must have ended.
const GRACE: Duration = Duration::from_secs(10);
/// An operation that no image knows.
const UNKNOWN: &str = "flex-desk-unknown";
/// The secret that must not be in the last words.
const SECRET: &str = "planted-7f3a9c1e5b";
/// Bytes that make a size no multiple of anything.
const ODD: u64 = 12_347;
/// A word in hostile texts.
const HOSTILE: &str = "flex-hostile";

/// Returns the order of an empty volume for a claim.
pub(super) fn order(claim: &Claim) -> Order {
    Order::Provision { claim: claim.clone(), content: Content::Empty }
}

pub(super) async fn volume_fits(bench: &Bench) -> Step<()> {
    let claim = bench.claim();
    let made = bench.provision(&claim).await?;
    let volume = bench.volume(&claim).await?.unwrap_or(made.volume);
    let missing = missing_fields(bench, &claim, &volume);
    check(missing.is_empty(), || format!("the volume has not {}", missing.join(", ")))
}

/// Returns the fields of the contract that the volume has not, beside those that the orchestrator refuses.
fn missing_fields(bench: &Bench, claim: &Claim, volume: &PersistentVolume) -> Vec<String> {
    let value = json!(volume);
    let recipe = &bench.setting.recipe;
    let provisioner = recipe.effective_config.provisioner(&bench.setting.identity.provisioner);
    let key = |name: &str| name.replace('~', "~0").replace('/', "~1");
    let wanted = [
        (format!("/metadata/annotations/{}", key(names::CLAIM_UID)), json!(claim.uid)),
        (format!("/metadata/annotations/{}", key(names::PROVISIONED_BY)), json!(provisioner)),
        (format!("/metadata/labels/{}", key(names::LABEL_INSTANCE)), json!(bench.setting.identity.instance)),
        ("/spec/persistentVolumeReclaimPolicy".into(), json!(recipe.reclaim_policy.as_str())),
        ("/spec/claimRef/name".into(), json!(claim.volume_id())),
        ("/spec/claimRef/namespace".into(), json!(recipe.config.namespace)),
    ];
    let differs = |(pointer, wanted): &(String, serde_json::Value)| value.pointer(pointer) != Some(wanted);
    let said = |(pointer, wanted): (String, serde_json::Value)| {
        let name = pointer.trim_start_matches('/').replace('/', ".").replace("~1", "/");
        format!("{name}: {wanted}")
    };
    wanted.into_iter().filter(differs).map(said).collect()
}

pub(super) async fn rights(bench: &Bench) -> Step<()> {
    let ended = bench.succeed(&order(&bench.claim())).await?;
    let complains = |line: &&str| line.contains("Read-only file system") || line.contains("Permission denied");
    match ended.log.lines().find(complains) {
        Some(line) => Err(Halt::Failed(format!("the run exits 0, but says: {line}"))),
        None => Ok(()),
    }
}

pub(super) async fn called_again(bench: &Bench) -> Step<()> {
    let claim = bench.claim();
    let made = bench.provision(&claim).await?;
    // The claim may be bound already, and a pod may write.
    let sample = fill_if_seen(bench, &made).await?;
    let (tree, volume) = (bench.tree(), bench.volume(&claim).await?);
    bench.provision(&claim).await?;
    let changes = tree.changes(&bench.tree());
    let of_program: Vec<String> = changes.into_iter().filter(|path| !is_of_user(path)).collect();
    check(of_program.is_empty(), || format!("the second run has changed {}", of_program.join(", ")))?;
    // The orchestrator may have seen no volume, because the API had not stored it.
    bench.forget(&claim).await?;
    let made = bench.provision(&claim).await?;
    let spec = |volume: Option<PersistentVolume>| volume.and_then(|volume| volume.spec);
    check(spec(volume) == spec(bench.volume(&claim).await?), || "the second run has made another volume".into())?;
    match sample {
        Some(sample) => sample.check_made(bench, &made).await.map_err(|halt| halt.during("after a repeated run")),
        None => Ok(()),
    }
}

/// Checks that a repeated run makes the volume, and returns it.
async fn repeated(bench: &Bench) -> Step<Made> {
    bench.provision(&bench.claim()).await.map_err(|halt| halt.during("the repeated run"))
}

pub(super) async fn killed_at_child(bench: &Bench) -> Step<()> {
    let order = order(&bench.claim());
    let rest = Rest::of_volume(bench, &bench.claim()).await?;
    let after = async |_: usize, _: &Ended| rest.after_deletion(bench, repeated(bench).await?).await;
    let reset = async || bench.reset().await;
    bench.at_each_child(&order, &after, &reset).await
}

pub(super) async fn killed_at_times(bench: &Bench) -> Step<()> {
    let order = order(&bench.claim());
    let rest = Rest::of_volume(bench, &bench.claim()).await?;
    let after = async |_: usize, _: &Ended| rest.after_deletion(bench, repeated(bench).await?).await;
    let reset = async || bench.reset().await;
    bench.at_times(&|_| order.clone(), &after, &reset).await
}

pub(super) async fn killed_at_create(bench: &Bench) -> Step<()> {
    for (hold, moment) in [(Hold::BeforeCreate, "before"), (Hold::AfterCreate, "after")] {
        bench.reset().await?;
        bench.killed_at(hold).await?;
        let moment = format!("killed {moment} the API stored the volume");
        repeated(bench).await.map_err(|halt| halt.during(&moment))?;
    }
    Ok(())
}

pub(super) async fn volume_is_last(bench: &Bench) -> Step<()> {
    let claim = bench.claim();
    let seen = async |_: &Made| Ok(bench.tree());
    let (_, tree) = at_volume(bench, &claim, Content::Empty, &seen).await?;
    bench.stored(&claim.volume_id())?;
    let changes = tree.changes(&bench.tree());
    check(changes.is_empty(), || format!("after the volume, the run has changed {}", changes.join(", ")))
}

pub(super) async fn eight_at_once(bench: &Bench) -> Step<()> {
    let claims: Vec<Claim> = (0..8).map(|n| bench.numbered(n)).collect();
    let runs = join_all(claims.iter().map(|claim| bench.provision(claim))).await;
    let made = runs.into_iter().collect::<Step<Vec<_>>>()?;
    let sources: std::collections::BTreeSet<String> =
        made.iter().map(|made| flex_contract::volume::volume_source(&made.volume)).collect();
    check(sources.len() == made.len(), || "two volumes have the same storage".into())?;
    if bench.is_external() || !bench.setting.recipe.can(capability::CLONE) {
        return Ok(());
    }
    // The clones may need the room of the other volumes.
    let removed = join_all(claims[2..].iter().map(|claim| bench.remove(claim))).await;
    removed.into_iter().collect::<Step<()>>()?;
    clones_at_once(bench, &made[0], &made[1]).await
}

/// Makes clones of two volumes at one time, where the case sees directories.
async fn clones_at_once(bench: &Bench, one: &Made, other: &Made) -> Step<()> {
    let (Some(first @ Sample::Tree(_)), Some(second)) =
        (fill_if_seen(bench, one).await?, fill_if_seen(bench, other).await?)
    else {
        return Ok(());
    };
    let sources = [(one, first), (other, second.overwrite(bench, other).await?)];
    let runs = (0..4_u32).map(async |n| {
        let (source, sample) = &sources[usize::from(n % 2 == 1)];
        let copy = bench.numbered(20 + n);
        let made = bench.provision_with(&copy, Content::CloneOf(Box::new((*source).clone()))).await?;
        sample.check_made(bench, &made).await.map_err(|halt| halt.during("of several clones at one time, one"))
    });
    join_all(runs).await.into_iter().collect()
}

/// Runs an operation that no image knows.
async fn unknown(bench: &Bench) -> Step<Ended> {
    let order = order(&bench.claim());
    let mut job = bench.job(&order, 1)?;
    with_variable(&mut job, "OPERATION", UNKNOWN);
    bench.run_job(job, &[order], Stop::Never).await
}

pub(super) async fn unknown_operation(bench: &Bench) -> Step<()> {
    let before = bench.tree();
    let ended = unknown(bench).await?;
    check([64, 65].contains(&ended.code), || format!("the run {}; it must end with 64 (or 65)", shown(&ended)))?;
    check(bench.volume(&bench.claim()).await?.is_none(), || "the run has created a volume".into())?;
    let left = bench.tree();
    let traces = left.with(&bench.claim().volume_id());
    check(traces.is_empty(), || format!("the run has changed {}", before.changes(&left).join(", ")))
}

pub(super) async fn sizes(bench: &Bench) -> Step<()> {
    for (bytes, what) in [(1, "1 byte"), (i64::MAX as u64, "8 EiB")] {
        bench.reset().await?;
        let claim = Claim { size: Ok(bytes), ..bench.claim() };
        let ended = bench.run(&order(&claim)).await?;
        let volume = bench.volume(&claim).await?;
        if ended.is_success() {
            bench.fitting(&claim, &ended).await.map_err(|halt| halt.during(what))?;
            continue;
        }
        check(volume.is_none(), || format!("{what}: the run failed, but has created the volume"))?;
        check(ended.code < 126 && !ended.timed_out, || format!("{what}: the run {}", shown(&ended)))?;
    }
    odd_size(bench).await
}

/// A volume has at least the size that the claim asks for, also where that is no multiple of anything.
async fn odd_size(bench: &Bench) -> Step<()> {
    bench.reset().await?;
    let usual = bench.claim().size.unwrap_or_default();
    let odd = usual.saturating_add(ODD);
    let allowed = bench.setting.recipe.max_size.is_none_or(|most| odd <= most);
    let bytes = if allowed { odd } else { usual };
    let claim = Claim { size: Ok(bytes), ..bench.claim() };
    let ended = bench.run(&order(&claim)).await?;
    if ended.is_success() {
        let made = bench.fitting(&claim, &ended).await?;
        at_least(bench, &made, bytes).await?;
    }
    Ok(())
}

pub(super) async fn hostile_texts(bench: &Bench) -> Step<()> {
    let root = storage_root(&bench.job(&order(&bench.claim()), 1)?);
    // A cluster's storage cannot be seen, and its files would stay: there a command shows itself by its output.
    let command = match bench.sees_files() {
        true => format!("touch {root}/{HOSTILE}"),
        false => format!("echo {HOSTILE}-$((40+2))"),
    };
    let text = format!("x/../{HOSTILE} $({command}) `{command}` '\";{command};\n- a: {{");
    let keys = &bench.setting.recipe.claim_metadata;
    let claim = Claim {
        created_by: text.clone(),
        created_by_groups: vec![text.clone()],
        metadata: keys.iter().map(|key| (key.clone(), text.clone())).collect(),
        ..bench.claim()
    };
    let ended = bench.succeed(&order(&claim)).await?;
    bench.fitting(&claim, &ended).await?;
    let tree = bench.tree();
    let found = tree.with(HOSTILE);
    check(found.is_empty(), || format!("a text of the user became the path {}", found[0].display()))?;
    let done = format!("{HOSTILE}-42");
    check(!ended.log.contains(&done) && !ended.last_words().contains(&done), || {
        "a text of the user became a command".into()
    })?;
    let made = json!(bench.volume(&claim).await?.and_then(|volume| volume.spec)).to_string();
    check(!made.contains(HOSTILE), || "a text of the user is in the volume's spec".into())?;
    let listed = list(bench).await?.unwrap_or_default();
    check(!listed.iter().any(|entry| entry.place.contains(HOSTILE)), || {
        "a text of the user is a name of the storage".into()
    })
}

/// Runs that fail: the API refuses the volume, and nobody knows the operation.
async fn failures(bench: &Bench) -> Step<[Ended; 2]> {
    let api = &bench.desk()?.desk.api;
    api.hold(Hold::Refuse);
    let refused = bench.run(&order(&bench.claim())).await?;
    api.hold(Hold::Never);
    Ok([refused, unknown(bench).await?])
}

pub(super) async fn last_words(bench: &Bench) -> Step<()> {
    let [refused, _] = failures(bench).await?;
    check(refused.code != 0, || "the API has refused the volume, and the run exits 0".into())?;
    check(!refused.last_words().trim().is_empty(), || format!("the run ended with {} and said nothing", refused.code))?;
    let most = names::TERMINATION_MESSAGE;
    check(refused.message_bytes <= most, || {
        format!("the last words have {} bytes, more than {most}", refused.message_bytes)
    })
}

pub(super) async fn no_secret_in_words(bench: &Bench) -> Step<()> {
    let setting = bench.setting.with_secret(SECRET).map_err(|error| Halt::Skipped(error.to_string()))?;
    let own = setting.own_secrets();
    let bench = bench.again(&setting).await?;
    let said = |ended: &Ended, what: &str| -> Step<()> {
        let words = ended.last_words();
        check(!words.contains(SECRET), || "a Secret of the config is in the last words".into())?;
        let known = |text: &str| own.iter().find(|(_, value)| text.contains(value.as_str()));
        for (text, place) in [(&words, "last words"), (&ended.log, "log")] {
            let found = known(text);
            check(found.is_none(), || {
                let name = found.map_or("", |(name, _)| name.as_str());
                format!("the {place} of {what} have the value of {name}, which is a Secret of the config")
            })?;
        }
        Ok(())
    };
    for ended in failures(&bench).await? {
        said(&ended, "a run that fails")?;
    }
    if own.is_empty() {
        return Ok(());
    }
    let claim = bench.claim();
    said(&bench.succeed(&order(&claim)).await?, "a provision run")?;
    let volume = json!(bench.volume(&claim).await?).to_string();
    let found = own.iter().find(|(_, value)| volume.contains(value.as_str()));
    check(found.is_none(), || {
        let name = found.map_or("", |(name, _)| name.as_str());
        format!("the PersistentVolume has the value of {name}, which is a Secret of the config")
    })?;
    let volume = bench.volume(&claim).await?.unwrap_or_default();
    let made = bench.setting.adopted(&claim, volume);
    said(&bench.succeed(&Order::Delete(made)).await?, "a delete run")
}

pub(super) async fn ends_after_sigterm(bench: &Bench) -> Step<()> {
    let order = order(&bench.claim());
    let mut whole = bench.succeed(&order).await?.took;
    let mut stopped = None;
    // A cluster sends the signal as soon as the program runs, whatever the time.
    let parts: &[u32] = if bench.desk().is_ok() { &[2, 4, 8, 8, 8] } else { &[2] };
    for part in parts {
        bench.reset().await?;
        let after = whole / *part;
        let terminated = async |attempt| bench.attempt(&order, attempt, Stop::Terminate(after)).await;
        let ended = bench.patiently(order.operation().as_str(), terminated).await?;
        stopped = ended.stopped_after;
        if stopped.is_some() {
            break;
        }
        // The run before may have been slow because of other work on this machine.
        whole = ended.took;
    }
    let Some(after) = stopped else {
        return Err(Halt::Skipped("the run ended before SIGTERM could reach it".into()));
    };
    check(after < GRACE, || format!("the run was still there {} s after SIGTERM", GRACE.as_secs()))?;
    repeated(bench).await.map(drop)
}

pub(super) async fn pool_names(bench: &Bench) -> Step<()> {
    let name = flex_core::object::ObjectName::new("flex-pool-namespace", "flex-pool-claim");
    let claim = Claim { name, ..bench.claim() };
    let made = bench.provision(&claim).await?;
    let source = flex_contract::volume::volume_source(&made.volume);
    let tree = bench.tree();
    for word in ["flex-pool-namespace", "flex-pool-claim"] {
        check(!source.contains(word), || format!("the volume source has the text {word}"))?;
        check(tree.with(word).is_empty(), || format!("the storage has the name {word}"))?;
    }
    let listed = list(bench).await?.unwrap_or_default();
    check(listed.iter().all(|entry| !entry.place.contains("flex-pool-")), || {
        "a list run prints a name of the claim as a name of the storage".into()
    })?;
    Ok(())
}

/// Checks a verdict that must be good.
pub(super) fn good(bench: &Bench, operation: Operation, ended: &Ended) -> Step<()> {
    let verdict = verdict(&bench.setting, operation, &bench.claim(), None, ended);
    check(verdict.is_good(), || verdict.events.iter().map(|event| event.message.clone()).collect::<Vec<_>>().join("; "))
}

//! The scenarios: actions of users and admins while the orchestrator is cut off. These actors do not notice, and wait
//! for what the API shows.

use flex_contract::names;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::node::{CAPACITY, FAILS, FULL, HOLDS_AT, Stage};
use crate::proxy::Proxy;
use crate::site::Site;
use crate::world::{Finding, Trouble};
use orchestrator::ring::uid;

/// A scenario of users and admins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// A config and a claim.
    Provision,
    /// The first attempt fails, the second succeeds.
    Retry,
    /// A bound claim is deleted.
    Delete,
    /// A claim is deleted while its image runs and has made nothing.
    DeletedWhileRunning,
    /// A claim is deleted after its storage is made and before its PersistentVolume is.
    DeletedHalfMade,
    /// A claim is deleted while no orchestrator runs, wherever the last one was stopped.
    DeletedWhileDown,
    /// The config is deleted with claims in progress, which are then deleted too.
    ConfigDeleted,
    /// The config is edited with a claim in progress.
    ConfigEdited,
    /// The StorageClass is replaced with a claim in progress.
    ClassReplaced,
    /// A bound claim requests more.
    Expand,
    /// A bound claim requests other attributes, and the first run for them fails.
    Modify,
    /// The source of a clone is deleted while it is read.
    Clone,
    /// A claim and its half-made clone are deleted.
    CloneDeleted,
    /// The source of a snapshot is deleted while it is read.
    Snapshot,
    /// A claim and its half-made snapshot are deleted.
    SnapshotDeleted,
    /// A snapshot is deleted while a claim is restored from it.
    Restore,
    /// The quota of a class is one volume: a second claim gets its own after the first is deleted.
    Limited,
    /// The first attempt finds no space on its node, the second succeeds on another; then the claim is deleted.
    NoRoom,
    /// Claims are created while a run of their class is in progress, and share the next run.
    Batch,
    /// One claim of a batch is deleted while its volume is made.
    BatchLeft,
    /// Claims are deleted while a run deletes the volume of another; their volumes share the next run.
    BatchDeleted,
    /// A class begins to report capacity, does so again, and stops.
    Capacity,
    /// A class begins a pool, and a claim gets the pooled volume; the claim is deleted, and the class ends the pool.
    Pool,
}

impl Scenario {
    pub const ALL: [Scenario; 23] = [
        Scenario::Provision,
        Scenario::Retry,
        Scenario::Delete,
        Scenario::DeletedWhileRunning,
        Scenario::DeletedHalfMade,
        Scenario::DeletedWhileDown,
        Scenario::ConfigDeleted,
        Scenario::ConfigEdited,
        Scenario::ClassReplaced,
        Scenario::Expand,
        Scenario::Modify,
        Scenario::Clone,
        Scenario::CloneDeleted,
        Scenario::Snapshot,
        Scenario::SnapshotDeleted,
        Scenario::Restore,
        Scenario::Limited,
        Scenario::NoRoom,
        Scenario::Batch,
        Scenario::BatchLeft,
        Scenario::BatchDeleted,
        Scenario::Capacity,
        Scenario::Pool,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Scenario::Provision => "provision",
            Scenario::Retry => "retry",
            Scenario::Delete => "delete",
            Scenario::DeletedWhileRunning => "deleted-while-running",
            Scenario::DeletedHalfMade => "deleted-half-made",
            Scenario::DeletedWhileDown => "deleted-while-down",
            Scenario::ConfigDeleted => "config-deleted",
            Scenario::ConfigEdited => "config-edited",
            Scenario::ClassReplaced => "class-replaced",
            Scenario::Expand => "expand",
            Scenario::Modify => "modify",
            Scenario::Clone => "clone",
            Scenario::CloneDeleted => "clone-deleted",
            Scenario::Snapshot => "snapshot",
            Scenario::SnapshotDeleted => "snapshot-deleted",
            Scenario::Restore => "restore",
            Scenario::Limited => "limited",
            Scenario::NoRoom => "no-room",
            Scenario::Batch => "batch",
            Scenario::BatchLeft => "batch-left",
            Scenario::BatchDeleted => "batch-deleted",
            Scenario::Capacity => "capacity",
            Scenario::Pool => "pool",
        }
    }

    /// Returns the ways of binding that matter to the scenario: without a binding there is only one.
    pub fn bindings(self) -> &'static [&'static str] {
        match self {
            Scenario::Provision | Scenario::Delete | Scenario::DeletedWhileDown | Scenario::Pool => {
                &["direct", "controller"]
            }
            _ => &["direct"],
        }
    }

    /// Returns whether the scenario is one of those that together contain all writes for an undisturbed claim.
    pub fn is_of_a_life(self) -> bool {
        matches!(self, Scenario::Provision | Scenario::Retry | Scenario::Delete | Scenario::Expand)
    }

    /// Returns whether the scenario is about the life of a claim and its config: its volume is made, expanded and
    /// deleted. The other scenarios add something to that.
    pub fn is_of_claims(self) -> bool {
        use Scenario::{ConfigDeleted, DeletedHalfMade, DeletedWhileDown, DeletedWhileRunning};
        self.is_of_a_life() || matches!(self, DeletedWhileRunning | DeletedHalfMade | DeletedWhileDown | ConfigDeleted)
    }

    /// Prepares the objects that exist before writes are counted.
    pub async fn prepare(self, site: &Site<'_>) -> Result<(), Finding> {
        match self {
            Scenario::Provision | Scenario::Pool => {}
            Scenario::Retry => site.config(&[(FAILS, "1"), ("backoff", "1s")]).await,
            Scenario::Delete => {
                site.config(&[]).await;
                site.claim("a").await;
                site.bound("a").await?;
                site.at_rest(&["a"]).await?;
            }
            Scenario::DeletedWhileRunning => stopped_at(site, Stage::Started, false).await?,
            Scenario::DeletedHalfMade | Scenario::ConfigEdited => stopped_at(site, Stage::Made, false).await?,
            Scenario::DeletedWhileDown => site.config(&[]).await,
            Scenario::ConfigDeleted => {
                site.class(&[]).await;
                site.config(&[]).await;
            }
            Scenario::ClassReplaced => stopped_at(site, Stage::Made, true).await?,
            Scenario::Expand => {
                site.class(&[]).await;
                site.config(&[("capabilities", "expand")]).await;
                site.claim("a").await;
                site.bound("a").await?;
                site.at_rest(&["a"]).await?;
            }
            Scenario::Modify => {
                site.attributes_class("gold", (FAILS, "1")).await;
                site.config(&[("capabilities", "modify"), ("backoff", "1s")]).await;
                site.claim("a").await;
                site.bound("a").await?;
                site.at_rest(&["a"]).await?;
            }
            Scenario::NoRoom => {
                let here = ("volume-affinity", names::HOSTNAME);
                site.config(&[("placement", "selected-node"), here, (FULL, "1"), ("backoff", "1s")]).await;
            }
            Scenario::Batch => claim_before_batch(site, Stage::Started, "3").await?,
            Scenario::BatchLeft => {
                claim_before_batch(site, Stage::Made, "2").await?;
                create_together(site, &["b", "c"]).await?;
                site.made(3).await?;
            }
            Scenario::BatchDeleted => {
                let holds = (HOLDS_AT, Stage::Deleting.as_str());
                site.config(&[holds, ("batch-size", "3"), ("batch-window", "1s")]).await;
                for name in ALL_OF_BATCHES {
                    site.claim(name).await;
                }
                for name in ALL_OF_BATCHES {
                    site.bound(name).await?;
                }
                site.at_rest(&ALL_OF_BATCHES).await?;
            }
            Scenario::Capacity => site.delayed_class().await,
            Scenario::Limited => site.config(&[("max-volumes", "1"), ("placement", "any")]).await,
            Scenario::Clone => source_claim(site).await?,
            Scenario::CloneDeleted => {
                source_claim(site).await?;
                site.copy("b", "a").await;
                site.reached(Stage::Copying).await?;
            }
            Scenario::Snapshot => source(site).await?,
            Scenario::Restore => {
                site.snapshot_class().await;
                site.config(&[("capabilities", "snapshot")]).await;
                site.claim("a").await;
                site.bound("a").await?;
                site.at_rest(&["a"]).await?;
                site.snapshot("s", "a").await;
                site.snapshot_ready("s").await?;
                site.config(&[("capabilities", "snapshot"), (HOLDS_AT, Stage::Restoring.as_str())]).await;
                site.config_recorded().await?;
            }
            Scenario::SnapshotDeleted => {
                source(site).await?;
                site.snapshot("s", "a").await;
                site.reached(Stage::Copying).await?;
            }
        }
        Ok(())
    }

    /// Plays the scenario, and checks its outcome. Returns the claims that are bound in the end.
    pub async fn act(self, site: &Site<'_>, proxy: &Proxy) -> Result<&'static [&'static str], Finding> {
        match self {
            Scenario::Provision => {
                site.config(&[]).await;
                site.claim("a").await;
                site.bound("a").await?;
                Ok(&["a"])
            }
            Scenario::Retry => {
                site.claim("a").await;
                let claim = site.bound("a").await?;
                let attempt = claim.metadata.annotations.as_ref().and_then(|all| all.get(names::ATTEMPT).cloned());
                expect(attempt.as_deref() == Some("2"), || format!("bound in attempt {attempt:?}, not in the second"))?;
                Ok(&["a"])
            }
            Scenario::Delete | Scenario::DeletedWhileRunning | Scenario::DeletedHalfMade => {
                site.delete_claim("a").await;
                Ok(&[])
            }
            Scenario::DeletedWhileDown => {
                site.claim("a").await;
                tokio::select! {
                    bound = site.bound("a") => drop(bound?),
                    () = proxy.happened() => {}
                }
                site.delete_claim("a").await;
                Ok(&[])
            }
            Scenario::ConfigDeleted => {
                site.claim("a").await;
                site.claim("b").await;
                site.stamped("a").await?;
                site.stamped("b").await?;
                site.delete_config().await;
                site.bound("a").await?;
                site.bound("b").await?;
                site.delete_claim("a").await;
                site.delete_claim("b").await;
                Ok(&[])
            }
            Scenario::ConfigEdited => {
                site.config(&[("image", "example/second")]).await;
                site.config_recorded().await?;
                site.release_images();
                made_with(site, &site.bound("a").await?, "example/image").await?;
                site.claim("b").await;
                made_with(site, &site.bound("b").await?, "example/second").await?;
                Ok(&["a", "b"])
            }
            Scenario::ClassReplaced => {
                site.delete_class().await;
                site.class(&[("tier", "bronze")]).await;
                site.release_images();
                made_with(site, &site.bound("a").await?, "gold").await?;
                Ok(&["a"])
            }
            Scenario::Expand => {
                site.ask("a", "2Gi").await;
                let grown = |claim: &PersistentVolumeClaim| {
                    let status = claim.status.clone().unwrap_or_default();
                    status.capacity.is_some_and(|capacity| capacity["storage"].0 == "2Gi")
                        && status.conditions.unwrap_or_default().is_empty()
                        && status.allocated_resource_statuses.unwrap_or_default().is_empty()
                };
                let claim = site.claim_when("a", "has grown", grown).await?;
                let size = site.world.node.backend().expanded_size(&uid(&claim));
                expect(size == Some(2 << 30), || format!("the claim says 2Gi, the backend {size:?}"))?;
                Ok(&["a"])
            }
            Scenario::Modify => {
                site.ask_for_attributes("a", "gold").await;
                let claim = site.has_attributes("a", "gold").await?;
                let has = site.world.node.backend().attributes_class(&uid(&claim));
                let gold = has.as_ref().is_some_and(|class| class.ends_with("-gold"));
                expect(gold, || format!("the claim says gold, the backend {has:?}"))?;
                Ok(&["a"])
            }
            Scenario::Restore => {
                let snapshot = site.snapshot_ready("s").await?;
                site.restore("b", "s").await;
                site.reached(Stage::Restoring).await?;
                site.delete_snapshot("s").await;
                site.release_images();
                let claim = uid(&site.bound("b").await?);
                let of = site.world.node.backend().source_of(&claim);
                expect(of.as_ref() == Some(&snapshot), || format!("{claim} is made from {of:?}, not from {snapshot}"))?;
                site.snapshot_gone("s").await?;
                Ok(&["a", "b"])
            }
            Scenario::Clone => {
                let source_claim = uid(&site.bound("a").await?);
                site.copy("b", "a").await;
                site.reached(Stage::Copying).await?;
                site.delete_claim("a").await;
                site.release_images();
                let copy = uid(&site.bound("b").await?);
                let of = site.world.node.backend().source_of(&copy);
                expect(of.as_ref() == Some(&source_claim), || {
                    format!("{copy} is a copy of {of:?}, not of {source_claim}")
                })?;
                Ok(&["b"])
            }
            Scenario::Limited => {
                site.claim("a").await;
                site.claim("b").await;
                let (first, second) = site.first_bound("a", "b").await?;
                site.stays_unstamped(second).await?;
                site.delete_claim(first).await;
                site.bound(second).await?;
                Ok(if second == "a" { &["a"] } else { &["b"] })
            }
            Scenario::NoRoom => {
                site.claim("a").await;
                let claim = site.bound("a").await?;
                let attempt = claim.metadata.annotations.as_ref().and_then(|all| all.get(names::ATTEMPT).cloned());
                expect(attempt.as_deref() == Some("2"), || format!("bound in attempt {attempt:?}, not in the second"))?;
                site.cleared().await?;
                site.delete_claim("a").await;
                Ok(&[])
            }
            Scenario::Batch => {
                create_together(site, &["b", "c", "d"]).await?;
                site.release_images();
                for name in ALL_OF_BATCHES {
                    site.bound(name).await?;
                }
                Ok(&ALL_OF_BATCHES)
            }
            Scenario::BatchLeft => {
                site.delete_claim("c").await;
                site.release_images();
                site.bound("a").await?;
                site.bound("b").await?;
                Ok(&["a", "b"])
            }
            Scenario::BatchDeleted => {
                site.delete_claim("a").await;
                site.reached(Stage::Deleting).await?;
                for name in &ALL_OF_BATCHES[1..] {
                    site.delete_claim(name).await;
                }
                site.runs(2).await?;
                site.release_images();
                Ok(&[])
            }
            Scenario::Capacity => {
                let asked = [("capabilities", "capacity"), ("capacity-interval", "1s..1h"), ("placement", "any")];
                site.config(&asked).await;
                site.has_published(Some(CAPACITY)).await?;
                site.config(&[asked[0], asked[1], asked[2], ("zone", "another")]).await;
                site.config_recorded().await?;
                site.has_published_with_last_config().await?;
                site.config(&[]).await;
                site.has_published(None).await?;
                Ok(&[])
            }
            Scenario::Pool => {
                let (can, keeps) = (("capabilities", "pool"), ("pool", "1Gi=1"));
                site.config(&[can, keeps, ("placement", "any")]).await;
                let ready = site.ready(1).await?;
                site.claim("a").await;
                let claim = site.bound("a").await?;
                let own = names::pv_name(&uid(&claim));
                let has = claim.spec.and_then(|spec| spec.volume_name).unwrap_or_default();
                // The claim gets the pooled volume, unless its watch is faster than that of volumes: then a volume is
                // made for it.
                expect(ready.contains(&has) || has == own, || {
                    format!("the claim has {has}, and {ready:?} was pooled")
                })?;
                site.stamped("a").await?;
                let next = site.ready(1).await?;
                expect(!next.contains(&has), || format!("{has} is assigned to a claim, and still pooled"))?;
                site.delete_claim("a").await;
                site.config(&[can, ("placement", "any")]).await;
                Ok(&[])
            }
            Scenario::CloneDeleted => {
                site.delete_claim("a").await;
                site.delete_claim("b").await;
                Ok(&[])
            }
            Scenario::Snapshot => {
                site.snapshot("s", "a").await;
                site.reached(Stage::Copying).await?;
                site.delete_claim("a").await;
                site.release_images();
                site.snapshot_ready("s").await?;
                site.delete_snapshot("s").await;
                Ok(&[])
            }
            Scenario::SnapshotDeleted => {
                site.delete_snapshot("s").await;
                site.delete_claim("a").await;
                Ok(&[])
            }
        }
    }
}

/// Makes a bound claim, and clones of it that stop while they are made.
async fn source_claim(site: &Site<'_>) -> Result<(), Finding> {
    site.config(&[("capabilities", "clone")]).await;
    site.claim("a").await;
    site.bound("a").await?;
    site.at_rest(&["a"]).await?;
    site.config(&[("capabilities", "clone"), (HOLDS_AT, Stage::Copying.as_str())]).await;
    site.config_recorded().await
}

/// Makes a bound claim, and snapshots of it that stop while they are made.
async fn source(site: &Site<'_>) -> Result<(), Finding> {
    site.snapshot_class().await;
    site.config(&[("capabilities", "snapshot")]).await;
    site.claim("a").await;
    site.bound("a").await?;
    site.at_rest(&["a"]).await?;
    site.config(&[("capabilities", "snapshot"), (HOLDS_AT, Stage::Copying.as_str())]).await;
    site.config_recorded().await
}

/// The first claim, and the claims that share a run after it.
const ALL_OF_BATCHES: [&str; 4] = ["a", "b", "c", "d"];

/// Creates a claim whose image stops at a stage, as do those of the following claims, which share runs.
async fn claim_before_batch(site: &Site<'_>, stage: Stage, size: &str) -> Result<(), Finding> {
    site.config(&[(HOLDS_AT, stage.as_str()), ("batch-size", size), ("batch-window", "1s")]).await;
    site.claim("a").await;
    site.reached(stage).await
}

/// Creates the other claims, and waits for their stamps.
async fn create_together(site: &Site<'_>, names: &[&str]) -> Result<(), Finding> {
    for name in names {
        site.claim(name).await;
    }
    for name in names {
        site.stamped(name).await?;
    }
    Ok(())
}

/// Creates a claim whose image stops at a stage.
async fn stopped_at(site: &Site<'_>, stage: Stage, class: bool) -> Result<(), Finding> {
    if class {
        site.class(&[("tier", "gold")]).await;
    }
    site.config(&[(HOLDS_AT, stage.as_str())]).await;
    site.claim("a").await;
    site.reached(stage).await
}

/// Checks that the volume was made by the version of the config that contains this text.
async fn made_with(site: &Site<'_>, claim: &PersistentVolumeClaim, text: &str) -> Result<(), Finding> {
    let provenance = site.provenance(claim).await;
    expect(provenance.contains(&format!("\"{text}\"")), || format!("not made with {text}: {provenance}"))
}

fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<(), Finding> {
    holds.then_some(()).ok_or_else(|| Finding { trouble: Trouble::Stuck, what: what() })
}

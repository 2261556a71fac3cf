//! The scenarios: what users and admins do while the orchestrator is cut off. They do not know of it, and wait for what
//! they see in the API.

use flex_contract::names;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::node::{CAPACITY, FAILS, FULL, HOLDS_AT, Stage};
use crate::orchestrator::uid;
use crate::proxy::Proxy;
use crate::site::Site;
use crate::world::{Finding, Trouble};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// A config and a claim.
    Provision,
    /// The first attempt fails, the second does not.
    Retry,
    /// A claim that is bound is deleted.
    Delete,
    /// A claim is deleted while its image runs and has made nothing.
    DeletedWhileRunning,
    /// A claim is deleted when its storage is made and its PersistentVolume is not.
    DeletedHalfMade,
    /// A claim is deleted while no orchestrator runs, wherever the last one got to.
    DeletedWhileDown,
    /// The config is deleted with claims in flight, which are then deleted too.
    ConfigDeleted,
    /// The config is edited with a claim in flight.
    ConfigEdited,
    /// The StorageClass is replaced with a claim in flight.
    ClassReplaced,
    /// A bound claim asks for more.
    Expand,
    /// A bound claim asks for other attributes, and the first run for them fails.
    Modify,
    /// A claim is a copy of another, which is deleted while it is read.
    Clone,
    /// A claim and its half-made copy are deleted.
    CloneDeleted,
    /// A snapshot of a claim is made, which is deleted while it is read.
    Snapshot,
    /// A claim and its half-made snapshot are deleted.
    SnapshotDeleted,
    /// A claim is made from a snapshot, which is deleted while it is read.
    Restore,
    /// A class has room for one volume: a second claim gets its own when the first is gone.
    Limited,
    /// The first attempt finds no room on its node, and the second is made on another; then the claim goes.
    NoRoom,
    /// Claims come while a run of their class is under way, and share one.
    Batch,
    /// One of the claims of a batch is deleted while it is made.
    BatchLeft,
    /// Claims are deleted while a run deletes the volume of another, and their volumes share the next one.
    BatchDeleted,
    /// A class begins to tell how much room it has, is asked again, and ceases to.
    Capacity,
    /// A class begins to keep a volume ready, which a claim gets; the claim goes, and the class ceases to.
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

    /// The ways of binding that matter to it: where nothing is bound, there is only one.
    pub fn bindings(self) -> &'static [&'static str] {
        match self {
            Scenario::Provision | Scenario::Delete | Scenario::DeletedWhileDown | Scenario::Pool => {
                &["direct", "controller"]
            }
            _ => &["direct"],
        }
    }

    /// Together these write all that is written for a claim that nobody disturbs.
    pub fn is_of_a_life(self) -> bool {
        matches!(self, Scenario::Provision | Scenario::Retry | Scenario::Delete | Scenario::Expand)
    }

    /// What becomes of a claim, whose volume is made, grows and goes, and of its config. The others are what is added to
    /// that.
    pub fn is_of_claims(self) -> bool {
        use Scenario::{ConfigDeleted, DeletedHalfMade, DeletedWhileDown, DeletedWhileRunning};
        self.is_of_a_life() || matches!(self, DeletedWhileRunning | DeletedHalfMade | DeletedWhileDown | ConfigDeleted)
    }

    /// What is there before writes are counted.
    pub async fn prepare(self, site: &Site<'_>) -> Result<(), Finding> {
        match self {
            Scenario::Provision | Scenario::Pool => {}
            Scenario::Retry => site.config(&[(FAILS, "1"), ("backoff", "1s")]).await,
            Scenario::Delete => {
                site.config(&[]).await;
                site.claim("a").await;
                site.bound("a").await?;
                site.settled(&["a"]).await?;
            }
            Scenario::DeletedWhileRunning => held(site, Stage::Started, false).await?,
            Scenario::DeletedHalfMade | Scenario::ConfigEdited => held(site, Stage::Made, false).await?,
            Scenario::DeletedWhileDown => site.config(&[]).await,
            Scenario::ConfigDeleted => {
                site.class(&[]).await;
                site.config(&[]).await;
            }
            Scenario::ClassReplaced => held(site, Stage::Made, true).await?,
            Scenario::Expand => {
                site.class(&[]).await;
                site.config(&[("capabilities", "expand")]).await;
                site.claim("a").await;
                site.bound("a").await?;
                site.settled(&["a"]).await?;
            }
            Scenario::Modify => {
                site.attributes_class("gold", (FAILS, "1")).await;
                site.config(&[("capabilities", "modify"), ("backoff", "1s")]).await;
                site.claim("a").await;
                site.bound("a").await?;
                site.settled(&["a"]).await?;
            }
            Scenario::NoRoom => {
                let here = ("volume-affinity", names::HOSTNAME);
                site.config(&[("placement", "selected-node"), here, (FULL, "1"), ("backoff", "1s")]).await;
            }
            Scenario::Batch => first_of_batches(site, Stage::Started, "3").await?,
            Scenario::BatchLeft => {
                first_of_batches(site, Stage::Made, "2").await?;
                come_together(site, &["b", "c"]).await?;
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
                site.settled(&ALL_OF_BATCHES).await?;
            }
            Scenario::Capacity => site.delayed_class().await,
            Scenario::Limited => site.config(&[("max-volumes", "1"), ("placement", "any")]).await,
            Scenario::Clone => original(site).await?,
            Scenario::CloneDeleted => {
                original(site).await?;
                site.copy("b", "a").await;
                site.reached(Stage::Copying).await?;
            }
            Scenario::Snapshot => source(site).await?,
            Scenario::Restore => {
                site.snapshot_class().await;
                site.config(&[("capabilities", "snapshot")]).await;
                site.claim("a").await;
                site.bound("a").await?;
                site.settled(&["a"]).await?;
                site.snapshot("s", "a").await;
                site.snapshot_ready("s").await?;
                site.config(&[("capabilities", "snapshot"), (HOLDS_AT, Stage::Restoring.as_str())]).await;
                site.config_kept().await?;
            }
            Scenario::SnapshotDeleted => {
                source(site).await?;
                site.snapshot("s", "a").await;
                site.reached(Stage::Copying).await?;
            }
        }
        Ok(())
    }

    /// What is done, and what must come of it. Returns the claims that are Bound in the end.
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
                site.config_kept().await?;
                site.node_lets_go();
                made_with(site, &site.bound("a").await?, "example/image").await?;
                site.claim("b").await;
                made_with(site, &site.bound("b").await?, "example/second").await?;
                Ok(&["a", "b"])
            }
            Scenario::ClassReplaced => {
                site.delete_class().await;
                site.class(&[("tier", "bronze")]).await;
                site.node_lets_go();
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
                let size = site.world.node.backend().grown(&uid(&claim));
                expect(size == Some(2 << 30), || format!("the claim says 2Gi, the backend {size:?}"))?;
                Ok(&["a"])
            }
            Scenario::Modify => {
                site.ask_for_attributes("a", "gold").await;
                let claim = site.has_attributes("a", "gold").await?;
                let has = site.world.node.backend().modified(&uid(&claim));
                let gold = has.as_ref().is_some_and(|class| class.ends_with("-gold"));
                expect(gold, || format!("the claim says gold, the backend {has:?}"))?;
                Ok(&["a"])
            }
            Scenario::Restore => {
                let snapshot = site.snapshot_ready("s").await?;
                site.restore("b", "s").await;
                site.reached(Stage::Restoring).await?;
                site.delete_snapshot("s").await;
                site.node_lets_go();
                let claim = uid(&site.bound("b").await?);
                let of = site.world.node.backend().copy_of(&claim);
                expect(of.as_ref() == Some(&snapshot), || format!("{claim} is made from {of:?}, not from {snapshot}"))?;
                site.snapshot_gone("s").await?;
                Ok(&["a", "b"])
            }
            Scenario::Clone => {
                let original = uid(&site.bound("a").await?);
                site.copy("b", "a").await;
                site.reached(Stage::Copying).await?;
                site.delete_claim("a").await;
                site.node_lets_go();
                let copy = uid(&site.bound("b").await?);
                let of = site.world.node.backend().copy_of(&copy);
                expect(of.as_ref() == Some(&original), || format!("{copy} is a copy of {of:?}, not of {original}"))?;
                Ok(&["b"])
            }
            Scenario::Limited => {
                site.claim("a").await;
                site.claim("b").await;
                let (first, second) = site.first_bound("a", "b").await?;
                site.stays_unbegun(second).await?;
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
                come_together(site, &["b", "c", "d"]).await?;
                site.node_lets_go();
                for name in ALL_OF_BATCHES {
                    site.bound(name).await?;
                }
                Ok(&ALL_OF_BATCHES)
            }
            Scenario::BatchLeft => {
                site.delete_claim("c").await;
                site.node_lets_go();
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
                site.node_lets_go();
                Ok(&[])
            }
            Scenario::Capacity => {
                let asked = [("capabilities", "capacity"), ("capacity-interval", "1s..1h"), ("placement", "any")];
                site.config(&asked).await;
                site.told_of_room(Some(CAPACITY)).await?;
                site.config(&[asked[0], asked[1], asked[2], ("zone", "another")]).await;
                site.config_kept().await?;
                site.asked_with_the_last_config().await?;
                site.config(&[]).await;
                site.told_of_room(None).await?;
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
                // It gets what is ready, unless its watch is faster than that of volumes: then one is made for it.
                expect(ready.contains(&has) || has == own, || format!("the claim has {has}, and {ready:?} was ready"))?;
                site.stamped("a").await?;
                let next = site.ready(1).await?;
                expect(!next.contains(&has), || format!("{has} is a claim's, and ready for others"))?;
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
                site.node_lets_go();
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

/// A claim that is bound, and copies of it that are held while they are made.
async fn original(site: &Site<'_>) -> Result<(), Finding> {
    site.config(&[("capabilities", "clone")]).await;
    site.claim("a").await;
    site.bound("a").await?;
    site.settled(&["a"]).await?;
    site.config(&[("capabilities", "clone"), (HOLDS_AT, Stage::Copying.as_str())]).await;
    site.config_kept().await
}

/// A claim that is bound, and snapshots of it that are held while they are made.
async fn source(site: &Site<'_>) -> Result<(), Finding> {
    site.snapshot_class().await;
    site.config(&[("capabilities", "snapshot")]).await;
    site.claim("a").await;
    site.bound("a").await?;
    site.settled(&["a"]).await?;
    site.config(&[("capabilities", "snapshot"), (HOLDS_AT, Stage::Copying.as_str())]).await;
    site.config_kept().await
}

/// A claim, and those that share a run after it.
const ALL_OF_BATCHES: [&str; 4] = ["a", "b", "c", "d"];

/// A claim whose image is held at a stage, as are those of the claims that come next, so many of which share a run.
async fn first_of_batches(site: &Site<'_>, stage: Stage, size: &str) -> Result<(), Finding> {
    site.config(&[(HOLDS_AT, stage.as_str()), ("batch-size", size), ("batch-window", "1s")]).await;
    site.claim("a").await;
    site.reached(stage).await
}

/// Others come, and are stamped.
async fn come_together(site: &Site<'_>, names: &[&str]) -> Result<(), Finding> {
    for name in names {
        site.claim(name).await;
    }
    for name in names {
        site.stamped(name).await?;
    }
    Ok(())
}

/// A claim whose image is held at a stage.
async fn held(site: &Site<'_>, stage: Stage, class: bool) -> Result<(), Finding> {
    if class {
        site.class(&[("tier", "gold")]).await;
    }
    site.config(&[(HOLDS_AT, stage.as_str())]).await;
    site.claim("a").await;
    site.reached(stage).await
}

/// The volume was made by the version of the config in which this text stands.
async fn made_with(site: &Site<'_>, claim: &PersistentVolumeClaim, text: &str) -> Result<(), Finding> {
    let provenance = site.provenance(claim).await;
    expect(provenance.contains(&format!("\"{text}\"")), || format!("not made with {text}: {provenance}"))
}

fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<(), Finding> {
    holds.then_some(()).ok_or_else(|| Finding { trouble: Trouble::Stuck, what: what() })
}

//! The content that the user of a volume has written: a tree of files where the case sees the directory of the volume, or
//! a text on a device and where pods write.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PersistentVolume;

use super::bench::{Bench, Halt, Step, check};
use super::content::{LATER, TEXT, directory, has, write};
use super::user_tree::{self, Owners, UserTree};
use crate::below::Below;
use crate::container::Capabilities;
use crate::desk::is_root;
use crate::order::{Content, Made, Order};

/// The distance of another user from that of a volume. Each container has both.
const ANOTHER: u32 = 1000;

/// The content of a volume.
#[derive(Clone, Debug)]
pub(super) enum Sample {
    /// This tree.
    Tree(UserTree),
    /// This text.
    Text(&'static str),
}

/// Returns the users whose files a program of the case can copy.
fn owners(bench: &Bench, root: &Path) -> Step<Owners> {
    if !is_root() {
        return Ok(Owners::default());
    }
    let user = Below::open(root)?.mode_and_owner()?.1;
    let can_copy = !bench.is_external() && copies_owners(bench)?;
    Ok(Owners { user: Some(user), other: can_copy.then_some(user + ANOTHER) })
}

/// Checks whether the runs of the case have the rights to copy files of all users, and users to give them to.
fn copies_owners(bench: &Bench) -> Step<bool> {
    let order = Order::Provision { claim: bench.claim(), content: Content::Empty };
    let place = bench.desk()?;
    let job = bench.setting.job(&order, 1, &bench.kube_api()).map_err(Halt::Failed)?;
    let container = place.desk.container(&bench.setting, &job)?;
    let has = |name: &str| match &container.capabilities {
        Capabilities::All => true,
        Capabilities::Only(names) => names.iter().any(|own| own == name),
    };
    // Where this machine has few users, root of a container is its only one.
    let has_users = std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.contains("4294967295"));
    Ok(container.user == Some(0) && has_users && ["CHOWN", "DAC_OVERRIDE", "FOWNER"].iter().all(|name| has(name)))
}

/// Writes content into a volume, and returns it.
pub(super) async fn fill(bench: &Bench, made: &Made) -> Step<Sample> {
    let Some(root) = directory(bench, &made.volume, &made.claim.volume_id())? else {
        write(bench, made, TEXT).await?;
        return Ok(Sample::Text(TEXT));
    };
    let any_names = cfg!(target_os = "linux") && !bench.is_external();
    user_tree::write(&root, owners(bench, &root)?, any_names).map_err(unusable)?;
    read(&root).map(Sample::Tree)
}

fn unusable(error: std::io::Error) -> Halt {
    Halt::Failed(format!("the case cannot write the data of a user into the volume, or cannot read it: {error}"))
}

fn read(root: &Path) -> Step<UserTree> {
    UserTree::read(root).map_err(unusable)
}

/// Writes content into a volume for a case that can do without it.
pub(super) async fn fill_if_seen(bench: &Bench, made: &Made) -> Step<Option<Sample>> {
    let is_seen = bench.sees_files() || bench.commands().is_some();
    if bench.mounts().is_some() || !is_seen {
        return Ok(None);
    }
    match fill(bench, made).await {
        Ok(sample) => Ok(Some(sample)),
        Err(Halt::Skipped(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

impl Sample {
    /// Returns the directory of a volume that has a tree.
    fn root(&self, bench: &Bench, made: &Made) -> Step<Option<PathBuf>> {
        match self {
            Sample::Tree(_) => directory(bench, &made.volume, &made.claim.volume_id()),
            Sample::Text(_) => Ok(None),
        }
    }

    /// Checks that a volume has this content, and no other.
    pub(super) async fn check(&self, bench: &Bench, volume: &PersistentVolume, id: &str) -> Step<()> {
        let tree = match self {
            Sample::Text(text) => return has(bench, volume, id, text).await,
            Sample::Tree(tree) => tree,
        };
        let root = match directory(bench, volume, id) {
            Ok(root) => root,
            Err(Halt::Skipped(_)) => None,
            Err(other) => return Err(other),
        };
        let Some(root) = root else {
            return Err(Halt::Failed("the directory of the volume is missing".into()));
        };
        let found = read(&root)?;
        check(tree.paths().is_empty() || !found.paths().is_empty(), || "the volume is empty".into())?;
        let difference = tree.difference(&found, !bench.is_external());
        check(difference.is_none(), || {
            format!("the volume has other content than it must have: {}", difference.unwrap_or_default())
        })
    }

    /// The same for a volume that a run has made.
    pub(super) async fn check_made(&self, bench: &Bench, made: &Made) -> Step<()> {
        self.check(bench, &made.volume, &made.claim.volume_id()).await
    }

    /// Changes the content of a volume in its place, and returns what it is then.
    pub(super) async fn overwrite(&self, bench: &Bench, made: &Made) -> Step<Sample> {
        let Some(root) = self.root(bench, made)? else {
            write(bench, made, LATER).await?;
            return Ok(Sample::Text(LATER));
        };
        user_tree::overwrite(&root, owners(bench, &root)?).map_err(unusable)?;
        read(&root).map(Sample::Tree)
    }

    /// Adds many files, whose copy takes a while, and returns what the volume has then. A server would take too long.
    pub(super) async fn add_many(&self, bench: &Bench, made: &Made) -> Step<Sample> {
        let Some(root) = self.root(bench, made)?.filter(|_| !bench.is_external()) else { return Ok(self.clone()) };
        user_tree::write_many(&root, owners(bench, &root)?).map_err(unusable)?;
        read(&root).map(Sample::Tree)
    }

    /// Adds links, by their names, and returns what the volume has then. Only a directory has links.
    pub(super) async fn add_links(&self, bench: &Bench, made: &Made, links: &[(&str, String)]) -> Step<Sample> {
        let Some(root) = self.root(bench, made)? else {
            return Err(Halt::Skipped("the volume is no directory of this machine".into()));
        };
        user_tree::write_links(&root, owners(bench, &root)?, links).map_err(unusable)?;
        read(&root).map(Sample::Tree)
    }
}

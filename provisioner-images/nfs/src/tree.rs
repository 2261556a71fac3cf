//! Removing a directory with all that is in it, without ever following a link.
//!
//! Everything is addressed by its parent's handle and its own name, so that a directory which is
//! swapped for a link meanwhile leads nowhere.

use futures::{StreamExt, TryStreamExt};
use kit::Failure;
use nfs_rs::{Mount, NfsError, ObjRes, ReaddirplusEntry};

use crate::server::Server;
use crate::trouble::{Kind, kind};

/// What both protocol versions call a directory.
const DIRECTORY: u32 = 2;
/// Names that are read at once: bounds the memory for a directory of millions.
const PAGE: usize = 4096;
/// Removals under way at once: hides the way to the server, without flooding it.
const AT_ONCE: usize = 16;

/// A directory that is being emptied.
struct Open {
    parent: ObjRes,
    name: String,
    handle: ObjRes,
    shown: String,
}

/// Removes the directory; one that is gone already is no error.
pub async fn remove(server: &Server, path: &str) -> Result<(), Failure> {
    let mount = server.mount();
    let (folder, name) = crate::record::split(path);
    let found = async {
        let parent = mount.lookup_path(folder).await?;
        let handle = mount.lookup(parent.fh.clone(), name).await?;
        Ok::<_, NfsError>((parent, handle))
    };
    let (parent, handle) = match found.await {
        Ok(found) => found,
        Err(error) if kind(&error) == Kind::Missing => return Ok(()),
        Err(error) => return Err(server.failure(&format!("cannot look at {path}"), &error)),
    };
    // Depth first with a stack of its own: a user decides how deep the directories are.
    let mut stack = vec![Open { parent, name: name.to_owned(), handle, shown: path.to_owned() }];
    while let Some(open) = stack.last() {
        match step(mount, open).await {
            Ok(Step::Descend(directories)) => stack.extend(directories),
            Ok(Step::Again) => {}
            Ok(Step::Done) => {
                stack.pop();
            }
            Err(error) => return Err(server.failure(&format!("cannot remove {}", open.shown), &error)),
        }
    }
    Ok(())
}

enum Step {
    /// These must be emptied first.
    Descend(Vec<Open>),
    /// Files were removed; look again.
    Again,
    /// The directory is gone.
    Done,
}

/// Removes what can be removed from a directory at once, or the directory itself.
async fn step(mount: &dyn Mount, open: &Open) -> Result<Step, NfsError> {
    let page: Vec<ReaddirplusEntry> = mount
        .readdirplus(open.handle.fh.clone())
        .await
        .try_filter(|entry| std::future::ready(entry.file_name != "." && entry.file_name != ".."))
        .take(PAGE)
        .try_collect()
        .await?;
    if page.is_empty() {
        return match mount.rmdir(open.parent.fh.clone(), &open.name).await {
            Ok(()) => Ok(Step::Done),
            Err(error) if kind(&error) == Kind::Missing => Ok(Step::Done),
            Err(error) => Err(error),
        };
    }
    let mut directories = Vec::new();
    let mut files = Vec::new();
    for entry in page {
        if is_directory(mount, open, &entry).await? {
            let handle = mount.lookup(open.handle.fh.clone(), &entry.file_name).await?;
            let shown = format!("{}/{}", open.shown, entry.file_name);
            directories.push(Open { parent: open.handle.clone(), name: entry.file_name, handle, shown });
        } else {
            files.push(entry.file_name);
        }
    }
    futures::stream::iter(files)
        .map(|name| async move {
            match mount.remove(open.handle.fh.clone(), &name).await {
                Err(error) if kind(&error) != Kind::Missing => Err(error),
                _ => Ok(()),
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    Ok(if directories.is_empty() { Step::Again } else { Step::Descend(directories) })
}

/// The server may leave an entry's attributes out of a listing.
async fn is_directory(mount: &dyn Mount, open: &Open, entry: &ReaddirplusEntry) -> Result<bool, NfsError> {
    if let Some(attributes) = &entry.attr {
        return Ok(attributes.type_ == DIRECTORY);
    }
    let found = mount.lookup(open.handle.fh.clone(), &entry.file_name).await?;
    Ok(mount.getattr(found.fh).await?.type_ == DIRECTORY)
}

//! The removal of a directory with all its contents, without ever following a link.
//!
//! Each file is addressed by its parent's handle and its own name, so that a directory that is exchanged for a link
//! leads nowhere.

use flex_image_kit::Failure;
use futures::{StreamExt, TryStreamExt};
use nfs_rs::{Mount, NfsError, ObjRes, ReaddirplusEntry};

use crate::record::PathParts;
use crate::server::Server;
use crate::trouble::{Kind, is_no_directory, kind};

/// The kind of a directory in both protocol versions.
const DIRECTORY: u32 = 2;
/// The number of names that are read at one time. It bounds the memory for a directory with millions of files.
const PAGE: usize = 4096;
/// The number of removals at one time. It hides the latency of the server without flooding it.
const MAX_CONCURRENT: usize = 16;

/// The number of times that a directory may contain only names that are already gone, because others remove files too.
const IN_VAIN: u32 = 3;

/// A directory that is being emptied.
struct Open {
    parent: ObjRes,
    name: String,
    handle: ObjRes,
    /// The number of directories around it.
    depth: usize,
}

/// Removes the directory; a missing one is no error.
pub async fn remove(server: &Server, path: &str) -> Result<(), Failure> {
    let mount = server.mount();
    let PathParts { folder, name } = crate::record::split(path);
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
    // The removal is depth first with a stack of its own, because a user decides how deep the directories are.
    let mut stack = vec![Open { parent, name: name.to_owned(), handle, depth: 0 }];
    let mut in_vain = 0;
    while let Some(open) = stack.last() {
        let step = step(mount, open).await;
        in_vain = if matches!(step, Ok(Step::InVain(_))) { in_vain + 1 } else { 0 };
        match step {
            Ok(Step::Descend(directories)) => stack.extend(directories),
            Ok(Step::InVain(name)) if in_vain == IN_VAIN => {
                return Err(Failure::retry(format!(
                    "cannot remove {}: the server lists {name:?} there and does not know it: a name that is not UTF-8 \
                     cannot be removed by this image; remove it on the server",
                    shown(path, &stack)
                )));
            }
            Ok(Step::Again | Step::InVain(_)) => {}
            Ok(Step::Done) => {
                stack.pop();
            }
            // Somebody has exchanged it for a file or a link. It is removed when its directory is read again.
            Err(error) if is_no_directory(&error) && open.depth > 0 => {
                stack.pop();
            }
            Err(error) => return Err(server.failure(&format!("cannot remove {}", shown(path, &stack)), &error)),
        }
    }
    Ok(())
}

/// The number of directories of a path in a message. A user decides how deep a path is.
const SHOWN: usize = 20;

/// Returns the path of the directory on top of the stack. Its parents are the nearest below it of each lesser depth.
fn shown(path: &str, stack: &[Open]) -> String {
    let mut names = Vec::new();
    let mut wanted = stack.last().map_or(0, |open| open.depth);
    for open in stack.iter().rev() {
        if open.depth == wanted && wanted > 0 {
            names.push(open.name.as_str());
            wanted -= 1;
        }
    }
    let left_out = names.len().saturating_sub(SHOWN);
    names.truncate(SHOWN);
    if left_out > 0 {
        names.push("…");
    }
    [path].into_iter().chain(names.into_iter().rev()).collect::<Vec<_>>().join("/")
}

enum Step {
    /// These directories must be emptied first.
    Descend(Vec<Open>),
    /// Files were removed, and the directory must be read again.
    Again,
    /// The directory contained only files that do not exist, such as this one.
    InVain(String),
    /// The directory is gone.
    Done,
}

/// Removes the files of a directory that can be removed at once, or the directory itself.
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
            let parent = open.handle.clone();
            directories.push(Open { parent, name: entry.file_name, handle, depth: open.depth + 1 });
        } else {
            files.push(entry.file_name);
        }
    }
    let one = files.first().cloned();
    let removed = futures::stream::iter(files)
        .map(|name| async move {
            match mount.remove(open.handle.fh.clone(), &name).await {
                Err(error) if kind(&error) == Kind::Missing => Ok(0),
                removed => removed.map(|()| 1),
            }
        })
        .buffer_unordered(MAX_CONCURRENT)
        .try_fold(0, |sum: u32, one| std::future::ready(Ok(sum + one)))
        .await?;
    Ok(match one {
        _ if !directories.is_empty() => Step::Descend(directories),
        Some(name) if removed == 0 => Step::InVain(name),
        _ => Step::Again,
    })
}

/// Checks whether an entry is a directory. The server may omit an entry's attributes in a listing.
async fn is_directory(mount: &dyn Mount, open: &Open, entry: &ReaddirplusEntry) -> Result<bool, NfsError> {
    if let Some(attributes) = &entry.attr {
        return Ok(attributes.type_ == DIRECTORY);
    }
    let found = mount.lookup(open.handle.fh.clone(), &entry.file_name).await?;
    Ok(mount.getattr(found.fh).await?.type_ == DIRECTORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(name: &str, depth: usize) -> Open {
        let handle = ObjRes::default();
        Open { parent: handle.clone(), name: name.to_owned(), handle, depth }
    }

    #[test]
    fn a_failure_names_its_path() {
        let mut stack = vec![open("volume", 0)];
        assert_eq!(shown("exports/volume", &stack), "exports/volume");
        stack.extend([open("a", 1), open("b", 1), open("x", 2), open("y", 2), open("z", 3)]);
        assert_eq!(shown("exports/volume", &stack), "exports/volume/b/y/z");
        stack.extend((4..5000).map(|depth| open("d", depth)));
        let deep = shown("exports/volume", &stack);
        assert_eq!(deep, format!("exports/volume/…/{}", ["d"; SHOWN].join("/")));
    }
}

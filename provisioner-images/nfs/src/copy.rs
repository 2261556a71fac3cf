//! The copy of a directory with all its contents, within one export, while others may write to the source.
//!
//! Each file is addressed by its parent's handle and its own name, and a handle never leads through a link. So a
//! directory that is exchanged for a link leads nowhere.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use flex_image_kit::Failure;
use futures::{StreamExt, TryStreamExt};
use nfs_rs::{Attr, Mount, NfsError, OPEN_READ, ObjRes, ReaddirplusEntry};

use crate::attributes::{self, Extras};
use crate::contents::{self, Ways};
use crate::server::Server;
use crate::trouble::{is_gone, may_have_vanished};

/// The kinds of files, by the numbers that all protocol versions use.
const REGULAR: u32 = 1;
const DIRECTORY: u32 = 2;
const LINK: u32 = 5;

/// The number of times that the list of a directory begins again, because an entry vanishes while the server reads it.
const RESTARTS: usize = 100;
/// The number of names that are read at one time. The bound saves memory in a directory with millions of files.
const PAGE: usize = 4096;
/// The number of files that are copied at one time. The number hides the latency of the server without flooding it.
const MAX_CONCURRENT: usize = 8;
/// The number of directories of a path in a message. A user decides how deep a path is.
const SHOWN: usize = 20;
/// The mode of a directory until its copy is complete.
const PRIVATE: u32 = 0o700;

/// A directory that is being copied.
struct Level {
    name: String,
    source: ObjRes,
    target: ObjRes,
    /// The directories in it that are not copied yet.
    waiting: Vec<String>,
}

/// A file with several names: its copy, and the number of names that are still to come.
struct Linked {
    copy: ObjRes,
    left: u32,
}

/// The state of one copy.
struct Copying<'a> {
    server: &'a Server,
    mount: &'a dyn Mount,
    ways: Ways,
    extras: Extras,
    left_out: AtomicU64,
}

/// A name in a directory of the source, and the place of its copy.
struct Place<'a> {
    level: &'a Level,
    folder: &'a str,
    name: &'a str,
}

impl Place<'_> {
    fn shown(&self) -> String {
        format!("{}/{}", self.folder, self.name)
    }
}

/// Copies a directory into an empty one: data, links, owners, modes, times, and what else the server has
/// (extended attributes, access control lists). Names of one file are names of one file in the copy. Pipes, sockets and
/// devices are left out. The unfinished copy is left behind if something fails.
pub async fn tree(server: &Server, from: &str, to: &str) -> Result<(), Failure> {
    let mount = server.mount();
    let failure = |error: NfsError| server.failure(&format!("cannot copy {from} to {to}"), &error);
    let source = mount.lookup_path(from).await.map_err(failure)?;
    // The copy of a large directory takes long, so a wrong owner is better found before than after.
    let attributes = mount.getattr(source.fh.clone()).await.map_err(failure)?;
    attributes::check_owner(&attributes, from)?;
    let target = mount.lookup_path(to).await.map_err(failure)?;
    let extras = Extras::of(mount, &source).await.map_err(failure)?;
    let copying = Copying { server, mount, ways: Ways::default(), extras, left_out: AtomicU64::new(0) };
    copying.whole(Level { name: from.to_owned(), source, target, waiting: Vec::new() }).await?;
    let left_out = copying.left_out.load(Ordering::Relaxed);
    eprintln!("{from} is copied: {}; {left_out} pipes, sockets and devices are left out", copying.ways.summary());
    Ok(())
}

/// Returns the path of the last level, for people.
fn path(levels: &[Level]) -> String {
    let left_out = levels.len().saturating_sub(SHOWN + 1);
    let names = levels.iter().take(1).map(|level| level.name.as_str());
    let more = std::iter::once("…").take(left_out.min(1));
    let rest = levels.iter().skip(1 + left_out).map(|level| level.name.as_str());
    names.chain(more).chain(rest).collect::<Vec<_>>().join("/")
}

impl Copying<'_> {
    /// Copies depth first, with a stack of its own, because a user decides how deep the directories are.
    async fn whole(&self, top: Level) -> Result<(), Failure> {
        let mut links = HashMap::new();
        let mut levels = vec![top];
        self.fill(&mut levels, &mut links).await?;
        while let Some(mut level) = levels.pop() {
            let next = level.waiting.pop();
            levels.push(level);
            let Some(next) = next else {
                // The attributes come last, because each new file changes the times of its directory.
                self.finish(&levels).await?;
                levels.pop();
                continue;
            };
            let folder = path(&levels);
            let Some(level) = levels.last() else { break };
            // Somebody may have removed the directory meanwhile.
            if let Some(inner) = self.enter(&Place { level, folder: &folder, name: &next }).await? {
                levels.push(inner);
                self.fill(&mut levels, &mut links).await?;
            }
        }
        Ok(())
    }

    /// Makes the copy of a directory, still empty. Returns `None` if the directory is gone.
    async fn enter(&self, place: &Place<'_>) -> Result<Option<Level>, Failure> {
        let Some((source, attributes)) = self.found(place).await? else { return Ok(None) };
        if attributes.type_ != DIRECTORY {
            return Err(exchanged(place));
        }
        attributes::check_owner(&attributes, &place.shown())?;
        let made = self.mount.mkdir(place.level.target.fh.clone(), place.name, PRIVATE).await;
        let target = made.map_err(|error| self.failure(place, &error))?;
        Ok(Some(Level { name: place.name.to_owned(), source, target, waiting: Vec::new() }))
    }

    /// Gives the last directory the attributes of its source.
    async fn finish(&self, levels: &[Level]) -> Result<(), Failure> {
        let [.., level] = levels else { return Ok(()) };
        let failure = |error: NfsError| self.server.failure(&format!("cannot copy {}", path(levels)), &error);
        let attributes = match self.mount.getattr(level.source.fh.clone()).await {
            // Somebody has removed the directory meanwhile, with all that was not copied yet.
            Err(error) if levels.len() > 1 && is_gone(&error) => return Ok(()),
            found => found.map_err(failure)?,
        };
        // Somebody may have given the directory another owner since the first check.
        attributes::check_owner(&attributes, &path(levels))?;
        let copied = attributes::copy(self.mount, &self.extras, (&level.source, &attributes), &level.target).await;
        copied.map_err(failure)
    }

    /// Copies all in the last directory that is no directory, and notes its directories.
    async fn fill(&self, levels: &mut [Level], links: &mut HashMap<(u64, u64), Linked>) -> Result<(), Failure> {
        let folder = path(levels);
        let is_top = levels.len() == 1;
        let Some(level) = levels.last_mut() else { return Ok(()) };
        let mut directories: Vec<String> = Vec::new();
        let mut restarts = 0;
        let mut entries = self.mount.readdirplus(level.source.fh.clone()).await;
        loop {
            let page = entries.by_ref().take(PAGE).try_collect::<Vec<ReaddirplusEntry>>().await;
            let page = match page {
                // The entry is gone of which the server wants to tell, or the directory itself.
                Err(error) if may_have_vanished(&error) && restarts < RESTARTS => {
                    if !is_top && self.is_removed(&level.source).await {
                        break;
                    }
                    restarts += 1;
                    drop(entries);
                    entries = self.mount.readdirplus(level.source.fh.clone()).await;
                    continue;
                }
                page => page.map_err(|error| self.server.failure(&format!("cannot list {folder}"), &error))?,
            };
            if page.is_empty() {
                break;
            }
            let mut names: Vec<&str> = page.iter().map(|entry| entry.file_name.as_str()).collect();
            names.retain(|name| !matches!(*name, "." | ".."));
            if restarts > 0 {
                names = self.new_names(level, names, &directories).await;
            }
            let places: Vec<Place<'_>> = names.into_iter().map(|name| Place { level, folder: &folder, name }).collect();
            let found: Vec<Found> = futures::stream::iter(&places)
                .map(|place| self.entry(place))
                .buffered(MAX_CONCURRENT)
                .try_collect()
                .await?;
            for (place, found) in places.iter().zip(found) {
                match found {
                    Found::Directory => directories.push(place.name.to_owned()),
                    // One after another, because the second name of a file waits for its first.
                    Found::Linked => self.linked(place, links).await?,
                    Found::Done => {}
                }
            }
        }
        drop(entries);
        level.waiting = directories;
        Ok(())
    }

    /// Checks whether a directory is gone itself.
    async fn is_removed(&self, directory: &ObjRes) -> bool {
        self.mount.getattr(directory.fh.clone()).await.is_err_and(|error| is_gone(&error))
    }

    /// Returns those names of a list that began again of which nothing is copied or noted yet.
    async fn new_names<'a>(&self, level: &Level, names: Vec<&'a str>, directories: &[String]) -> Vec<&'a str> {
        let is_new = async |name: &'a str| {
            let is_copied = self.mount.lookup(level.target.fh.clone(), name).await.is_ok();
            (!is_copied && directories.iter().all(|known| known != name)).then_some(name)
        };
        let new: Vec<Option<&str>> = futures::stream::iter(names).map(is_new).buffered(MAX_CONCURRENT).collect().await;
        new.into_iter().flatten().collect()
    }

    /// Copies what has a name, unless it is a directory or has several names.
    async fn entry(&self, place: &Place<'_>) -> Result<Found, Failure> {
        let Some((source, attributes)) = self.found(place).await? else { return Ok(Found::Done) };
        match attributes.type_ {
            DIRECTORY => return Ok(Found::Directory),
            REGULAR | LINK if attributes.nlink > 1 => return Ok(Found::Linked),
            REGULAR => drop(self.file(place).await?),
            LINK => drop(self.link(place, &source, &attributes).await?),
            _ => drop(self.left_out.fetch_add(1, Ordering::Relaxed)),
        }
        Ok(Found::Done)
    }

    /// Copies a file or link with several names, or gives its copy another name.
    async fn linked(&self, place: &Place<'_>, links: &mut HashMap<(u64, u64), Linked>) -> Result<(), Failure> {
        let Some((source, attributes)) = self.found(place).await? else { return Ok(()) };
        let key = (attributes.fsid, attributes.fileid);
        let is_link = attributes.type_ == LINK;
        if let Some(known) = links.get_mut(&key) {
            match self.mount.link(known.copy.fh.clone(), place.level.target.fh.clone(), place.name).await {
                // Not every server gives a symbolic link several names.
                Err(_) if is_link => drop(self.link(place, &source, &attributes).await?),
                linked => drop(linked.map_err(|error| self.failure(place, &error))?),
            }
            known.left -= 1;
            if known.left == 0 {
                links.remove(&key);
            }
            return Ok(());
        }
        let copied = match is_link {
            true => self.link(place, &source, &attributes).await?.map(|copy| (copy, attributes)),
            false => self.file(place).await?,
        };
        match copied {
            // Another file may have this name by now.
            Some((copy, now)) if (now.fsid, now.fileid) == key && now.nlink > 1 => {
                links.insert(key, Linked { copy, left: now.nlink - 1 });
            }
            _ => {}
        }
        Ok(())
    }

    /// Copies a file. Returns the copy and the attributes of the source; `None` if the file is gone.
    async fn file(&self, place: &Place<'_>) -> Result<Option<(ObjRes, Attr)>, Failure> {
        let Place { level, name, .. } = place;
        let source = match self.mount.open(level.source.fh.clone(), name, OPEN_READ).await {
            Err(error) if is_gone(&error) => return Ok(None),
            opened => opened.map_err(|error| self.failure(place, &error))?,
        };
        let copied = async {
            let attributes =
                self.mount.getattr(source.fh.clone()).await.map_err(|error| self.failure(place, &error))?;
            if attributes.type_ != REGULAR {
                return Err(exchanged(place));
            }
            attributes::check_owner(&attributes, &place.shown())?;
            let copied = self.opened(place, &source, &attributes).await;
            Ok(Some((copied.map_err(|error| self.failure(place, &error))?, attributes)))
        };
        let copied = copied.await;
        // The server forgets what was opened when the session ends.
        let _ = self.mount.close(source.fh.clone()).await;
        copied
    }

    async fn opened(&self, place: &Place<'_>, source: &ObjRes, attributes: &Attr) -> Result<ObjRes, NfsError> {
        let target = self.mount.create(place.level.target.fh.clone(), place.name, None).await?;
        let filled = contents::copy(self.mount, &self.ways, source, &target, attributes.filesize).await;
        let closed = self.mount.close(target.fh.clone()).await;
        filled.and(closed)?;
        // The server may clear bits of the mode when it writes, so the attributes follow.
        attributes::copy(self.mount, &self.extras, (source, attributes), &target).await?;
        Ok(target)
    }

    /// Copies a symbolic link, wherever it leads. Returns `None` if the link is gone.
    async fn link(&self, place: &Place<'_>, source: &ObjRes, attributes: &Attr) -> Result<Option<ObjRes>, Failure> {
        attributes::check_owner(attributes, &place.shown())?;
        let text = match self.mount.readlink(source.fh.clone()).await {
            Err(error) if is_gone(&error) => return Ok(None),
            read => read.map_err(|error| self.failure(place, &error))?,
        };
        if text.len() as u64 != attributes.filesize && text.contains(char::REPLACEMENT_CHARACTER) {
            return Err(not_utf8(place, "the target of the link"));
        }
        let Attr { uid, gid, atime, mtime, .. } = *attributes;
        let target = place.level.target.fh.clone();
        let made =
            self.mount.symlink_with_attrs(&text, target, place.name, Some(uid), Some(gid), Some(atime), Some(mtime));
        made.await.map(Some).map_err(|error| self.failure(place, &error))
    }

    /// Returns the file of a name; `None` if it is gone.
    async fn found(&self, place: &Place<'_>) -> Result<Option<(ObjRes, Attr)>, Failure> {
        let Place { level, name, .. } = place;
        let found = async {
            let found = self.mount.lookup(level.source.fh.clone(), name).await?;
            let attributes = self.mount.getattr(found.fh.clone()).await?;
            Ok((found, attributes))
        };
        match found.await {
            Ok(found) => Ok(Some(found)),
            // The client library shows a name that is not UTF-8 as another one, which does not exist.
            Err(error) if is_gone(&error) && name.contains(char::REPLACEMENT_CHARACTER) => {
                Err(not_utf8(place, "the name"))
            }
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(self.failure(place, &error)),
        }
    }

    fn failure(&self, place: &Place<'_>, error: &NfsError) -> Failure {
        self.server.failure(&format!("cannot copy {}", place.shown()), error)
    }
}

/// The kind of object that a name stands for.
enum Found {
    /// A directory, which follows.
    Directory,
    /// A file with several names, which follows.
    Linked,
    /// A file that is copied, left out or gone.
    Done,
}

fn exchanged(place: &Place<'_>) -> Failure {
    Failure::retry(format!("cannot copy {}: somebody exchanged it meanwhile", place.shown()))
}

fn not_utf8(place: &Place<'_>, what: &str) -> Failure {
    Failure::retry(format!(
        "cannot copy {}: {what} is not UTF-8, and this image cannot copy that; rename it in the volume",
        place.shown()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_path() {
        let level = |name: &str| Level {
            name: name.to_owned(),
            source: ObjRes::default(),
            target: ObjRes::default(),
            waiting: Vec::new(),
        };
        let mut levels = vec![level("exports/volume")];
        assert_eq!(path(&levels), "exports/volume");
        levels.extend([level("a"), level("b")]);
        assert_eq!(path(&levels), "exports/volume/a/b");
        levels.extend((0..5000).map(|_| level("d")));
        assert_eq!(path(&levels), format!("exports/volume/…/{}", ["d"; SHOWN].join("/")));
    }
}

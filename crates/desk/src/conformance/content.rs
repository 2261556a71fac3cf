//! The content of a volume, as its user writes and reads it.

use std::cmp::Reverse;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write, read_to_string};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use flex_contract::volume::volume_source;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::Value;

use super::bench::{Bench, Halt, Step, check};
use super::mounts::{Mounts, Reading, sum};
use crate::below::Below;
use crate::desk::is_root;
use crate::order::Made;

/// The file that the user of a volume has written.
const FILE: &str = "flex-content";
/// The content of that file, or the beginning of a device.
pub(super) const TEXT: &str = "the data of a user\n";
/// The content that the user writes later.
pub(super) const LATER: &str = "later data\n";

/// The place of a volume's content on this machine.
enum Place {
    /// The directory of the volume.
    Directory(PathBuf),
    /// The device of the volume.
    Device(PathBuf),
}

/// Returns the path in the source of a volume that is on a node.
pub(super) fn path_on_node(volume: &PersistentVolume) -> Option<&str> {
    let spec = volume.spec.as_ref()?;
    let local = spec.local.as_ref().map(|local| local.path.as_str());
    local.or_else(|| spec.host_path.as_ref().map(|on_node| on_node.path.as_str()))
}

fn is_block(volume: &PersistentVolume) -> bool {
    volume.spec.as_ref().is_some_and(|spec| spec.volume_mode.as_deref() == Some("Block"))
}

/// Returns the directory of a volume whose source has the path of a server. A link of the program is not followed.
fn on_server(bench: &Bench, volume: &PersistentVolume, id: &str) -> Option<PathBuf> {
    let place = bench.desk().ok()?;
    let own = place.desk.storage();
    let roots: Vec<PathBuf> = place.parts.storage.directories().into_iter().chain([own.to_path_buf()]).collect();
    let is_directory = |path: &PathBuf| {
        let within = roots.iter().find_map(|root| Some((root, path.strip_prefix(root).ok()?)));
        within.is_some_and(|(root, within)| Below::open(root).and_then(|below| below.find(within)).is_ok())
    };
    let tree = bench.tree();
    let directories = tree.with(id).into_iter().map(|path| own.join(path)).filter(is_directory).collect();
    let source = serde_json::from_str(&volume_source(volume)).unwrap_or_default();
    nearest(directories, &source, id)
}

/// Chooses the directory of a volume among those with its id in their paths: the one whose path ends most like a text in
/// the source of the volume. A program may keep others beside it, such as one for an unfinished copy.
fn nearest(directories: Vec<PathBuf>, source: &Value, id: &str) -> Option<PathBuf> {
    let texts = texts(source);
    let alike = |path: &PathBuf| texts.iter().map(|text| common_end(path, Path::new(text), id)).max().unwrap_or(0);
    directories.into_iter().min_by_key(|path| Reverse(alike(path)))
}

/// Counts the last names that two paths have in common; 0 if none of these has the id.
fn common_end(one: &Path, other: &Path, id: &str) -> usize {
    let names = one.iter().rev().zip(other.iter().rev()).map_while(|(one, other)| (one == other).then_some(one));
    let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
    if names.iter().any(|name| name.contains(id)) { names.len() } else { 0 }
}

/// Returns all texts in a value.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

fn place(bench: &Bench, volume: &PersistentVolume, id: &str) -> Step<Place> {
    if !is_block(volume) {
        bench.stored(id)?;
        // The kubelet looks at the path in the volume. A server has its own paths.
        let by_source = |path| bench.desk().ok()?.desk.on_node(path).ok().filter(|path| path.is_dir());
        let folder = match path_on_node(volume) {
            Some(path) => by_source(path),
            None => on_server(bench, volume, id),
        };
        let folder = folder.map(Place::Directory);
        return folder.ok_or_else(|| Halt::Skipped("the volume is no directory of this machine".into()));
    }
    let on_node = |path| bench.desk()?.desk.on_node(path).map_err(|error| Halt::Failed(error.to_string()));
    let device = path_on_node(volume).map(on_node).transpose()?;
    let is_device = |path: &Path| fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    // A run without a directory of this machine has made its devices itself, and may mean any device of this machine.
    let is_given = |path: &PathBuf| bench.desk().is_ok_and(|place| !path.starts_with(place.desk.storage()));
    device.filter(is_given).filter(|path| is_device(path)).map(Place::Device).ok_or_else(|| {
        Halt::Skipped(
            "the device of the volume is not on this machine: give the runs its directory by --on-node".into(),
        )
    })
}

/// Returns the directory of a volume; `None` for a device, and where pods or commands write and read volumes.
pub(super) fn directory(bench: &Bench, volume: &PersistentVolume, id: &str) -> Step<Option<PathBuf>> {
    if bench.mounts().is_some() || bench.commands().is_some() {
        return Ok(None);
    }
    match place(bench, volume, id)? {
        Place::Directory(path) => Ok(Some(path)),
        Place::Device(_) => Ok(None),
    }
}

/// Returns the bytes of the device that a volume names, if it is on this machine.
pub(super) fn device_size(bench: &Bench, volume: &PersistentVolume) -> Option<u64> {
    let path = bench.desk().ok()?.desk.on_node(path_on_node(volume)?).ok()?;
    let is_device = fs::metadata(&path).is_ok_and(|found| found.file_type().is_block_device());
    is_device.then(|| File::open(path).and_then(|mut device| device.seek(SeekFrom::End(0))).ok()).flatten()
}

/// Writes a text into a volume.
pub(super) async fn write(bench: &Bench, made: &Made, text: &str) -> Step<()> {
    if let Some(mounts) = bench.mounts() {
        return write_by_pod(mounts, &made.volume, text).await;
    }
    if let Some(commands) = bench.commands() {
        return commands.write(bench, &made.volume, &made.claim.volume_id(), text).await;
    }
    match place(bench, &made.volume, &made.claim.volume_id())? {
        Place::Directory(path) => {
            // The file belongs to the owner of the volume, as if that user had written it.
            let folder = Below::open(&path)?;
            let owner = folder.mode_and_owner()?.1;
            folder.write(Path::new(FILE), text.as_bytes(), 0o644, is_root().then_some(owner))?;
        }
        Place::Device(path) => {
            let mut device = OpenOptions::new().write(true).open(path)?;
            device.write_all(text.as_bytes())?;
            device.sync_all()?;
        }
    }
    Ok(())
}

fn read(place: &Place, count: usize) -> Option<String> {
    let mut bytes = vec![0; count];
    match place {
        Place::Directory(path) => {
            return Below::open(path).and_then(|folder| folder.read(Path::new(FILE))).and_then(read_to_string).ok();
        }
        Place::Device(path) => File::open(path).and_then(|mut device| device.read_exact(&mut bytes)).ok()?,
    }
    Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|_| bytes.iter().any(|byte| *byte != 0))
}

/// Writes a text by a pod, which must read the same.
async fn write_by_pod(mounts: &dyn Mounts, volume: &PersistentVolume, text: &str) -> Step<()> {
    // The volume of a claim that only reads gets its content elsewhere.
    let modes = volume.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten());
    if modes.clone().count() > 0 && modes.into_iter().all(|mode| mode == "ReadOnlyMany") {
        return Err(Halt::Skipped("no pod can write into the volume: its access mode is ReadOnlyMany".into()));
    }
    match mounts.write(volume, text.trim_end()).await? {
        Reading::Sum(read) if read == sum(text.trim_end()) => Ok(()),
        Reading::Unusable(why) => Err(Halt::Failed(why)),
        _ => Err(Halt::Failed("a pod that has written into the volume reads other content".into())),
    }
}

fn lost(is_empty: bool) -> String {
    match is_empty {
        true => "the new volume lacks the content of its source".into(),
        false => "the new volume has other content than its source had".into(),
    }
}

/// Checks that a volume has a text.
pub(super) async fn has(bench: &Bench, volume: &PersistentVolume, id: &str, wanted: &str) -> Step<()> {
    if let Some(mounts) = bench.mounts() {
        return match mounts.read(volume).await? {
            Reading::Sum(read) => check(read == sum(wanted.trim_end()), || lost(false)),
            Reading::Empty => Err(Halt::Failed(lost(true))),
            Reading::Unusable(why) => Err(Halt::Failed(why)),
        };
    }
    if let Some(commands) = bench.commands() {
        return commands.has(bench, volume, id, wanted).await;
    }
    let text = match place(bench, volume, id) {
        Ok(place) => read(&place, wanted.len()),
        // The directory of the copy is missing, although that of the source was there.
        Err(Halt::Skipped(_)) => None,
        Err(other) => return Err(other),
    };
    check(text.as_deref() == Some(wanted), || lost(text.is_none()))
}

/// Checks whether a new volume has a text that a user has written into another one.
pub(super) async fn shows(bench: &Bench, made: &Made, text: &str) -> Step<bool> {
    let id = made.claim.volume_id();
    match bench.commands() {
        Some(commands) => commands.shows(bench, &made.volume, &id, text).await,
        None => Ok(has(bench, &made.volume, &id, text).await.is_ok()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_directory_of_a_volume_is_not_one_beside_it() {
        for (directories, source, expected) in [
            // The directory of an unfinished copy comes first.
            (
                vec!["/e/.copying-7", "/e/t-pvc-7"],
                json!({ "nfs": { "server": "s", "path": "/x/t-pvc-7" } }),
                "/e/t-pvc-7",
            ),
            (vec!["/e/7", "/e/7/data"], json!({ "nfs": { "server": "s", "path": "/x/7/data" } }), "/e/7/data"),
            (
                vec!["/e/.half-7", "/e/7", "/e/7/0"],
                json!({ "csi": { "volumeAttributes": { "a": "7", "b": "0" } } }),
                "/e/7",
            ),
            (vec!["/e/.half-7", "/e/7"], json!({ "csi": { "volumeHandle": "other" } }), "/e/.half-7"),
        ] {
            let all = directories.iter().map(PathBuf::from).collect();
            assert_eq!(nearest(all, &source, "7"), Some(PathBuf::from(expected)), "{source}");
        }
        assert_eq!(nearest(Vec::new(), &Value::Null, "7"), None);
    }
}

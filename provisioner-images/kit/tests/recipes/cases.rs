//! The cases that all recipes pass. They ask the backend what is there, and never the script.

use flex_contract::capacity::Answer;
use flex_contract::listing;

use super::desk::{Desk, Ended, SIZE};

/// The storage behind a recipe, as a test sees it.
pub trait Backend: Sync {
    fn desk(&self) -> &Desk;
    /// Returns the names of all objects of the storage: volumes, snapshots, quotas, links, and others.
    fn objects(&self) -> Vec<String>;
    /// Returns the size of a volume in bytes.
    fn size(&self, id: &str) -> u64;
    /// Writes into a volume, as a pod does.
    fn write(&self, id: &str, text: &str);
    /// Reads from a volume, as a pod does.
    fn read(&self, id: &str) -> String;
    /// Checks whether the storage keeps the size of a volume.
    fn has_sizes(&self) -> bool {
        true
    }
    /// Checks whether the free bytes of the storage do not contain those that volumes have and do not use.
    fn counts_promises(&self) -> bool {
        self.has_sizes()
    }
    /// The steps of the sizes that the storage can have.
    fn granularity(&self) -> u64 {
        1
    }
}

/// Names that must not become a part of a path or of a command.
const HOSTILE: [&str; 6] = ["../x", "a b", "$(id)", "-rf", "x\ny", ".."];

pub fn id(n: usize) -> String {
    format!("c0ffee00-0000-4000-8000-{n:012}")
}

#[track_caller]
fn ok(what: &str, ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
}

/// Runs an operation of a volume that exists.
#[track_caller]
fn done(backend: &impl Backend, operation: &str, id: &str, more: &[(&str, &str)]) -> Ended {
    let source = if operation == "provision" { String::new() } else { backend.desk().source(id) };
    let more = [&[("VOLUME_SOURCE", source.as_str())], more].concat();
    let ended = backend.desk().run(operation, id, &more);
    ok(&format!("{operation} {id} {more:?}"), &ended);
    ended
}

#[track_caller]
fn has_size(backend: &impl Backend, id: &str, wanted: u64) {
    let size = backend.size(id);
    assert!(
        !backend.has_sizes() || (wanted..wanted + backend.granularity()).contains(&size),
        "{id} has {size} bytes, {wanted} were asked for"
    );
}

/// Waits until the storage has nothing but `before`: a deletion may end in the background.
#[track_caller]
pub fn nothing_left(backend: &impl Backend, before: &[String], what: &str) {
    super::host::until(what, || match backend.objects() {
        left if left == before => Ok(()),
        left => Err(format!("{left:?} is left, and {before:?} was there")),
    });
}

fn listed(backend: &impl Backend) -> Vec<String> {
    let ended = backend.desk().run("list", "", &[]);
    ok("list", &ended);
    let entries = listing::read(&ended.output).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let mut ids: Vec<_> = entries.into_iter().map(|entry| format!("{} {}", entry.state.as_str(), entry.id)).collect();
    ids.sort();
    ids
}

fn capacity(backend: &impl Backend) -> u64 {
    let ended = backend.desk().run("capacity", "", &[]);
    ok("capacity", &ended);
    Answer::read(&ended.last_words).unwrap_or_else(|error| panic!("{error}: {ended:?}")).bytes
}

/// Runs all cases of a recipe.
pub fn all(backend: &impl Backend) {
    a_volume_lives_and_each_run_can_be_repeated(backend);
    a_volume_may_have_any_size(backend);
    eight_volumes_are_made_at_one_time(backend);
    wrong_requests_change_nothing(backend);
    a_run_may_be_killed_at_any_point(backend);
}

/// A volume is made, used, expanded, copied and deleted. Each run is repeated.
fn a_volume_lives_and_each_run_can_be_repeated(backend: &impl Backend) {
    let (desk, before, id) = (backend.desk(), backend.objects(), id(1));
    let free = desk.declares("capacity").then(|| capacity(backend));
    done(backend, "provision", &id, &[]);
    let first = desk.volume(&id);
    backend.write(&id, "content");
    done(backend, "provision", &id, &[]);
    assert_eq!(desk.volume(&id), first, "a repeated run makes the same PersistentVolume");
    assert_eq!(backend.read(&id), "content");
    has_size(backend, &id, SIZE);
    if let Some(free) = free.filter(|_| backend.counts_promises()) {
        let now = capacity(backend);
        // The smallest volume takes some blocks beside its size.
        assert!(now <= free - SIZE + SIZE / 100, "of {free} free bytes, {now} are left beside a volume of {SIZE}");
    }
    if desk.declares("list") {
        assert_eq!(listed(backend), [format!("volume {id}")]);
    }
    if desk.declares("expand") {
        let (old, new) = (SIZE.to_string(), (2 * SIZE).to_string());
        for _ in 0..2 {
            done(backend, "expand", &id, &[("SIZE_BYTES", &new), ("OLD_SIZE_BYTES", &old)]);
            has_size(backend, &id, 2 * SIZE);
        }
        // The user has lowered the request again.
        let less = (SIZE + SIZE / 2).to_string();
        done(backend, "expand", &id, &[("SIZE_BYTES", &less), ("OLD_SIZE_BYTES", &old)]);
        has_size(backend, &id, 2 * SIZE);
        assert_eq!(backend.read(&id), "content");
    }
    let size = backend.size(&id).to_string();
    if desk.declares("clone") {
        clone(backend, &id, &size);
    }
    if desk.declares("snapshot") {
        snapshot(backend, &id, &size);
    } else {
        for _ in 0..2 {
            done(backend, "delete", &id, &[]);
        }
    }
    nothing_left(backend, &before, "after all deletions");
}

fn clone(backend: &impl Backend, source: &str, size: &str) {
    let copy = id(2);
    let of = backend.desk().source(source);
    let of =
        [("CLONE_OF", source), ("CLONE_OF_SOURCE", of.as_str()), ("CLONE_OF_SIZE_BYTES", size), ("SIZE_BYTES", size)];
    backend.write(source, "as it was");
    for _ in 0..2 {
        done(backend, "provision", &copy, &of);
        backend.write(source, "content");
        assert_eq!((backend.read(&copy), backend.read(source)), ("as it was".into(), "content".into()));
    }
    has_size(backend, &copy, size.parse().unwrap());
    done(backend, "delete", &copy, &[]);
    assert_eq!(backend.read(source), "content");
}

/// The snapshot outlives its volume.
fn snapshot(backend: &impl Backend, source: &str, size: &str) {
    let (desk, stored, copy) = (backend.desk(), id(90), id(3));
    let of = [("SNAPSHOT_ID", stored.as_str()), ("SNAPSHOT_OF", source), ("SNAPSHOT_SIZE_BYTES", size)];
    backend.write(source, "as it was");
    for _ in 0..2 {
        done(backend, "snapshot", source, &of);
        backend.write(source, "later");
    }
    if desk.declares("list") {
        assert_eq!(listed(backend), [format!("volume {source}")], "snapshots are no volumes");
    }
    for _ in 0..2 {
        done(backend, "delete", source, &[]);
    }
    let restore = [&of[..], &[("SIZE_BYTES", size)]].concat();
    for _ in 0..2 {
        done(backend, "provision", &copy, &restore);
        assert_eq!(backend.read(&copy), "as it was");
    }
    for _ in 0..2 {
        ok("delete-snapshot", &desk.run("delete-snapshot", source, &of));
    }
    assert_eq!(backend.read(&copy), "as it was", "a volume outlives the snapshot that it was made of");
    done(backend, "delete", &copy, &[]);
}

/// Sizes such as `100M` are no multiples of a block.
fn a_volume_may_have_any_size(backend: &impl Backend) {
    let (desk, before, id) = (backend.desk(), backend.objects(), id(5));
    let (size, larger) = (SIZE + 100_001, 2 * SIZE + 100_003);
    let (old, new) = (size.to_string(), larger.to_string());
    done(backend, "provision", &id, &[("SIZE_BYTES", &old)]);
    has_size(backend, &id, size);
    if desk.declares("expand") {
        done(backend, "expand", &id, &[("SIZE_BYTES", &new), ("OLD_SIZE_BYTES", &old)]);
        has_size(backend, &id, larger);
    }
    done(backend, "delete", &id, &[]);
    nothing_left(backend, &before, "after a volume of an odd size");
}

fn eight_volumes_are_made_at_one_time(backend: &impl Backend) {
    let (desk, before) = (backend.desk(), backend.objects());
    let each = |operation: &str| {
        std::thread::scope(|scope| {
            for n in 10..18 {
                scope.spawn(move || done(backend, operation, &id(n), &[]));
            }
        });
    };
    each("provision");
    for n in 10..18 {
        has_size(backend, &id(n), SIZE);
        backend.write(&id(n), &id(n));
    }
    if desk.declares("list") {
        assert_eq!(listed(backend), (10..18).map(|n| format!("volume {}", id(n))).collect::<Vec<_>>());
    }
    for n in 10..18 {
        assert_eq!(backend.read(&id(n)), id(n), "each volume is a storage of its own");
    }
    each("delete");
    nothing_left(backend, &before, "after eight deletions at one time");
}

/// A run is killed before and after each of its programs. The next run completes it, or deletes what it has left.
fn a_run_may_be_killed_at_any_point(backend: &impl Backend) {
    let (desk, before, id, copy, stored) = (backend.desk(), backend.objects(), id(20), id(21), id(91));
    // The number of points is that of a run that is not killed.
    let points = |operation: &str, id: &str, more: &[(&str, &str)]| {
        ok(operation, &desk.run_until(operation, id, more, usize::MAX));
        desk.points()
    };
    let killed = |operation: &str, id: &str, more: &[(&str, &str)], at: usize| {
        // On a storage host only the program is killed, and the run fails.
        usize::from(desk.run_until(operation, id, more, at).code != Some(0))
    };
    let made = points("provision", &id, &[]);
    let mut kills = 0;
    let source = desk.source(&id);
    let known = [("VOLUME_SOURCE", source.as_str())];
    let deleted = points("delete", &id, &known);
    for at in 1..=made {
        kills += killed("provision", &id, &[], at);
        done(backend, "provision", &id, &[]);
        has_size(backend, &id, SIZE);
        ok("delete", &desk.run("delete", &id, &known));
        nothing_left(backend, &before, &format!("provision killed at {at} and repeated"));
        // No PersistentVolume exists: the delete run knows no source.
        kills += killed("provision", &id, &[], at);
        ok("delete", &desk.run("delete", &id, &[]));
        nothing_left(backend, &before, &format!("provision killed at {at}"));
    }
    for at in 1..=deleted {
        done(backend, "provision", &id, &[]);
        kills += killed("delete", &id, &known, at);
        ok("delete", &desk.run("delete", &id, &known));
        nothing_left(backend, &before, &format!("delete killed at {at}"));
    }
    assert!(kills >= made + deleted, "{kills} runs were killed, with {made} and {deleted} points");
    done(backend, "provision", &id, &[]);
    backend.write(&id, "content");
    let beside = backend.objects();
    let clone = [("CLONE_OF", id.as_str()), ("CLONE_OF_SOURCE", source.as_str())];
    let restore = [("SNAPSHOT_ID", stored.as_str()), ("SNAPSHOT_OF", id.as_str())];
    for (capability, of) in [("clone", clone), ("snapshot", restore)] {
        if !desk.declares(capability) {
            continue;
        }
        if capability == "snapshot" {
            let of = [&restore[..], &known].concat();
            let stored = points("snapshot", &id, &of);
            for at in (1..=stored).step_by(1 + stored / 16) {
                ok("delete-snapshot", &desk.run("delete-snapshot", &id, &of));
                nothing_left(backend, &beside, &format!("snapshot killed at {at}"));
                killed("snapshot", &id, &of, at);
                done(backend, "snapshot", &id, &restore);
            }
        }
        let copied = points("provision", &copy, &of);
        for at in (1..=copied).step_by(1 + copied / 16) {
            ok("delete", &desk.run("delete", &copy, &of));
            killed("provision", &copy, &of, at);
            done(backend, "provision", &copy, &of);
            assert_eq!(backend.read(&copy), "content", "{capability} killed at {at}");
        }
        done(backend, "delete", &copy, &[]);
    }
    if desk.declares("snapshot") {
        ok("delete-snapshot", &desk.run("delete-snapshot", &id, &restore));
    }
    done(backend, "delete", &id, &[]);
    nothing_left(backend, &before, "after all kills");
}

fn wrong_requests_change_nothing(backend: &impl Backend) {
    let (desk, before, own) = (backend.desk(), backend.objects(), id(30));
    done(backend, "provision", &own, &[]);
    backend.write(&own, "content");
    let after = backend.objects();
    let ended = desk.run("polish", &own, &[]);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    // A volume that never was.
    ok("delete", &desk.run("delete", &id(31), &[]));
    ok("delete", &desk.run("delete", &id(31), &[("VOLUME_SOURCE", &desk.source(&own).replace(&own, &id(31)))]));
    if desk.declares("snapshot") {
        ok("delete-snapshot", &desk.run("delete-snapshot", &own, &[("SNAPSHOT_ID", &id(92))]));
    }
    let of_volumes = ["provision", "delete", "expand", "snapshot"];
    let known = |operation: &&str| ["provision", "delete"].contains(operation) || desk.declares(operation);
    let copies = [("CLONE_OF", "clone"), ("SNAPSHOT_ID", "snapshot")];
    let copies: Vec<_> = copies.iter().filter(|(_, capability)| desk.declares(capability)).collect();
    for hostile in HOSTILE {
        for operation in of_volumes.into_iter().filter(known) {
            let ended = desk.run(operation, hostile, &[("SNAPSHOT_ID", &id(92))]);
            assert_eq!(ended.code, Some(65), "{operation} {hostile}: {ended:?}");
        }
        for (source, _) in &copies {
            let ended = desk.run("provision", &id(32), &[(source, hostile)]);
            assert_eq!(ended.code, Some(65), "{source}={hostile}: {ended:?}");
            // The delete run of this claim has the same source.
            ok("delete", &desk.run("delete", &id(32), &[(source, hostile)]));
        }
        if desk.declares("snapshot") {
            let ended = desk.run("delete-snapshot", &own, &[("SNAPSHOT_ID", hostile)]);
            assert_eq!(ended.code, Some(65), "{hostile}: {ended:?}");
        }
    }
    for operation in ["delete", "delete-snapshot"] {
        let ended = desk.run(operation, "", &[]);
        assert_ne!(ended.code, Some(0), "{operation} without an id: {ended:?}");
    }
    // Also a recipe that makes no copies makes no empty volume in place of one.
    let lost = [("CLONE_OF", id(33)), ("SNAPSHOT_ID", id(93))];
    for (name, lost) in &lost {
        let of = [(*name, lost.as_str()), ("CLONE_OF_SOURCE", &desk.source(&own).replace(&own, lost))];
        let ended = desk.run("provision", &id(32), &of);
        assert!(!matches!(ended.code, Some(0) | None), "a volume without its source: {ended:?}");
        ok("delete", &desk.run("delete", &id(32), &[]));
    }
    assert_eq!((backend.objects(), backend.read(&own)), (after, "content".into()));
    done(backend, "delete", &own, &[]);
    nothing_left(backend, &before, "after wrong requests");
}

/// A host whose storage is not there. `words` are those of the runs.
pub fn without_its_storage_nothing_succeeds(backend: &impl Backend, words: &str) {
    for operation in ["provision", "delete", "expand", "list", "capacity"] {
        if operation == "expand" && !backend.desk().declares(operation) {
            continue;
        }
        let ended = backend.desk().run(operation, &id(1), &[]);
        assert!(!matches!(ended.code, Some(0) | None) && ended.output.contains(words), "{operation}: {ended:?}");
    }
}

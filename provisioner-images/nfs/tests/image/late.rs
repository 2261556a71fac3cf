//! Tests of copies of which two runs overlap, or a run wakes up late: a pod whose node was away comes back.

use std::fs;
use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::time::Duration;

use ganesha::{Answer, Front, Ganesha, Operation, Options};

use crate::copies::{SNAPSHOT, Site, names};
use crate::run::{ONE, Run, TWO, in_time, note_slowness};

/// Runs an operation that pauses after a while, and does something in the pause. Returns the exit code.
fn paused(run: &Run, operation: &str, time: Duration, pause: impl FnOnce()) -> i32 {
    let mut process = run.begin(operation);
    let signal = |name: &str| Command::new("kill").args([name, &process.id().to_string()]).status().unwrap().success();
    std::thread::sleep(time);
    assert!(signal("-STOP"));
    pause();
    assert!(signal("-CONT"));
    process.wait().unwrap().code().unwrap()
}

/// Fills the source of the copy with directories that have a file each.
fn filled(count: usize) -> Site {
    let site = Site::start();
    for n in 0..count {
        fs::create_dir(site.origin().join(format!("{n}"))).unwrap();
        fs::write(site.origin().join(format!("{n}/file")), [b'x'; 5000]).unwrap();
    }
    site
}

/// Returns the times after which runs are interrupted, with their numbers: so many in small steps, and then longer and
/// longer ones. A loop over them ends when it has seen all that it waits for, on a machine of any speed.
fn moments(count: u32, step: Duration) -> impl Iterator<Item = (u32, Duration)> {
    (0..count + 10).map(move |n| (n, step * (n.min(count) << n.saturating_sub(count))))
}

/// Returns so many times in small steps, with their numbers, and the same times again and again. A loop over them ends when
/// it has seen enough: on a busy machine, this process may sleep for longer than a run takes.
pub fn rounds(count: u32, step: Duration) -> impl Iterator<Item = (u32, Duration)> {
    (0..10 * count).map(move |n| (n, step * (n % count)))
}

#[test]
fn of_two_runs_only_complete_copies_stay() {
    let site = filled(20);
    let mut codes = Vec::new();
    for (step, time) in moments(30, Duration::from_millis(4)) {
        if step >= 30 && codes.contains(&75) && codes.contains(&0) {
            break;
        }
        let second_dies = step % 2 == 0;
        let code = paused(&site.copy, "provision", time, || match second_dies {
            true => drop(site.copy.provision_killed_after(Duration::from_millis(40))),
            // The server may still work on a call of the first run.
            false => assert!([0, 75].contains(&site.copy.provision().code), "step {step}"),
        });
        assert!([0, 75].contains(&code), "step {step}: {code}");
        codes.push(code);
        if site.copy().exists() {
            assert_eq!(names(&site.copy()).len(), 20, "step {step}: half a copy is published");
        }
        site.copy.patiently("provision").well();
        assert_eq!(names(&site.copy()).len(), 20, "step {step}");
        site.copy.delete_patiently().well();
        assert_eq!(site.names(), [".flex-provisioner".to_owned(), site.origin.directory()], "step {step}");
    }
    assert!(codes.contains(&75) && codes.contains(&0), "no run was overtaken by another one: {codes:?}");
}

/// The first run is about to publish its copy, and the second one is removing that copy.
#[test]
fn no_copy_is_published_while_another_run_removes_it() {
    in_time(|| {
        let site = filled(5);
        let publishing = held(&site.server, &site.copy, "provision", Operation::Rename);
        let removing = held(&site.server, &site.copy, "provision", Operation::Remove);
        assert_eq!((ended(publishing), ended(removing)), (Some(75), Some(0)));
        let files = (0..5).filter(|n| site.copy().join(format!("{n}/file")).exists()).count();
        assert_eq!(files, 5, "the published copy lacks files");
        site.copy.delete_patiently().well();
        assert_eq!(site.names(), [".flex-provisioner".to_owned(), site.origin.directory()]);
    });
}

/// The first run has given the copy its place, and dies before it removes the directory around the copy.
#[test]
fn a_repeated_run_removes_what_a_finished_copy_has_left() {
    let site = filled(5);
    let (_front, mut dying) = held(&site.server, &site.copy, "provision", Operation::Remove);
    dying.kill().unwrap();
    dying.wait().unwrap();
    let half = format!(".copying-{TWO}");
    assert!(site.copy().exists() && site.names().contains(&half), "{:?}", site.names());
    site.copy.patiently("provision").well();
    assert_eq!(names(&site.copy()).len(), 5);
    assert!(!site.names().contains(&half), "{:?}", site.names());
    site.copy.delete_patiently().well();
}

#[test]
fn a_run_that_wakes_after_the_deletion_makes_no_volume() {
    let site = filled(20);
    let mut codes = Vec::new();
    for (step, time) in moments(30, Duration::from_millis(3)) {
        if step >= 30 && codes.contains(&75) {
            break;
        }
        codes.push(paused(&site.copy, "provision", time, || drop(site.copy.delete_patiently().well())));
        let hash = site.records().iter().filter(|name| name.starts_with("path-")).count();
        let is_recorded = hash == 2 && site.records().contains(&format!("volume-{}", TWO));
        assert!(is_recorded || !site.copy().exists(), "step {step}: a directory without a record: {codes:?}");
        site.copy.delete_patiently().well();
        assert_eq!(site.names(), [".flex-provisioner".to_owned(), site.origin.directory()], "step {step}");
    }
    assert!(codes.contains(&75), "no volume was deleted during its copy: {codes:?}");
}

/// Nothing would ever name or list the snapshot.
#[test]
fn a_run_that_wakes_after_the_deletion_makes_no_snapshot() {
    let site = filled(20);
    let mut codes = Vec::new();
    for (step, time) in moments(40, Duration::from_millis(2)) {
        if step >= 40 && codes.contains(&65) && codes.contains(&75) {
            break;
        }
        let id = SNAPSHOT.replace("0a", &format!("{step:02}"));
        let run = site.origin.clone().with("SNAPSHOT_ID", &id);
        let deleted = || {
            while run.of("delete-snapshot").code == 75 {
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        codes.push(paused(&run, "snapshot", time, deleted));
        assert_eq!(site.records().len(), 2, "step {step}: only the volume's records: {:?} {codes:?}", site.records());
        run.of("snapshot").failed(65, "was deleted, as the link .flex-provisioner/deleted-snapshots/");
    }
    assert!(codes.contains(&65) && codes.contains(&75), "no snapshot was deleted while it was made: {codes:?}");
}

#[test]
fn a_tombstone_is_removed_when_no_run_can_be_so_old() {
    let site = filled(1);
    let run = |id: &str| site.origin.clone().with("SNAPSHOT_ID", &SNAPSHOT.replace("0a", id));
    let tombstones = site.server.directory().join(".flex-provisioner/deleted-snapshots");
    for (id, age) in [("01", "8 days ago"), ("02", "6 days ago")] {
        run(id).of("delete-snapshot").well();
        let tombstone = tombstones.join(SNAPSHOT.replace("0a", id));
        let touched = Command::new("touch").args(["-h", "-d", age]).arg(tombstone).status().unwrap();
        assert!(touched.success());
    }
    let mut site = site;
    site.forget();
    while site.origin.clone().with("SNAPSHOT_ID", SNAPSHOT).of("delete-snapshot").code == 75 {
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(names(&tombstones), ["02", "0a"].map(|id| SNAPSHOT.replace("0a", id)));
}

/// Starts a front that holds an operation, and a run through the front. Returns both when the operation is held.
fn held(server: &Ganesha, run: &Run, operation: &str, at: Operation) -> (Front, Child) {
    let front = Front::start(server, Answer::Done, Answer::Done);
    front.hold(at);
    let process = run.clone().with("PORT", &front.port().to_string()).begin(operation);
    front.wait_until_held();
    (front, process)
}

/// Lets the run go on to its end. Returns its exit code. The client repeats a request that is held for five seconds.
fn ended((front, mut process): (Front, Child)) -> Option<i32> {
    if front.release() > Duration::from_secs(4) {
        note_slowness();
    }
    process.wait().unwrap().code()
}

/// Two volumes get one path, one after the other.
fn of_one_path(server: &Ganesha, policy: &str) -> [Run; 2] {
    let run = |id| Run::new(server, id).with("SUBDIRECTORY", "${pvc.name}").with("ON_DELETE", policy);
    [run(ONE), run(TWO)]
}

#[test]
fn a_late_delete_run_takes_no_files_of_the_next_volume() {
    let take = |policy| {
        let server = Ganesha::start(Options::default());
        let [first, next] = of_one_path(&server, policy);
        first.provision().well();
        let late = held(&server, &first, "delete", Operation::Rename);
        first.delete().well();
        next.provision().well();
        fs::write(server.directory().join("data/precious"), "x").unwrap();
        assert_eq!(ended(late), Some(75), "{policy}");
        assert_eq!(server.list("data"), ["precious"], "{policy}");
        next.expand().well();
    };
    for policy in ["delete", "archive"] {
        in_time(|| take(policy));
    }
}

#[test]
fn a_late_delete_run_takes_no_record_of_the_next_volume() {
    in_time(|| {
        let mut server = Ganesha::start(Options::default());
        let [first, next] = of_one_path(&server, "delete");
        first.provision().well();
        // As if an earlier delete run had died before it removed the record: the next step is that removal.
        fs::rename(server.directory().join("data"), server.directory().join(format!(".deleting-{ONE}"))).unwrap();
        server.stop();
        server.start_again();
        let late = held(&server, &first, "delete", Operation::Rename);
        first.delete().well();
        next.provision().well();
        assert_eq!(ended(late), Some(0));
        next.expand().well();
        next.delete().well();
        assert_eq!(server.list(""), [""; 0]);
        assert_eq!(names(&server.directory().join(".flex-provisioner")), [""; 0]);
    });
}

#[test]
fn a_late_provision_run_leaves_no_directory_without_records() {
    in_time(|| {
        let server = Ganesha::start(Options::default());
        let [first, other] = [ONE, TWO].map(|id| Run::new(&server, id));
        other.provision().well();
        let late = held(&server, &first, "provision", Operation::MakeDirectory);
        first.delete().well();
        assert_eq!(ended(late), Some(75));
        assert_eq!(server.list(""), [other.directory()]);
    });
}

/// The second run makes the volume, and a pod writes into it. Then the first run fails on the same export.
#[test]
fn a_late_provision_run_that_fails_removes_no_files() {
    // No server answers at the second address.
    let addresses = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 9)];
    let server = Ganesha::start_at(addresses[0], None, Options { root_squash: true, ..Options::default() });
    let list = addresses.map(|at| format!("{at}:{}", Ganesha::EXPORT)).join(" ");
    let mut overtaken = 0;
    for (step, time) in rounds(40, Duration::from_micros(500)) {
        if step >= 40 && overtaken > 10 {
            break;
        }
        let id = ONE.replace("0001", &format!("1{step:03}"));
        let run = Run::new(&server, &id).with("SERVER", "").with("EXPORT", "").with("EXPORTS", &list);
        let file = server.directory().join(run.directory()).join("file");
        let mut is_written = false;
        // The server refuses the owner.
        let first = run.clone().with("OWNER", "1234");
        let code = paused(&first, "provision", time, || {
            let ended = run.provision();
            is_written = ended.code == 0;
            if is_written {
                fs::write(&file, "x").unwrap();
            }
        });
        assert!([75, 77].contains(&code), "step {step}: {code}");
        assert!(!is_written || file.exists(), "step {step}: the first run has removed the files of the volume");
        overtaken += usize::from(is_written);
    }
    assert!(overtaken > 10, "only {overtaken} runs were overtaken");
}

//! Tests of several exports, with a server for each.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use flex_contract::capacity::Answer;
use flex_contract::listing::read;
use ganesha::{Ganesha, Options};

use crate::run::{ONE, Run, TWO, in_time};

const NEAR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const FAR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Two servers on one port, with one export each.
struct Site {
    near: Ganesha,
    far: Ganesha,
}

impl Site {
    fn start() -> Self {
        Self::with(Options::default())
    }

    fn with(of_near: Options) -> Self {
        let near = Ganesha::start_at(NEAR, None, of_near);
        let far = Ganesha::start_at(FAR, Some(near.port()), Options::default());
        Site { near, far }
    }

    /// Makes a run for a volume, with the near export at the first place of the list or at the last.
    fn run(&self, id: &str, near_first: bool) -> Run {
        let at = |address: Ipv4Addr| format!("{address}:{}", Ganesha::EXPORT);
        let list = if near_first { [at(NEAR), at(FAR)] } else { [at(FAR), at(NEAR)] };
        Run::new(&self.near, id).with("SERVER", "").with("EXPORT", "").with("EXPORTS", &list.join(" "))
    }

    /// Lets both servers forget what they know about files that the test changes on their disks.
    fn forget(&mut self) {
        for server in [&mut self.near, &mut self.far] {
            server.stop();
            server.start_again();
        }
    }

    /// Returns the records of both exports, beside their identities.
    fn records(&self) -> Vec<String> {
        let of = |server: &Ganesha| {
            let entries = fs::read_dir(server.directory().join(".flex-provisioner"));
            entries
                .into_iter()
                .flatten()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect::<Vec<_>>()
        };
        let both = [of(&self.near), of(&self.far)].concat();
        both.into_iter().filter(|name| name != "export").collect()
    }

    /// Returns the place of a note or record.
    fn record(server: &Ganesha, name: &str) -> PathBuf {
        server.directory().join(".flex-provisioner").join(name)
    }

    /// Returns the names of volumes at the top of both exports.
    fn names(&self) -> [Vec<String>; 2] {
        [self.near.names(), self.far.names()]
    }
}

/// Returns the server that the printed volume names.
fn server(ended: &image_run::Ended) -> Ipv4Addr {
    assert_eq!(ended.code, 0, "{ended:?}");
    let is_of = |address: &Ipv4Addr| ended.out.contains(&format!("server: \"{address}\""));
    [NEAR, FAR].into_iter().find(is_of).unwrap_or_else(|| panic!("{ended:?}"))
}

#[test]
fn a_volume_stays_on_its_export_whatever_the_order_says() {
    in_time(|| {
        let site = Site::start();
        let first = server(&site.run(ONE, true).provision());
        let [near, far] = site.names();
        assert_eq!((near.len(), far.len()), if first == NEAR { (1, 0) } else { (0, 1) });
        assert_eq!(server(&site.run(ONE, false).provision()), first);
        assert_eq!(site.names(), [near, far]);
        let run = site.run(ONE, false).with("VOLUME_SOURCE", &source(first, &site.run(ONE, true)));
        assert_eq!(run.expand().code, 0);
        let listed = read(&run.list().out).unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert!(listed[0].place.starts_with(&first.to_string()), "{listed:?}");
        for _ in 0..2 {
            assert_eq!(run.delete().code, 0);
            assert_eq!(site.names(), [vec![], vec![]] as [Vec<String>; 2]);
        }
    });
}

fn source(address: Ipv4Addr, run: &Run) -> String {
    format!(r#"{{"nfs":{{"server":"{address}","path":"{}/{}"}}}}"#, Ganesha::EXPORT, run.directory())
}

#[test]
fn the_others_serve_while_one_is_away_and_its_deletions_wait() {
    in_time(|| {
        let mut site = Site::start();
        // A run has begun the volume on the far export, and died.
        let far_only = Run::new(&site.near, ONE).with("SERVER", &FAR.to_string());
        assert_eq!(server(&far_only.provision()), FAR);
        let other = Run::new(&site.near, TWO).with("SERVER", &FAR.to_string());
        assert_eq!(server(&other.provision()), FAR);
        site.far.stop();

        let run = site.run(ONE, false).with("ATTEMPT", "2");
        assert_eq!(server(&run.provision()), NEAR, "the other export serves it");
        assert_eq!(server(&run.provision()), NEAR, "again");
        let answer = Answer::read(&run.capacity().termination_message).unwrap();
        assert!(answer.bytes > 0);
        let listed = run.list();
        assert!(listed.code == 75 && listed.termination_message.contains(&FAR.to_string()), "{listed:?}");
        // This deletion is the far export's, and this one may be.
        let bound = site.run(TWO, true).with("VOLUME_SOURCE", &source(FAR, &other));
        for waiting in [bound.delete(), site.run(TWO, true).delete()] {
            for says in [&FAR.to_string(), "waits for", "never comes back"] {
                assert!(waiting.code == 75 && waiting.termination_message.contains(says), "{says}: {waiting:?}");
            }
        }
        let of_one = run.clone().with("VOLUME_SOURCE", &source(NEAR, &run));
        let waiting = of_one.delete();
        for says in [&FAR.to_string(), "never comes back", "remove the link .flex-provisioner/also-"] {
            assert!(waiting.code == 75 && waiting.termination_message.contains(says), "{says}: {waiting:?}");
        }

        site.far.start_again();
        assert_eq!(site.names().map(|names| names.len()), [0, 2], "what the first run left is still there");
        assert_eq!(of_one.delete_patiently().code, 0);
        assert_eq!(site.names().map(|names| names.len()), [0, 1]);
        assert_eq!(bound.delete_patiently().code, 0);
        assert_eq!(site.names().map(|names| names.len()), [0, 0]);
        assert_eq!(site.records(), [""; 0]);
    });
}

/// The first attempt was on the far export, the second on the near one; then the far one is back.
#[test]
fn a_repeated_run_keeps_the_choice_of_the_last_one() {
    in_time(|| {
        let mut site = Site::start();
        let far_only = Run::new(&site.near, ONE).with("SERVER", &FAR.to_string());
        assert_eq!(server(&far_only.provision()), FAR);
        site.far.stop();
        assert_eq!(server(&site.run(ONE, true).with("ATTEMPT", "2").provision()), NEAR);
        site.far.start_again();
        for near_first in [true, false] {
            assert_eq!(server(&site.run(ONE, near_first).provision()), NEAR);
        }
        // The claim was deleted before its volume was known.
        assert_eq!(site.run(ONE, true).delete_patiently().code, 0);
        assert_eq!(site.names().map(|names| names.len()), [0, 0]);
    });
}

#[test]
fn one_file_system_counts_once() {
    in_time(|| {
        let site = Site::start();
        // Both addresses are this machine's, but only one name of a server is known to be one server.
        let both = Answer::read(&site.run(ONE, true).capacity().termination_message).unwrap();
        let one =
            Answer::read(&Run::new(&site.near, ONE).with("SERVER", &NEAR.to_string()).capacity().termination_message);
        let one = one.unwrap().bytes;
        assert!(both.bytes > one / 2 * 3 && both.largest.is_some_and(|largest| largest < both.bytes), "{both:?} {one}");
    });
}

/// The near export fails, and has the most free bytes or comes first.
#[test]
fn an_export_that_fails_stops_no_new_volumes() {
    in_time(|| {
        for fault in ["read-only", "unreadable", "squashed"] {
            let (read_only, root_squash) = (fault == "read-only", fault != "read-only");
            let options = Options { read_only, root_squash, ..Options::default() };
            let site = Site::with(options);
            let folder = site.near.directory().join(".flex-provisioner");
            match fault {
                "read-only" => {}
                "unreadable" => {
                    // Root on a client is nobody here.
                    fs::create_dir(&folder).unwrap();
                    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
                }
                // The records can be made, and the owner of the directory cannot be set.
                _ => {}
            }
            let says = format!("{NEAR}:{} (port {}) does not serve this run: ", Ganesha::EXPORT, site.near.port());
            // Other processes use the disk, too, so that one of both may have more free bytes.
            let mut was_tried = false;
            for n in 0..9 {
                let id = ONE.replace("0001", &format!("000{n}"));
                let mut run = site.run(&id, true);
                if fault == "squashed" {
                    run = run.with("OWNER", "1234");
                }
                let made = run.provision();
                assert_eq!(server(&made), FAR, "{fault}");
                was_tried |= made.log.contains(&says);
                assert_eq!(server(&run.provision()), FAR, "{fault}: again");
                assert_eq!(site.names().map(|names| names.len()), [0, 1], "{fault}");
                assert_eq!(site.records().len(), 2, "{fault}: {:?}", site.records());
                let bound = run.clone().with("VOLUME_SOURCE", &source(FAR, &run));
                assert_eq!(bound.delete().code, 0, "{fault}");
                assert_eq!(site.records(), [""; 0], "{fault}: nothing is left, not even a note");
            }
            let answer = Answer::read(&site.run(ONE, true).capacity().termination_message).unwrap();
            assert!(answer.bytes > 0, "{fault}: a capacity");
            assert!(was_tried, "{fault}: no run has begun a volume on the export that fails");
        }
    });
}

/// All exports fail.
#[test]
fn a_claim_that_no_export_serves_is_told_why() {
    let options = Options { read_only: true, ..Options::default() };
    let near = Ganesha::start_at(NEAR, None, options);
    let far = Ganesha::start_at(FAR, Some(near.port()), options);
    let site = Site { near, far };
    let ended = site.run(ONE, true).provision();
    for says in [NEAR.to_string(), FAR.to_string()] {
        assert!(ended.code != 0 && ended.termination_message.contains(&says), "{ended:?}");
    }
}

/// Somebody's directory is in the way on one export, and later on both.
#[test]
fn a_path_that_is_taken_on_one_export_is_free_on_another() {
    in_time(|| {
        let mut site = Site::start();
        let run = site.run(ONE, true);
        // One of the two is tried first.
        for address in [FAR, NEAR] {
            let taken = if address == FAR { &site.near } else { &site.far }.directory().join(run.directory());
            fs::create_dir(&taken).unwrap();
            site.forget();
            for when in ["first", "again"] {
                assert_eq!(server(&run.patiently("provision")), address, "{when}");
            }
            run.clone().with("VOLUME_SOURCE", &source(address, &run)).delete_patiently().well();
            assert_eq!(site.records(), [""; 0], "nothing is left, not even a note");
            fs::remove_dir(&taken).expect("the directory is somebody's");
        }
        for address in [NEAR, FAR] {
            let taken = [&site.near, &site.far].map(|server| server.directory().join(run.directory()));
            taken.iter().for_each(|path| fs::create_dir(path).unwrap());
            site.forget();
            let refused = run.patiently("provision").failed(65, "not made by this image");
            for at in [NEAR, FAR] {
                let says = format!("on {at}:{} (port {}), the directory", Ganesha::EXPORT, site.near.port());
                assert!(refused.termination_message.contains(&says), "{refused:?}");
            }
            assert_eq!(site.records(), [""; 0], "a run that has begun nothing leaves no note");
            // A later attempt, while an export is away that the first one has tried.
            taken.iter().for_each(|path| fs::remove_dir(path).unwrap());
            site.forget();
            if address == NEAR {
                site.far.stop()
            } else {
                site.near.stop()
            }
            assert_eq!(server(&run.clone().with("ATTEMPT", "2").patiently("provision")), address);
            if address == NEAR {
                site.far.start_again()
            } else {
                site.near.start_again()
            }
            run.clone().with("VOLUME_SOURCE", &source(address, &run)).delete_patiently().well();
            assert_eq!(site.records(), [""; 0]);
        }
    });
}

/// No earlier attempt can have begun there: the deletion waits for nothing.
#[test]
fn a_first_attempt_while_an_export_is_away_leaves_no_note() {
    in_time(|| {
        let mut site = Site::start();
        site.far.stop();
        let run = site.run(ONE, false);
        assert_eq!(server(&run.provision()), NEAR);
        assert_eq!(run.with("VOLUME_SOURCE", &source(NEAR, &site.run(ONE, true))).delete().code, 0);
        site.far.start_again();
        let near = fs::read_dir(site.near.directory().join(".flex-provisioner")).unwrap();
        assert_eq!(near.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>(), ["export"]);
    });
}

/// The first attempt died after it had made the directory, and before it removed its notes.
#[test]
fn a_volume_begun_on_an_export_that_is_away_waits_for_it() {
    in_time(|| {
        let mut site = Site::start();
        let far_only = Run::new(&site.near, ONE).with("SERVER", &FAR.to_string());
        assert_eq!(server(&far_only.provision()), FAR);
        let location = format!("{FAR}:{} (port {})", Ganesha::EXPORT, site.near.port());
        for server in [&site.near, &site.far] {
            fs::create_dir_all(server.directory().join(".flex-provisioner")).unwrap();
            symlink(&location, Site::record(server, &format!("begun-{ONE}"))).unwrap();
        }
        site.far.stop();
        for attempt in ["1", "2"] {
            let waiting = site.run(ONE, true).with("ATTEMPT", attempt).provision();
            for says in [&location, "has begun this volume", "never comes back"] {
                assert!(waiting.code == 75 && waiting.termination_message.contains(says), "{says}: {waiting:?}");
            }
        }
        assert_eq!(site.names().map(|names| names.len()), [0, 1], "no second volume");
        site.far.start_again();
        assert_eq!(server(&site.run(ONE, true).patiently("provision")), FAR);
        assert_eq!(site.records().len(), 2, "only the records of the volume: {:?}", site.records());
        // The run died after the PersistentVolume was created, and the volume is deleted.
        for server in [&site.near, &site.far] {
            symlink(&location, Site::record(server, &format!("begun-{ONE}"))).unwrap();
        }
        let bound = site.run(ONE, true).with("VOLUME_SOURCE", &source(FAR, &site.run(ONE, true)));
        assert_eq!(bound.delete_patiently().code, 0);
        assert_eq!(site.records(), [""; 0]);
    });
}

/// One server with two names, and a config that keeps the data of deleted volumes.
#[test]
fn two_names_of_one_storage_are_one_storage() {
    in_time(|| {
        let site = Ganesha::start(Options::default());
        let names = [NEAR, Ipv4Addr::LOCALHOST].map(|address| format!("{address}:{}", Ganesha::EXPORT));
        let run = Run::new(&site, ONE).with("SERVER", "").with("EXPORT", "").with("EXPORTS", &names.join(" "));
        let run = run.with("ON_DELETE", "keep");
        let first = run.provision();
        assert_eq!(server(&first), NEAR, "the first name that answers");
        for attempt in ["1", "2"] {
            assert_eq!(run.clone().with("ATTEMPT", attempt).provision().out, first.out);
        }
        fs::write(site.directory().join(run.directory()).join("precious"), "x").unwrap();
        assert_eq!(read(&run.list().out).unwrap().len(), 1, "listed once");
        let answer = Answer::read(&run.capacity().termination_message).unwrap();
        assert_eq!(answer.largest, None, "counted once: {answer:?}");
        // A note of a run that did not recognise the storage.
        let port = site.port();
        for name in &names {
            let name = format!("{name} (port {port})");
            let note = format!("also-{ONE}-{}", &sha256(&name)[..16]);
            symlink(&name, Site::record(&site, &note)).unwrap();
        }
        let bound = run.clone().with("VOLUME_SOURCE", &source(NEAR, &run));
        for _ in 0..2 {
            let ended = bound.delete();
            assert_eq!(ended.code, 0, "{ended:?}");
            assert_eq!(site.list(&run.directory()), ["precious"]);
        }
        assert_eq!(run.delete().code, 0);
        assert_eq!(site.list(&run.directory()), ["precious"]);
    });
}

/// A class had one name of the server, and has two by now.
#[test]
fn a_volume_with_the_second_name_of_a_storage_is_cloned() {
    in_time(|| {
        let site = Ganesha::start(Options { numeric_owners: true, ..Options::default() });
        let both = [Ipv4Addr::LOCALHOST, NEAR].map(|address| format!("{address}:{}", Ganesha::EXPORT)).join(" ");
        for (n, address) in [Ipv4Addr::LOCALHOST, NEAR].into_iter().enumerate() {
            let id = |part: &str| ONE.replace("c0ffee00", &format!("{part}{n}"));
            let with_both = |id: &str| Run::new(&site, id).with("SERVER", "").with("EXPORT", "").with("EXPORTS", &both);
            // The run that makes the identity of the storage.
            with_both(&id("c0ffee1")).provision().well();
            let origin = Run::new(&site, &id("c0ffee2")).with("SERVER", &address.to_string());
            origin.provision().well();
            fs::write(site.directory().join(origin.directory()).join("file"), "x").unwrap();
            let copy = with_both(&id("c0ffee3")).with("CLONE_OF", &id("c0ffee2"));
            let copy = copy.with("CLONE_OF_SOURCE", &origin.source()).with("CLONE_OF_SIZE_BYTES", "1");
            for attempt in ["1", "2"] {
                let ended = copy.clone().with("ATTEMPT", attempt).provision().well();
                assert!(ended.out.contains(&format!("server: \"{address}\"")), "{ended:?}");
                assert_eq!(site.list(&copy.directory()), ["file"]);
            }
            let bound = with_both(&id("c0ffee3")).with("VOLUME_SOURCE", &source(address, &copy));
            bound.delete_patiently().well();
            assert_eq!(site.list(&origin.directory()), ["file"]);
            let of_copy: Vec<String> = fs::read_dir(site.directory().join(".flex-provisioner"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| name.contains(&id("c0ffee3")))
                .collect();
            assert_eq!(of_copy, [""; 0]);
        }
    });
}

/// Returns the hash in the names of records.
pub fn sha256(text: &str) -> String {
    let command = format!("printf %s '{text}' | sha256sum");
    let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap().stdout;
    String::from_utf8(output).unwrap()[..64].to_owned()
}

/// Neither export could get the files of the other one from its server.
#[test]
fn a_copy_is_on_the_export_of_its_source() {
    in_time(|| {
        let mut site = Site::start();
        for id in [ONE, TWO] {
            // With one export in the config, a volume is there.
            let address = if id == ONE { NEAR } else { FAR };
            let alone = site.run(id, true).with("EXPORTS", &format!("{address}:{}", Ganesha::EXPORT));
            assert_eq!(server(&alone.provision()), address);
            let place = if id == ONE { &site.near } else { &site.far };
            std::fs::write(place.directory().join(alone.directory()).join("file"), id).unwrap();

            let origin = site.run(id, true);
            let volume_source = source(address, &origin);
            let copy_id = id.replace("c0ffee00", "c0ffee01");
            let copy = site.run(&copy_id, true).with("CLONE_OF", id).with("CLONE_OF_SOURCE", &volume_source);
            assert_eq!(server(&copy.with("CLONE_OF_SIZE_BYTES", "1").provision()), address);

            let snapshot_id = id.replace("c0ffee00", "c0ffee02");
            let snapshot = origin.with("SNAPSHOT_ID", &snapshot_id).with("VOLUME_SOURCE", &volume_source);
            snapshot.of("snapshot").well();
            let restored = site.run(&id.replace("c0ffee00", "c0ffee03"), false).with("SNAPSHOT_ID", &snapshot_id);
            assert_eq!(server(&restored.provision()), address);
            for run in [&copy_id, &id.replace("c0ffee00", "c0ffee03")] {
                let file = place.directory().join(site.run(run, true).directory()).join("file");
                assert_eq!(std::fs::read_to_string(file).unwrap(), id);
            }
        }
        let [near, far] = site.names();
        assert_eq!((near.len(), far.len()), (3, 3));
        // The source may be on the export that is away, and so may be the snapshot.
        site.far.stop();
        let snapshot_id = TWO.replace("c0ffee00", "c0ffee02");
        let run = site.run(&TWO.replace("c0ffee00", "c0ffee04"), true).with("SNAPSHOT_ID", &snapshot_id);
        let far = format!("{FAR}:{} (port {})", Ganesha::EXPORT, site.near.port());
        let begun = site.run(TWO, true).with("VOLUME_SOURCE", &source(FAR, &site.run(TWO, true)));
        for (ended, says) in [
            (run.provision(), format!("the source of the copy may be on {far}")),
            (run.of("delete-snapshot"), format!("the snapshot may be on {far}, and its deletion waits")),
            (run.of("delete-snapshot"), "never comes back, set the deletionPolicy".to_owned()),
            (run.list(), format!("{far} may have volumes")),
            (begun.expand(), format!("the volume is on {far}, and this run waits")),
            (begun.with("SNAPSHOT_ID", ONE).of("snapshot"), format!("the volume is on {far}, and this run waits")),
            (site.run(TWO, true).expand(), format!("the volume may be on {far}, and this run waits")),
        ] {
            ended.failed(75, &says);
        }
        assert_eq!(site.near.names(), near, "a copy without its source is an empty volume");
        site.far.start_again();
        run.of("delete-snapshot").well();
        run.provision().failed(65, "is not on");
    });
}

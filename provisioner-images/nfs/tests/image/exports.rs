//! Tests of several exports, with a server for each.

use std::net::Ipv4Addr;

use flex_contract::capacity::Answer;
use flex_contract::listing::read;
use ganesha::{Ganesha, Options};

use crate::run::{ONE, Run, TWO};

const NEAR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const FAR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Two servers on one port, with one export each.
struct Site {
    near: Ganesha,
    far: Ganesha,
}

impl Site {
    fn start() -> Self {
        let near = Ganesha::start_at(NEAR, None, Options::default());
        let far = Ganesha::start_at(FAR, Some(near.port()), Options::default());
        Site { near, far }
    }

    /// Makes a run for a volume, with the near export at the first place of the list or at the last.
    fn run(&self, id: &str, near_first: bool) -> Run {
        let at = |address: Ipv4Addr| format!("{address}:{}", Ganesha::EXPORT);
        let list = if near_first { [at(NEAR), at(FAR)] } else { [at(FAR), at(NEAR)] };
        Run::new(&self.near, id).with("SERVER", "").with("EXPORT", "").with("EXPORTS", &list.join(" "))
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
}

fn source(address: Ipv4Addr, run: &Run) -> String {
    format!(r#"{{"nfs":{{"server":"{address}","path":"{}/{}"}}}}"#, Ganesha::EXPORT, run.directory())
}

#[test]
fn the_others_serve_while_one_is_away_and_its_deletions_wait() {
    let mut site = Site::start();
    // A run has begun the volume on the far export, and died.
    let far_only = Run::new(&site.near, ONE).with("SERVER", &FAR.to_string());
    assert_eq!(server(&far_only.provision()), FAR);
    let other = Run::new(&site.near, TWO).with("SERVER", &FAR.to_string());
    assert_eq!(server(&other.provision()), FAR);
    site.far.stop();

    let run = site.run(ONE, false);
    assert_eq!(server(&run.provision()), NEAR, "the other export serves it");
    assert_eq!(server(&run.provision()), NEAR, "again");
    let answer = Answer::read(&run.capacity().termination_message).unwrap();
    assert!(answer.bytes > 0);
    let listed = run.list();
    assert!(listed.code == 75 && listed.termination_message.contains(&FAR.to_string()), "{listed:?}");
    // This deletion is the far export's, and this one may be.
    let bound = site.run(TWO, true).with("VOLUME_SOURCE", &source(FAR, &other));
    for waiting in [bound.delete(), site.run(TWO, true).delete()] {
        assert!(waiting.code == 75 && waiting.termination_message.contains(&FAR.to_string()), "{waiting:?}");
    }
    let of_one = run.clone().with("VOLUME_SOURCE", &source(NEAR, &run));
    let waiting = of_one.delete();
    assert!(waiting.code == 75 && waiting.termination_message.contains(&FAR.to_string()), "{waiting:?}");

    site.far.start_again();
    assert_eq!(site.names().map(|names| names.len()), [0, 2], "what the first run left is still there");
    assert_eq!(of_one.delete_patiently().code, 0);
    assert_eq!(site.names().map(|names| names.len()), [0, 1]);
    assert_eq!(bound.delete_patiently().code, 0);
    assert_eq!(site.names().map(|names| names.len()), [0, 0]);
    for server in [&site.near, &site.far] {
        let records = std::fs::read_dir(server.directory().join(".flex-provisioner")).unwrap().count();
        assert_eq!(records, 0, "no record and no note is left");
    }
}

/// The first attempt was on the far export, the second on the near one; then the far one is back.
#[test]
fn a_repeated_run_keeps_the_choice_of_the_last_one() {
    let mut site = Site::start();
    let far_only = Run::new(&site.near, ONE).with("SERVER", &FAR.to_string());
    assert_eq!(server(&far_only.provision()), FAR);
    site.far.stop();
    assert_eq!(server(&site.run(ONE, true).provision()), NEAR);
    site.far.start_again();
    for near_first in [true, false] {
        assert_eq!(server(&site.run(ONE, near_first).provision()), NEAR);
    }
    // The claim was deleted before its volume was known.
    assert_eq!(site.run(ONE, true).delete_patiently().code, 0);
    assert_eq!(site.names().map(|names| names.len()), [0, 0]);
}

#[test]
fn one_file_system_counts_once() {
    let site = Site::start();
    // Both addresses are this machine's, but only one name of a server is known to be one server.
    let both = Answer::read(&site.run(ONE, true).capacity().termination_message).unwrap();
    let one = Answer::read(&Run::new(&site.near, ONE).with("SERVER", &NEAR.to_string()).capacity().termination_message);
    let one = one.unwrap().bytes;
    assert!(both.bytes > one / 2 * 3 && both.largest.is_some_and(|largest| largest < both.bytes), "{both:?} {one}");
}

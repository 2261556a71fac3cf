//! Tests of runs that are killed at any moment: the next run succeeds, whatever they left.

use std::fs;
use std::process::Command;
use std::time::Duration;

use ganesha::{Ganesha, Options};

use crate::late::rounds;
use crate::run::{ONE, Run};

/// The pod of the first run is slow, and a second run does all the work meanwhile.
#[test]
fn a_run_that_is_overtaken_refuses_nothing() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    let mut overtaken = 0;
    for (step, time) in rounds(40, Duration::from_micros(400)) {
        if step >= 40 && overtaken > 10 {
            break;
        }
        let mut first = run.begin("provision");
        let signal = |name: &str| {
            let done = Command::new("kill").args([name, &first.id().to_string()]).status().unwrap();
            assert!(done.success());
        };
        std::thread::sleep(time);
        signal("-STOP");
        let second = run.patiently("provision");
        assert_eq!(second.code, 0, "step {step}: {second:?}");
        overtaken += usize::from(is_stopped(first.id()));
        signal("-CONT");
        let code = first.wait().unwrap().code();
        assert!([Some(0), Some(75)].contains(&code), "step {step}: {code:?}");
        let ended = run.delete_patiently();
        assert_eq!(ended.code, 0, "step {step}: {ended:?}");
    }
    assert!(overtaken > 10, "only {overtaken} runs were overtaken: the steps are too long");
}

/// Checks whether a process is stopped, and not at its end.
fn is_stopped(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
}

#[test]
fn after_any_death_a_volume_can_be_finished_and_deleted() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    let mut died = 0;
    // In steps of half a millisecond: a whole run takes about ten.
    for (step, time) in rounds(40, Duration::from_micros(500)) {
        if step >= 40 && died > 10 {
            break;
        }
        died += usize::from(run.provision_killed_after(time));
        if step % 2 == 0 {
            let ended = run.patiently("provision");
            assert_eq!(ended.code, 0, "step {step}: {ended:?}");
            fs::write(server.directory().join(run.directory()).join("file"), "x").unwrap();
            died += usize::from(run.delete_killed_after(time));
        }
        let ended = run.delete_patiently();
        assert_eq!(ended.code, 0, "step {step}: {ended:?}");
        let leftovers: Vec<_> = fs::read_dir(server.directory())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name != ".flex-provisioner")
            .collect();
        assert!(leftovers.is_empty(), "step {step}: {leftovers:?}");
        let records = fs::read_dir(server.directory().join(".flex-provisioner")).map_or(0, Iterator::count);
        assert_eq!(records, 0, "step {step}");
    }
    assert!(died > 10, "only {died} runs were killed before their end: the steps are too long");
}

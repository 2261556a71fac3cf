//! Tests of capacity runs: the free bytes of the server's file system.

use std::process::Command;

use flex_contract::capacity::Answer;
use ganesha::{Ganesha, Options};

use crate::run::{ONE, Run};

#[test]
fn the_capacity_is_the_free_space_of_the_server() {
    let server = Ganesha::start(Options::default());
    let ended = Run::new(&server, ONE).capacity();
    assert_eq!(ended.code, 0, "{ended:?}");
    let answer = Answer::read(&ended.termination_message).unwrap();
    let df = Command::new("df").args(["-B1", "--output=avail"]).arg(server.directory()).output().unwrap();
    let free: u64 = String::from_utf8(df.stdout).unwrap().lines().nth(1).unwrap().trim().parse().unwrap();
    // Other processes write on this file system, too.
    assert!(answer.bytes > free / 2 && answer.bytes / 2 < free, "{} by the server, {free} by df", answer.bytes);
}

#[test]
fn an_unreachable_server_has_no_capacity() {
    let server = Ganesha::start(Options::default());
    let ended = Run::new(&server, ONE).with("PORT", "1").capacity();
    assert_ne!(ended.code, 0);
    assert!(
        Answer::read(&ended.termination_message).is_err() && ended.termination_message.contains("127.0.0.1"),
        "{ended:?}"
    );
}

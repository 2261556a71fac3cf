//! Tests of requests that the image refuses, and of its messages.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;
use std::{fs, io, thread};

use ganesha::{Ganesha, Options};

use crate::run::{ONE, PATIENCE, Run, TWO};

#[test]
fn a_directory_of_another_volume_is_neither_taken_nor_deleted() {
    let server = Ganesha::start(Options::default());
    let one = Run::new(&server, ONE).with("SUBDIRECTORY", "${pvc.name}");
    let two = Run::new(&server, TWO).with("SUBDIRECTORY", "${pvc.name}");
    assert_eq!(one.provision().code, 0);
    fs::write(server.directory().join("data/precious"), "x").unwrap();
    let ended = two.provision();
    assert_eq!(ended.code, 65, "{ended:?}");
    assert!(ended.termination_message.contains("another volume"), "{ended:?}");
    assert!(ended.termination_message.contains("${pv.name}"), "{ended:?}");
    // The event of one user says nothing about the volumes of others. The admin reads the log.
    assert!(!ended.termination_message.contains(ONE) && ended.log.contains(ONE), "{ended:?}");
    assert_eq!(two.delete().code, 0, "the second volume has no data");
    assert_eq!(server.list("data"), ["precious"]);
    assert_eq!(one.delete().code, 0);
}

#[test]
fn a_directory_made_by_hand_is_neither_taken_nor_deleted() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    let foreign = server.directory().join(run.directory());
    fs::create_dir(&foreign).unwrap();
    for _ in 0..2 {
        let ended = run.provision();
        assert_eq!(ended.code, 65, "{ended:?}");
        assert!(ended.termination_message.contains("not made by this image"), "{ended:?}");
    }
    assert_eq!(run.delete().code, 0, "the volume has no data");
    let ended = run.delete_bound();
    assert_eq!(ended.code, 65, "{ended:?}");
    assert!(ended.termination_message.contains("by hand"), "{ended:?}");
    assert!(foreign.is_dir());
}

#[test]
fn a_source_that_leads_elsewhere_stops_the_delete() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    assert_eq!(run.provision().code, 0);
    for source in [
        r#"{"nfs":{"server":"127.0.0.1","path":"/exports/data/other"}}"#,
        r#"{"nfs":{"server":"other","path":"/exports/data/x"}}"#,
        r#"{"local":{"path":"/x"}}"#,
    ] {
        let ended = run.clone().with("VOLUME_SOURCE", source).delete();
        assert_eq!(ended.code, 65, "{source}: {ended:?}");
    }
    assert_eq!(server.list(""), [run.directory()]);
}

#[test]
fn impossible_requests_are_refused() {
    let server = Ganesha::start(Options::default());
    fs::create_dir(server.directory().join(".flex-provisioner")).unwrap();
    for (name, value, code, says) in [
        ("VOLUME_MODE", "Block", 65, "volumeMode Block"),
        ("CLONE_OF", TWO, 65, "has no directory"),
        ("CLAIM_UUID", "../../etc", 65, "not the UUID"),
        ("PVC_NAME", "../x", 65, "cannot be a part"),
        ("SUBDIRECTORY", "../${pvc.name}", 78, "`..`"),
        ("SUBDIRECTORY", "${pvc}", 78, "not known"),
        ("MODE", "rwx", 78, "octal"),
        ("SIZE_BYTES", "", 64, "SIZE_BYTES"),
        ("EXPORT", "/exports/other", 78, "does not exist"),
        ("EXPORT", "/exports/data/none", 78, "does not exist"),
    ] {
        let ended = Run::new(&server, ONE).with(name, value).provision();
        assert_eq!(ended.code, code, "{name}={value}: {ended:?}");
        assert!(ended.termination_message.contains(says), "{name}={value}: {ended:?}");
        assert!(ended.out.is_empty(), "{name}={value}: {ended:?}");
    }
    assert!(server.list("").is_empty());
}

#[test]
fn a_misspelt_parameter_is_refused_before_a_volume_begins_and_noted_afterwards() {
    let server = Ganesha::start(Options::default());
    for (name, meant) in [("ON_DELETION", "on-delete"), ("ONDELETE", "on-delete"), ("SUBDIRECTROY", "subdirectory")] {
        let ended = Run::new(&server, ONE).with(name, "archive").provision().failed(78, &format!("`{meant}`"));
        for says in ["ConfigMap or StorageClass of class `nfs`", &name.to_lowercase().replace('_', "-")] {
            assert!(ended.termination_message.contains(says), "{says}: {ended:?}");
        }
        assert!(server.list("").is_empty() && ended.out.is_empty(), "nothing is made: {ended:?}");
    }
    // A volume that an older version of the image made with such a parameter.
    let run = Run::new(&server, ONE);
    run.provision().well();
    let run = run.with("ON_DELETION", "archive");
    for ended in [run.expand(), run.list(), run.capacity(), run.delete_bound()] {
        assert!(ended.log.contains("does not know the parameter `on-deletion`"), "{ended:?}");
        ended.well();
    }
    assert!(server.list("").is_empty());
    // Another program reads the parameter.
    let run = Run::new(&server, TWO).with("TEAM", "storage").with("IGNORED_PARAMETERS", "team");
    run.provision().well();
    run.delete().well();
}

#[test]
fn an_unreachable_server_is_left_to_the_next_attempt() {
    let server = Ganesha::start(Options::default());
    // A port that is taken, so that no other server gets it, and on which no process listens.
    let client = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
    let port = client.local_addr().unwrap().port();
    let run = Run::new(&server, ONE).with("PORT", &port.to_string());
    let begin = Instant::now();
    for ended in [run.provision(), run.delete()] {
        assert_eq!(ended.code, 75, "{ended:?}");
        assert!(ended.termination_message.contains("cannot be reached"), "{ended:?}");
    }
    assert!(server.list("").is_empty());
    assert!(begin.elapsed() < PATIENCE);
}

#[test]
fn a_server_that_ignores_a_connection_gets_another_one() {
    let server = Ganesha::start(Options::default());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let run = Run::new(&server, ONE).with("PORT", &listener.local_addr().unwrap().port().to_string());
    let to = (Ipv4Addr::LOCALHOST, server.port());
    thread::spawn(move || {
        let (_overlooked, _) = listener.accept().unwrap();
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(to).unwrap();
        let (mut from, mut back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut from, &mut { server }));
        io::copy(&mut back, &mut { client })
    });
    let ended = run.provision();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(server.list(""), [run.directory()]);
}

#[test]
fn a_read_only_export_is_reported() {
    let server = Ganesha::start(Options { read_only: true, ..Options::default() });
    let ended = Run::new(&server, ONE).provision();
    assert!([77, 78].contains(&ended.code), "{ended:?}");
    assert!(!ended.termination_message.is_empty());
}

#[test]
fn an_export_that_squashes_root_works_except_for_owners() {
    let server = Ganesha::start(Options { root_squash: true, ..Options::default() });
    let run = Run::new(&server, ONE);
    assert_eq!(run.provision().code, 0);
    assert_eq!(run.delete().code, 0);
    let ended = run.with("OWNER", "1234").provision();
    assert_eq!(ended.code, 77, "{ended:?}");
    assert!(ended.termination_message.contains("no_root_squash"), "{ended:?}");
}

//! Tests of expand runs: a promise for existing volumes, and for nothing else.

use std::fs;

use ganesha::{Ganesha, Options};

use crate::run::{ONE, PATIENCE, Run, TWO};

#[test]
fn only_an_existing_volume_with_its_own_record_is_expanded() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    fs::create_dir(server.directory().join(".flex-provisioner")).unwrap();
    let never = run.expand();
    assert_eq!(never.code, 65, "{never:?}");
    assert!(never.termination_message.contains("no record in .flex-provisioner"), "{never:?}");

    assert_eq!(run.provision().code, 0);
    for _ in 0..2 {
        let ended = run.expand();
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    // The volume's source leads elsewhere than its record.
    let other = Run::new(&server, TWO).with("PVC_NAME", "other");
    assert_eq!(other.provision().code, 0);
    let source = format!(r#"{{"nfs":{{"server":"127.0.0.1","path":"{}/{}"}}}}"#, Ganesha::EXPORT, other.directory());
    let ended = run.clone().with("VOLUME_SOURCE", &source).expand();
    assert_eq!(ended.code, 65, "{ended:?}");

    fs::remove_dir(server.directory().join(run.directory())).unwrap();
    // The server may still remember it for a while.
    let began = std::time::Instant::now();
    let gone = loop {
        let ended = run.expand();
        if !matches!(ended.code, 0 | 75) {
            break ended;
        }
        assert!(began.elapsed() < PATIENCE, "the directory is gone: {ended:?}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    };
    assert_eq!(gone.code, 65, "{gone:?}");
    assert!(gone.termination_message.contains("is gone"), "{gone:?}");
    assert_eq!(other.expand().code, 0);
}

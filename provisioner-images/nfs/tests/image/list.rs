//! Tests of list runs: the volumes of the export, by the records.

use std::fs;

use flex_contract::listing::{Entry, read};
use ganesha::{Ganesha, Options};

use crate::run::{ONE, Run, TWO};

#[track_caller]
fn list(run: &Run) -> Vec<Entry> {
    let ended = run.list();
    assert_eq!(ended.code, 0, "{ended:?}");
    read(&ended.out).unwrap()
}

#[test]
fn a_list_has_volumes_and_rubbish_and_nothing_else() {
    let server = Ganesha::start(Options::default());
    let (one, two) = (Run::new(&server, ONE), Run::new(&server, TWO));
    assert_eq!(list(&one), [], "an export that has never had a volume");
    for run in [&one, &two] {
        assert_eq!(run.provision().code, 0);
    }
    fs::create_dir(server.directory().join("somebody-s")).unwrap();
    let of =
        |entries: &[Entry]| entries.iter().map(|entry| (entry.state.as_str(), entry.id.clone())).collect::<Vec<_>>();
    let entries = list(&one);
    assert_eq!(of(&entries), [("volume", ONE.to_owned()), ("volume", TWO.to_owned())]);
    assert_eq!(entries[0].place, format!("127.0.0.1:{}/{}", Ganesha::EXPORT, one.directory()));
    // The leftover of a delete run that died after moving the directory away.
    let rubbish = server.directory().join(format!(".deleting-{TWO}"));
    fs::remove_dir(server.directory().join(two.directory())).unwrap();
    fs::create_dir(rubbish).unwrap();
    // A missing directory: its volume does not exist, whatever the record says.
    fs::remove_dir(server.directory().join(one.directory())).unwrap();
    // The server may still remember what was changed behind its back.
    let mut last = None;
    for _ in 0..300 {
        let ended = one.list();
        last = read(&ended.out).ok().map(|entries| of(&entries));
        if last.as_deref() == Some(&[("rubbish", TWO.to_owned())]) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    panic!("{last:?}");
}

#[test]
fn a_directory_that_the_config_retains_is_listed_as_retained() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE).with("ON_DELETE", "keep");
    assert_eq!(run.provision().code, 0);
    assert_eq!(run.delete().code, 0);
    assert_eq!(list(&run)[0].state.as_str(), "kept");
}

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use k8s_openapi::api::core::v1::{LocalVolumeSource, PersistentVolumeSpec};

use super::*;

const ID: &str = "c0ffee00-0000-4000-8000-000000000001";
const OTHER: &str = "c0ffee00-0000-4000-8000-000000000002";

/// Makes a base path with the DaemonSet's mode, and directories in it as the kubelet makes them.
fn base(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    keep(folder.path(), Duration::ZERO).unwrap();
    for name in names {
        fs::create_dir(folder.path().join(name)).unwrap();
        set_mode(&folder.path().join(name), FRESH);
    }
    folder
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn local(path: &Path) -> PersistentVolume {
    let local = LocalVolumeSource { path: path.to_str().unwrap().into(), ..LocalVolumeSource::default() };
    PersistentVolume {
        spec: Some(PersistentVolumeSpec { local: Some(local), ..PersistentVolumeSpec::default() }),
        ..PersistentVolume::default()
    }
}

#[test]
fn the_directories_of_a_run_are_those_directly_below_its_mounts() {
    let mounts = Mounts::read("/var/lib/a,/b");
    for path in ["/var/lib/a/x", "/b/.snapshot-x"] {
        assert!(mounts.have(Path::new(path)), "{path}");
    }
    for path in ["/var/lib/a", "/b", "/b/x/y", "/", "b/x", "/c/x"] {
        assert!(!mounts.have(Path::new(path)), "{path}");
    }
    assert!(!Mounts::read("").have(Path::new("/x")) && !Mounts::read("").have(Path::new("x")));
}

#[test]
fn a_copy_is_made_in_place_and_repeated_only_while_it_is_incomplete() {
    let base = base(&[ID, OTHER]);
    let (from, to) = (base.path().join(OTHER), base.path().join(ID));
    fs::create_dir_all(from.join("deep/er")).unwrap();
    fs::write(from.join("deep/er/file"), "content").unwrap();
    // The tenant's own data, whatever its name.
    fs::write(from.join(".flex-partial"), "theirs").unwrap();
    set_mode(&from, 0o2770);
    chown(&from, Some(1234), Some(5678)).unwrap();
    fill(&from, &to).unwrap();
    assert_eq!(names(&to), ["deep"]);
    let found = fs::metadata(&to).unwrap();
    assert_eq!((mode(&to), found.uid(), found.gid()), (0o2770, 1234, 5678));
    assert_eq!(found.mtime(), fs::metadata(&from).unwrap().mtime());

    // The copy is complete: it may be in use by now.
    fs::write(to.join("deep/er/file"), "mine").unwrap();
    fs::remove_dir_all(&from).unwrap();
    fill(&from, &to).unwrap();
    assert_eq!(fs::read_to_string(to.join("deep/er/file")).unwrap(), "mine");

    // The state that a killed run leaves, wherever it was.
    fs::create_dir_all(from.join("deep")).unwrap();
    fs::write(from.join("deep/file"), "content").unwrap();
    for leftovers in [vec![], vec!["deep/er/file"], vec!["rest", "deep/file"]] {
        fs::write(to.join(".flex-partial"), "").unwrap();
        for path in leftovers {
            fs::create_dir_all(to.join(path).parent().unwrap()).unwrap();
            fs::write(to.join(path), "half").unwrap();
        }
        fill(&from, &to).unwrap();
        assert_eq!((names(&to), names(&to.join("deep"))), (vec!["deep".into()], vec!["file".into()]));
        assert_eq!(fs::read_to_string(to.join("deep/file")).unwrap(), "content");
    }
}

#[test]
fn a_source_that_the_kubelet_made_is_missing() {
    let base = base(&[OTHER]);
    let (from, to) = (base.path().join(OTHER), base.path().join(ID));
    std::thread::sleep(Duration::from_millis(20));
    fs::create_dir(&to).unwrap();
    for (mode, is_there) in [(FRESH, false), (GONE, false), (0o777, true), (0o700, true)] {
        set_mode(&from, mode);
        let copied = fill(&from, &to);
        assert_eq!(copied.is_ok(), is_there, "{mode:o}: {copied:?}");
        assert!(is_there || copied.unwrap_err().message.contains("is not on node"), "{mode:o}");
    }
    fs::remove_dir(&from).unwrap();
    assert!(fill(&from, &to).unwrap_err().message.contains("is not on node"));
    symlink("/etc", &from).unwrap();
    assert_eq!(fill(&from, &to).unwrap_err().code, flex_contract::exit::TEMPFAIL);
    assert_eq!(names(&to), [""; 0]);
}

/// In a base path without the DaemonSet, the mode says nothing about a lost source, but its age does.
#[test]
fn an_empty_source_is_older_than_its_copy() {
    let base = base(&[]);
    let (from, to) = (base.path().join(OTHER), base.path().join(ID));
    let made = |path: &Path| {
        fs::create_dir(path).unwrap();
        set_mode(path, 0o700);
        std::thread::sleep(Duration::from_millis(20));
    };
    made(&to);
    made(&from);
    assert!(fill(&from, &to).unwrap_err().message.contains("is not on node"));
    // The kubelet did not make a directory with data.
    fs::write(from.join("file"), "content").unwrap();
    fill(&from, &to).unwrap();
    assert_eq!(names(&to), ["file"]);

    let older = base.path().join("older");
    made(&older);
    fs::remove_dir_all(&to).unwrap();
    made(&to);
    fill(&older, &to).unwrap();
    fill(&older, &to).expect("a copy of an empty directory may be made twice");
}

/// A batch locks the directories of all members, also of those that begin late.
#[test]
fn a_directory_locked_by_a_run_is_not_removed() {
    let base = base(&[ID, OTHER]);
    let mounts = Mounts::read(base.path().to_str().unwrap());
    for id in [ID, OTHER] {
        fs::create_dir(base.path().join(format!(".deleting-{id}"))).unwrap();
        empty(&base.path().join(id)).unwrap();
    }
    let held = mounts.hold();
    assert_eq!(held.len(), 4);
    assert_eq!(keep(base.path(), Duration::ZERO).unwrap(), [""; 0]);
    drop(held);
    assert_eq!(keep(base.path(), Duration::ZERO).unwrap().len(), 2);
    assert_eq!(names(base.path()), [""; 0]);
    assert!(Mounts::read("/not/there").hold().is_empty());
}

#[test]
fn a_deleted_directory_is_emptied_and_marked_for_removal() {
    let mark = format!(".deleting-{ID}");
    let base = base(&[ID, &mark]);
    let volume = base.path().join(ID);
    fs::create_dir_all(volume.join("deep/er")).unwrap();
    fs::write(volume.join(".flex-partial"), "x").unwrap();
    symlink("/", volume.join("link")).unwrap();
    set_mode(&volume, 0o777);
    for _ in 0..2 {
        empty(&volume).unwrap();
        assert_eq!((names(&volume), mode(&volume)), (vec![], GONE));
        assert_eq!(mode(&base.path().join(&mark)), GONE);
    }
    assert_eq!(empty(&base.path().join(OTHER)).unwrap_err().code, flex_contract::exit::CONFIG);
}

#[test]
fn only_a_complete_volume_is_created() {
    let base = base(&[ID]);
    let (volume, mounts) = (base.path().join(ID), Mounts::read(base.path().to_str().unwrap()));
    let made = || check(&mounts, &local(&volume));
    // A delete run of a failed attempt has marked the directory. The mark says nothing about the volume.
    fs::create_dir(base.path().join(format!(".deleting-{ID}"))).unwrap();
    empty(&volume).unwrap();
    made().unwrap();
    assert_eq!(keep(base.path(), Duration::ZERO).unwrap(), [""; 0]);
    assert_eq!(names(base.path()), [ID]);
    fs::write(volume.join(".flex-partial"), "").unwrap();
    assert!(made().unwrap_err().message.contains("half a copy"));
    assert!(
        check(&Mounts::default(), &local(&volume)).unwrap_err().message.contains("half a copy"),
        "begun by another run"
    );
    // On the node the storage may have another path.
    let elsewhere = local(&Path::new("/on/the/node").join(ID));
    assert!(check(&mounts, &elsewhere).unwrap_err().message.contains("half a copy"));
    // A path that is no mount of the run is not checked.
    check(&mounts, &local(&volume.join("deeper"))).unwrap();
    // The path exists only in the pod, and not on the node.
    fs::remove_file(volume.join(".flex-partial")).unwrap();
    let held_open = open(&volume).unwrap();
    fs::remove_dir(&volume).unwrap();
    assert_eq!(held(&held_open, &volume).unwrap_err().code, flex_contract::exit::TEMPFAIL);
    assert_eq!(made().unwrap_err().code, flex_contract::exit::CONFIG);
}

#[test]
fn the_daemon_set_closes_a_base_path_and_removes_what_a_delete_run_has_marked() {
    let (snapshot, moved) = (format!(".snapshot-{ID}"), "pvc-1_team_data");
    let marked = [ID, &snapshot, moved, OTHER];
    let marks = marked.map(|name| format!(".deleting-{name}"));
    let base = base(&[&marked[..], &marks.each_ref().map(String::as_str)].concat());
    let path = base.path();
    for name in marked {
        empty(&path.join(name)).unwrap();
    }
    // A pod that had the volume writes there after the end, and another run has only begun.
    fs::write(path.join(OTHER).join("file"), "x").unwrap();
    let third = "c0ffee00-0000-4000-8000-000000000003";
    let not_yet = format!(".deleting-{third}");
    for name in [third, &not_yet, ".flex-capacity", "lost+found", ".deleting-.flex-capacity"] {
        fs::create_dir(path.join(name)).unwrap();
    }
    // A link in the place of a marked directory, and one in the place of a mark.
    let (fourth, fifth) = (third.replace("003", "004"), third.replace("003", "005"));
    symlink(path.join("lost+found"), path.join(&fourth)).unwrap();
    fs::create_dir(path.join(format!(".deleting-{fourth}"))).unwrap();
    set_mode(&path.join(format!(".deleting-{fourth}")), GONE);
    fs::create_dir(path.join(&fifth)).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    for name in [third, &not_yet, &fifth, ".flex-capacity", "lost+found", ".deleting-.flex-capacity"] {
        set_mode(&path.join(name), FRESH);
    }
    symlink(path.join(&marks[0]), path.join(format!(".deleting-{fifth}"))).unwrap();
    set_mode(path, 0o755);
    assert_eq!(keep(path, Duration::from_secs(3600)).unwrap(), [""; 0]);
    assert_eq!(mode(path), FRESH);

    // A run that has just begun locks one of them.
    let run = open(&path.join(ID)).unwrap();
    held(&run, &path.join(ID)).unwrap();
    let mut removed = keep(path, Duration::ZERO).unwrap();
    removed.sort();
    assert_eq!(removed, [snapshot, moved.to_owned()]);
    drop(run);
    assert_eq!(keep(path, Duration::ZERO).unwrap(), [ID]);
    assert_eq!(keep(path, Duration::ZERO).unwrap(), [""; 0]);
    let kept =
        [&format!(".deleting-{fifth}"), ".deleting-.flex-capacity", ".flex-capacity", OTHER, third, &fourth, &fifth];
    let mut kept: Vec<&str> = kept.into_iter().chain(["lost+found"]).collect();
    kept.sort();
    assert_eq!(names(path), kept);
    assert!(keep(&path.join("absent"), Duration::ZERO).is_err());
}

/// The runtime has made a directory for a container whose command is missing.
#[test]
fn a_directory_that_no_run_has_changed_is_removed_after_a_while() {
    let base = base(&[ID]);
    fs::create_dir(base.path().join(OTHER)).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    set_mode(&base.path().join(ID), FRESH);
    assert_eq!(keep(base.path(), Duration::from_secs(60)).unwrap(), [""; 0], "a run may be about to begin");
    assert_eq!(keep(base.path(), Duration::ZERO).unwrap(), [OTHER]);
    assert_eq!(names(base.path()), [ID], "a volume may be empty, and of any mode");
}

/// A pod can give its volume any mode, and use it in the moment in which a delete run of an earlier attempt has marked it.
#[test]
fn no_mode_makes_a_volume_that_of_nobody() {
    let mark = format!(".deleting-{ID}");
    for mode in [FRESH, GONE] {
        let base = base(&[ID, &mark]);
        empty(&base.path().join(ID)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        set_mode(&base.path().join(ID), mode);
        for _ in 0..2 {
            assert_eq!(keep(base.path(), Duration::ZERO).unwrap(), [""; 0]);
            assert_eq!(names(base.path()), [ID], "{mode:o}");
        }
    }
}

//! Tests of `flex-pv remove` and `flex-pv rename` as processes: killed half-way, and with mounted file systems.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::tool::flex_pv;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn several_paths_are_removed_and_a_missing_one_is_a_success() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    fs::create_dir_all(one.join("a/b")).unwrap();
    symlink("/etc", &two).unwrap();
    for _ in 0..2 {
        let ended = flex_pv(&["remove", text(&one), text(&two)], &[], "");
        assert_eq!((ended.code, ended.termination_message.as_str()), (0, ""), "{ended:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    // A directory that is not mounted does not count as empty.
    let ended = flex_pv(&["remove", "/nonexistent/volume"], &[], "");
    assert!(ended.code == 75 && ended.termination_message.contains("/nonexistent"), "{ended:?}");
    for arguments in [&["remove"][..], &["remove", "/"], &["rename", "/tmp/a"], &["rename", "/", "/tmp/a"]] {
        assert_eq!(flex_pv(arguments, &[], "").code, 64, "{arguments:?}");
    }
    let ended = flex_pv(&["rename", text(&one), text(&two)], &[], "");
    assert!(ended.code == 75 && ended.termination_message.contains("No such file"), "{ended:?}");
}

/// A part of a path may be the handle of a snapshot, which a person wrote.
#[test]
fn a_path_does_not_lead_from_a_snapshot_to_a_volume() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, snapshot) = (folder.path().join("volume"), folder.path().join(".snapshot-1"));
    fs::create_dir(&volume).unwrap();
    fs::create_dir(&snapshot).unwrap();
    let (other, hostile) = (folder.path().join("other"), snapshot.join("../volume"));
    for arguments in [
        &["remove", text(&hostile)][..],
        &["remove", text(&snapshot.join("..")), text(&hostile)],
        &["copy", text(&hostile), text(&other)],
        &["copy", text(&volume), text(&snapshot.join("../other"))],
        &["rename", text(&hostile), text(&other)],
        &["rename", text(&volume), text(&snapshot.join("../other"))],
    ] {
        let ended = flex_pv(arguments, &[], "");
        assert!(ended.code == 64 && ended.termination_message.contains("contains `..`"), "{arguments:?}: {ended:?}");
        assert!(volume.exists() && !other.exists(), "{arguments:?}");
    }
    // Two dots in a name lead nowhere.
    let name = folder.path().join("a..b");
    fs::create_dir(&name).unwrap();
    assert!(flex_pv(&["remove", text(&name)], &[], "").code == 0 && !name.exists());
}

#[test]
fn a_removal_killed_half_way_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    let fill = || {
        for n in 0..200 {
            let deep = volume.join(format!("{n}/a/b/c"));
            fs::create_dir_all(&deep).unwrap();
            for file in 0..20 {
                fs::write(deep.join(file.to_string()), "").unwrap();
            }
        }
    };
    let (mut kills, mut removals) = (0, 0);
    // On a busy machine, a run may end before it is killed.
    while kills == 0 && removals < 100 {
        fill();
        removals += 1;
        for wait in 1.. {
            let mut run = Command::new(env!("CARGO_BIN_EXE_flex-pv"))
                .arg("remove")
                .arg(&volume)
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(wait));
            run.kill().unwrap();
            if run.wait().unwrap().success() {
                break;
            }
            kills += usize::from(volume.exists());
        }
    }
    assert!(kills > 0, "the run was killed during the removal");
    assert!(!volume.exists());
}

/// Runs in a mount namespace that ends with the command: with a file system in memory, and a part of the same one.
#[test]
fn a_mounted_file_system_is_not_entered() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, victim) = (folder.path().join("volume"), folder.path().join("victim"));
    fs::create_dir_all(&victim).unwrap();
    fs::write(victim.join("precious"), "x").unwrap();
    for (mount, at) in [("--bind \"$1\"", "a/b"), ("-t tmpfs none", "a/b"), ("--bind \"$1\"", "c")] {
        fs::create_dir_all(volume.join(at)).unwrap();
        let script = format!(
            "mount {mount} \"$2\" && : >\"$2/kept\" && {{ \"$3\" remove \"$4\"; code=$?; ls \"$2\"; exit $code; }}"
        );
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script, "sh"])
            .args([&victim, &volume.join(at)])
            .arg(env!("CARGO_BIN_EXE_flex-pv"))
            .arg(&volume)
            .output()
            .unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(75), "{mount} {at}: {err}");
        assert!(err.contains("mounted there") && err.contains(at), "{mount} {at}: {err}");
        assert!(out.contains("kept"), "{mount} {at}: {out}");
        assert!(victim.join("precious").exists());
    }
    let ended = flex_pv(&["remove", text(&volume)], &[], "");
    assert_eq!(ended.code, 0, "with nothing mounted: {ended:?}");
}

#[test]
fn a_path_that_fails_stops_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (absent, volume, base) = (path("absent/volume"), path("volume"), path("base"));
    for name in [&volume, &base] {
        fs::create_dir(name).unwrap();
    }
    fs::write(folder.path().join("volume/file"), "x").unwrap();
    let mounts = [("STORAGE_MOUNTS", folder.path().to_str().unwrap())];
    let ended = flex_pv(&["remove", &absent, &volume], &mounts, "");
    assert!(ended.code == 75 && ended.termination_message.contains("absent"), "{ended:?}");
    assert_eq!(fs::read_dir(&volume).unwrap().count(), 0, "the directory of the run is emptied");
    let ended = flex_pv(&["keep", "--age", "0", &absent, &base], &[], "");
    assert!(ended.code == 75 && ended.termination_message.contains("absent"), "{ended:?}");
    assert_eq!(fs::metadata(&base).unwrap().permissions().mode() & 0o7777, 0o1700);
}

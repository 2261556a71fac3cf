//! Kills a run before one of the processes that it starts.
//!
//! Each program in `PATH` has a stand-in with its name, in a directory before all others. A stand-in counts the call and
//! becomes the real program. At the chosen call it waits instead, and the desk kills the run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, openat};
use tokio::time::sleep;

use crate::below::Below;
use crate::container::{Container, Content, Mount};

/// The directory of the counts in the container.
const CALLS: &str = "/run/flex-desk/calls";
/// The time between two looks at the count.
const LOOK: Duration = Duration::from_millis(1);
/// The largest number of calls at which a run is killed.
pub const MOST: usize = 24;

/// A number of calls that no run reaches.
pub const NEVER: usize = usize::MAX >> 1;
/// The largest number of processes of a run that wait at one time.
const WAITING: usize = 64;

/// The stand-in. It uses nothing but what each shell has.
const STAND_IN: &str = r#"#!/bin/sh
calls=/run/flex-desk/calls
echo >>"$calls/count"
read -r cut <"$calls/cut"
n=0
while read -r _; do n=$((n + 1)); done <"$calls/count"
if [ "$n" -gt "$cut" ]; then
    echo >>"$calls/reached"
    read -r _ <"$calls/never"
fi
here=${0%/*}
name=${0##*/}
rest=$PATH:
while [ -n "$rest" ]; do
    folder=${rest%%:*}
    rest=${rest#*:}
    if [ "$folder" != "$here" ] && [ -x "$folder/$name" ]; then exec "$folder/$name" "$@"; fi
done
exit 127
"#;

/// The stand-ins of all programs.
#[derive(Clone, Debug)]
pub struct Cuts {
    folder: PathBuf,
}

/// The counts of one run. The run can write them, so that the next one gets others.
pub struct Calls(tempfile::TempDir);

impl Cuts {
    /// Makes the stand-ins in a directory, for the programs in these directories.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn new(folder: &Path, programs: &[PathBuf]) -> io::Result<Self> {
        let cuts = Cuts { folder: folder.to_path_buf() };
        fs::create_dir_all(cuts.path())?;
        let script = cuts.path().join(".stand-in");
        fs::write(&script, STAND_IN)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        let own = ["flex-pv".into()];
        let names = programs.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        for name in names.map(|entry| entry.file_name()).chain(own) {
            // The stand-in itself begins with a shell.
            if name == "sh" {
                continue;
            }
            match symlink(".stand-in", cuts.path().join(name)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(cuts)
    }

    /// Returns the directory of the stand-ins.
    pub fn path(&self) -> PathBuf {
        self.folder.join("stand-ins")
    }

    /// Adds the stand-ins to a container. The run stops before the call with this number, from 0.
    ///
    /// # Errors
    /// If the counts cannot be written.
    pub fn arm(&self, container: &mut Container, cut: usize) -> io::Result<Calls> {
        let calls = tempfile::Builder::new().prefix("calls-").tempdir_in(&self.folder)?;
        std::process::Command::new("mkfifo").arg("-m0666").arg(calls.path().join("never")).status()?;
        let below = Below::open(calls.path())?;
        below.write(Path::new("cut"), format!("{cut}\n").as_bytes(), 0o444, None)?;
        for name in ["count", "reached"] {
            below.write(Path::new(name), b"", 0o666, None)?;
        }
        below.set(Some(0o777), None)?;
        let content = Content::OfDesk(calls.path().to_path_buf());
        container.mounts.push(Mount { path: CALLS.into(), content, read_only: false });
        Ok(Calls(calls))
    }
}

impl Calls {
    fn read(&self, name: &str) -> String {
        let read = Below::open(self.0.path()).and_then(|below| below.read(Path::new(name)));
        read.and_then(io::read_to_string).unwrap_or_default()
    }

    /// Returns the number of calls of the last run.
    pub fn count(&self) -> usize {
        self.read("count").lines().count()
    }

    /// Lets the run go on that waits before the chosen call, as long as the caller keeps the answer.
    ///
    /// # Errors
    /// If the counts cannot be written.
    pub fn release(&self) -> io::Result<File> {
        let below = Below::open(self.0.path())?;
        below.write(Path::new("cut"), format!("{NEVER}\n").as_bytes(), 0o444, None)?;
        // Nobody waits at a pipe that is open for both, and each process that waits there reads a line.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut gate = File::from(openat(&below, "never", flags, Mode::empty())?);
        gate.write_all("\n".repeat(WAITING).as_bytes())?;
        Ok(gate)
    }

    /// Waits until the chosen call is reached.
    pub async fn reached(&self) {
        while self.read("reached").is_empty() {
            sleep(LOOK).await;
        }
    }
}

/// Chooses the calls at which a run with so many calls is killed: all, or at most `most`, which is at least two, that are
/// spread over the run.
pub fn spread(calls: usize, most: usize) -> Vec<usize> {
    match calls <= most {
        true => (0..calls).collect(),
        false => (0..most).map(|n| n * (calls - 1) / (most - 1)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_calls_are_all_chosen_and_many_are_spread() {
        assert_eq!(spread(3, MOST), [0, 1, 2]);
        let many = spread(1000, MOST);
        assert_eq!((many.len(), many[0], many[MOST - 1]), (MOST, 0, 999));
        assert_eq!(spread(9, 3), [0, 4, 8]);
    }
}

//! Kills a run before one of the processes that it starts.
//!
//! Each program in `PATH` has a stand-in with its name, in a directory before all others. A stand-in counts the call and
//! becomes the real program. At the chosen call it waits instead, and the desk kills the run.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use crate::container::{Container, Content, Mount};

/// The directory of the counts in the container.
const CALLS: &str = "/run/flex-desk/calls";
/// The time between two looks at the count.
const LOOK: Duration = Duration::from_millis(1);
/// The largest number of calls at which a run is killed.
const MOST: usize = 24;

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
    stand_ins: PathBuf,
    calls: PathBuf,
}

impl Cuts {
    /// Makes the stand-ins in a directory, for the programs in these directories.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn new(folder: &Path, programs: &[PathBuf]) -> io::Result<Self> {
        let cuts = Cuts { stand_ins: folder.join("stand-ins"), calls: folder.join("calls") };
        fs::create_dir_all(&cuts.stand_ins)?;
        fs::create_dir_all(&cuts.calls)?;
        let script = folder.join("stand-ins/.stand-in");
        fs::write(&script, STAND_IN)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        let own = ["flex-pv".into()];
        let names = programs.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        for name in names.map(|entry| entry.file_name()).chain(own) {
            // The stand-in itself begins with a shell.
            if name == "sh" {
                continue;
            }
            match symlink(".stand-in", cuts.stand_ins.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let never = cuts.calls.join("never");
        std::process::Command::new("mkfifo").arg(&never).status()?;
        Ok(cuts)
    }

    /// Returns the directory of the stand-ins.
    pub fn path(&self) -> PathBuf {
        self.stand_ins.clone()
    }

    /// Adds the stand-ins to a container. The run stops before the call with this number, from 0.
    ///
    /// # Errors
    /// If the counts cannot be written.
    pub fn arm(&self, container: &mut Container, cut: usize) -> io::Result<()> {
        fs::set_permissions(&self.calls, fs::Permissions::from_mode(0o777))?;
        fs::write(self.calls.join("cut"), format!("{cut}\n"))?;
        fs::write(self.calls.join("count"), "")?;
        fs::write(self.calls.join("reached"), "")?;
        for name in ["count", "reached", "never"] {
            fs::set_permissions(self.calls.join(name), fs::Permissions::from_mode(0o666))?;
        }
        container.mounts.push(Mount {
            path: CALLS.into(),
            content: Content::OfDesk(self.calls.clone()),
            read_only: false,
        });
        Ok(())
    }

    /// Returns the number of calls of the last run.
    pub fn count(&self) -> usize {
        fs::read_to_string(self.calls.join("count")).map_or(0, |text| text.lines().count())
    }

    /// Waits until the chosen call is reached.
    pub async fn reached(&self) {
        while fs::metadata(self.calls.join("reached")).map_or(0, |file| file.len()) == 0 {
            sleep(LOOK).await;
        }
    }
}

/// Chooses the calls at which a run with so many calls is killed: all, or some that are spread over the run.
pub fn chosen(calls: usize) -> Vec<usize> {
    match calls <= MOST {
        true => (0..calls).collect(),
        false => (0..MOST).map(|n| n * (calls - 1) / (MOST - 1)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_calls_are_all_chosen_and_many_are_spread() {
        assert_eq!(chosen(3), [0, 1, 2]);
        let many = chosen(1000);
        assert_eq!((many.len(), many[0], many[MOST - 1]), (MOST, 0, 999));
    }
}

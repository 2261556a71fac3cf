//! The process that enters the namespaces, starts the container in them, and waits for its end.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode};

use nix::sched::{CloneFlags, unshare};
use rustix::process::{Signal, getegid, geteuid, set_parent_process_death_signal};

use super::credentials;
use super::spec::{INNER, Spec};

/// Runs the container, and returns its exit code. A signal that ended it counts from 128.
pub(super) fn run(spec: &Spec) -> Result<ExitCode, String> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    if spec.own_users {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(flags).map_err(|error| format!("this machine gives no namespaces of its own to a process: {error}"))?;
    if spec.own_users {
        let write = |file: &str, text: String| {
            fs::write(format!("/proc/self/{file}"), text).map_err(|error| format!("{file}: {error}"))
        };
        write("setgroups", "deny".into())?;
        write("uid_map", format!("{} {user} 1", spec.user))?;
        write("gid_map", format!("{} {group} 1", spec.user))?;
        credentials::keep_all().map_err(|error| format!("capabilities: {error}"))?;
    }
    let path = spec.folder.join("spec");
    let mut child = Command::new("/proc/self/exe")
        .arg0(INNER)
        .arg(path)
        .spawn()
        .map_err(|error| format!("the container cannot be started: {error}"))?;
    let partial = spec.folder.join("pid.partial");
    fs::write(&partial, child.id().to_string())
        .and_then(|()| fs::rename(&partial, spec.pid_file()))
        .map_err(|error| format!("{}: {error}", partial.display()))?;
    let status = child.wait().map_err(|error| error.to_string())?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

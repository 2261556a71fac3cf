//! The process that enters the namespaces, starts the container in them, and waits for its end.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode};

use nix::sched::{CloneFlags, unshare};
use rustix::process::{Signal, getegid, geteuid, set_parent_process_death_signal, setsid};

use super::spec::{INNER, Spec};
use super::{credentials, user_namespace};

/// Runs the container, and returns its exit code. A signal that ended it counts from 128.
pub(super) fn run(spec: &Spec) -> Result<ExitCode, String> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
    // The container has no terminal: what it wrote there could be read as typed by the person.
    setsid().map_err(|error| format!("a session of its own: {error}"))?;
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let mut flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
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
    let started = UnixStream::pair().and_then(|(own, inside)| {
        let child = Command::new("/proc/self/exe").arg0(INNER).arg(path).stdin(OwnedFd::from(inside)).spawn()?;
        Ok((own, child))
    });
    let (own, mut child) = started.map_err(|error| format!("the container cannot be started: {error}"))?;
    let partial = spec.folder.join("pid.partial");
    fs::write(&partial, child.id().to_string())
        .and_then(|()| fs::rename(&partial, spec.pid_file()))
        .map_err(|error| format!("{}: {error}", partial.display()))?;
    user_namespace::give(&own, child.id(), &spec.users)?;
    let status = child.wait().map_err(|error| error.to_string())?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

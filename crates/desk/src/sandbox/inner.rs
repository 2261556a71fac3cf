//! The first process of the container: it mounts what the container sees, leaves the users of this machine, gives up its rights and becomes the program.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::spec::{Spec, Trouble};
use super::{credentials, mounts, user_namespace};

/// Becomes the program. Returns only if that fails.
pub(super) fn run(spec: &Spec) -> (Trouble, Result<ExitCode, String>) {
    let Ok(nothing) = File::open("/dev/null") else {
        return (Trouble::Setup, Err("this machine has no /dev/null".into()));
    };
    let ready =
        mounts::enter(spec).and_then(|()| user_namespace::enter(&spec.users)).and_then(|()| credentials::drop(spec));
    if let Err(why) = ready {
        return (Trouble::Setup, Err(why));
    }
    // The loss of rights clears this setting, so it comes last.
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return (Trouble::Setup, Err(error.to_string()));
    }
    let Some((program, arguments)) = spec.command.split_first() else {
        return (Trouble::Start, Err("there is no program".into()));
    };
    if let Some(why) = format_error(program, spec.env.get("PATH").map_or("", String::as_str)) {
        return (Trouble::Start, Err(why));
    }
    let mut command = Command::new(program);
    let error = command.args(arguments).env_clear().envs(&spec.env).current_dir("/").stdin(Stdio::from(nothing)).exec();
    (Trouble::Start, Err(format!("{program}: {error}")))
}

/// Checks that the kernel can start a program. The C library would give a file of another format to a shell, which a
/// container runtime does not do.
fn format_error(program: &str, path: &str) -> Option<String> {
    let file = match program.contains('/') {
        true => Path::new(program).to_path_buf(),
        false => std::env::split_paths(path).map(|folder| folder.join(program)).find(|file| file.is_file())?,
    };
    let mut start = [0; 2];
    File::open(&file).ok()?.read_exact(&mut start).ok()?;
    let is_known = start == *b"#!" || start == *b"\x7fE";
    let why = "exec format error: it is no program of this machine; a script begins with a line such as #!/bin/sh";
    (!is_known).then(|| format!("{}: {why}", file.display()))
}

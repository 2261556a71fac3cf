//! The user namespace of the container. The namespaces of its mounts belong to the one above, so that the container can
//! change no mount that it did not make.

use std::fs;
use std::io::{Read, Write, stdin};
use std::os::unix::net::UnixStream;

use nix::sched::{CloneFlags, unshare};

use super::users::{Extent, Users};

/// Enters the namespace. The process outside gives it its users, which it hears of by its standard input.
pub(super) fn enter(users: &Users) -> Result<(), String> {
    if *users == Users::OfMachine {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWUSER)
        .map_err(|error| format!("this machine gives no user namespace to a process: {error}"))?;
    let lost = |error: &dyn std::fmt::Display| format!("the users of the container: {error}");
    rustix::io::write(stdin(), b"?").map_err(|error| lost(&error))?;
    let mut answer = [0];
    stdin().read_exact(&mut answer).map_err(|error| lost(&error))
}

/// Gives the users to the process inside, when it asks for them.
pub(super) fn give(mut inside: &UnixStream, process: u32, users: &Users) -> Result<(), String> {
    let Users::Own(extents) = users else { return Ok(()) };
    let mut question = [0];
    if inside.read_exact(&mut question).is_err() {
        // The process has ended, and says why itself.
        return Ok(());
    }
    let text: String = extents.iter().map(line).collect();
    for file in ["uid_map", "gid_map"] {
        let path = format!("/proc/{process}/{file}");
        fs::write(&path, &text).map_err(|error| format!("the users of the container: {file}: {error}"))?;
    }
    // A process that has ended meanwhile says why itself.
    let _ = inside.write_all(b"!");
    Ok(())
}

fn line(Extent { inside, outside, count }: &Extent) -> String {
    format!("{inside} {outside} {count}\n")
}

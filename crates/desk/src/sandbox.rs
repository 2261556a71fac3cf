//! A process with the mounts, the user and the rights of a container.
//!
//! The program starts itself twice. The first process enters namespaces of its own ([`outer`]); the second is the first
//! process of the container: it mounts, leaves the users of this machine, gives up its rights and becomes the program
//! ([`inner`]). So no code runs between
//! a fork and the program, and nothing here is unsafe.

#[cfg(target_os = "linux")]
mod credentials;
#[cfg(target_os = "linux")]
mod devices;
#[cfg(target_os = "linux")]
mod inner;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod outer;
#[cfg(target_os = "linux")]
mod place;
#[cfg(target_os = "linux")]
mod sockets;
pub mod spec;
#[cfg(target_os = "linux")]
mod user_namespace;
pub mod users;

use std::process::ExitCode;

use self::spec::{INNER, OUTER};

/// The exit code of a process that could not become the container.
pub const SETUP_FAILED: u8 = 125;

/// Becomes a process of a container, if the program was started as one. Otherwise returns `None`: the program is itself.
/// Each program that uses the desk calls this function first.
pub fn entered() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let name = words.next()?;
    let is_outer = match name.to_str()? {
        OUTER => true,
        INNER => false,
        _ => return None,
    };
    Some(enter(is_outer, &words.next()?))
}

#[cfg(target_os = "linux")]
fn enter(is_outer: bool, spec: &std::ffi::OsStr) -> ExitCode {
    let Some(spec) = spec::Spec::read(spec) else { return ExitCode::from(SETUP_FAILED) };
    // Afterwards the file is out of reach.
    let Ok(report) = spec.open_report() else { return ExitCode::from(SETUP_FAILED) };
    let (what, ended) = match is_outer {
        true => (spec::Trouble::Setup, outer::run(&spec)),
        false => inner::run(&spec),
    };
    match ended {
        Ok(code) => code,
        Err(why) => {
            spec::report(report, what, &why);
            ExitCode::from(SETUP_FAILED)
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn enter(_: bool, _: &std::ffi::OsStr) -> ExitCode {
    ExitCode::from(SETUP_FAILED)
}

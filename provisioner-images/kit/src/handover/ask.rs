//! The side of a member: it hands its volume over, and waits for the outcome.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::wire::{Address, LARGEST, VARIABLE, read_answer, request};
use crate::Failure;

/// The time for which the process of the batch may read no bytes. This process also waits that long for its answer,
/// beyond the patience with the API.
const SLACK: Duration = Duration::from_secs(5);
/// The largest answer in bytes.
const LARGEST_ANSWER: u64 = 1 << 20;

/// Hands the volume over to the process of the batch. Returns `None` if this process must create it itself: it belongs
/// to no batch, or the process of the batch does not answer. In the second case it prints a warning.
pub fn create(volume: &PersistentVolume, patience: Duration) -> Option<Result<(), Failure>> {
    let address = std::env::var(VARIABLE).ok().filter(|address| !address.is_empty())?;
    ask(&address, volume, patience)
        .inspect_err(|error| {
            eprintln!("the process of the batch does not create the volume, so this one connects itself: {error}");
        })
        .ok()
}

fn ask(address: &str, volume: &PersistentVolume, patience: Duration) -> io::Result<Result<(), Failure>> {
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    let address = Address::read(address).ok_or_else(|| invalid(&format!("{VARIABLE} is not NAME:KEY")))?;
    let request = request(&address.key, patience, volume);
    if request.len() > LARGEST {
        return Err(invalid("the volume is too large"));
    }
    let mut stream = reach(&address.name)?;
    stream.write_all(request.as_bytes())?;
    stream.set_read_timeout(Some(patience.saturating_add(SLACK)))?;
    let mut line = String::new();
    BufReader::new(stream.take(LARGEST_ANSWER)).read_line(&mut line)?;
    read_answer(&line).ok_or_else(|| invalid("it gave no answer"))
}

/// Connects, and does not wait forever for a process that accepts no connection.
fn reach(name: &str) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(SLACK))?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    // The process of the batch may have ended, and a pod in the node's network shares the names with others.
    let peer = rustix::net::sockopt::socket_peercred(&socket)?;
    if peer.uid != rustix::process::geteuid() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user listens there"));
    }
    Ok(UnixStream::from(socket))
}

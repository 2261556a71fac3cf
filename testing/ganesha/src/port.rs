//! Ports for the servers of tests.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// The names of the ports of this process. The kernel takes them back at its end.
static HELD: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// Returns a port on which no process listens, and which no other call in any process gets as long as this process runs: a
/// server starts slowly, and only then takes its port. The range should be below the ports that the kernel gives to
/// connections.
pub fn free_port(range: Range<u16>) -> u16 {
    loop {
        let random = RandomState::new().build_hasher().finish();
        let offset = random % u64::from(range.end - range.start);
        let port = range.start + u16::try_from(offset).expect("less than the range");
        // The name is of the same network namespace as the port.
        let name = SocketAddr::from_abstract_name(format!("flex-test-port-{port}")).expect("a short name");
        let Ok(held) = UnixListener::bind_addr(&name) else { continue };
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            HELD.lock().unwrap_or_else(PoisonError::into_inner).push(held);
            return port;
        }
    }
}

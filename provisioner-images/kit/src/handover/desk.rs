//! The side of the batch: a socket that takes the volumes of the members.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as Listener};
use std::rc::Rc;
use std::time::Duration;

use flex_contract::batch::{self, MemberVariables};
use flex_contract::request::RunRequest;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use super::check::is_its_own;
use super::wire::{Address, LARGEST, Request, answer};
use crate::Failure;
use crate::cluster::Shared;

/// The time in which a request must arrive, and an answer be taken.
const TRANSFER: Duration = Duration::from_secs(5);
/// The number of connections at one time. More wait until they are accepted.
const MAX_OPEN: usize = 64;
/// The pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket, the client, and the members that are at work.
pub(crate) struct Desk {
    listener: UnixListener,
    name: String,
    seats: RefCell<HashMap<String, MemberVariables>>,
    cluster: Shared,
}

/// The right of a member to hand over its volume. It ends with the member.
pub(crate) struct Seat {
    desk: Rc<Desk>,
    address: Address,
}

impl Seat {
    /// Returns the value of [`VARIABLE`](super::VARIABLE) for the member.
    pub fn address(&self) -> String {
        self.address.text()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.desk.seats.borrow_mut().remove(&self.address.key);
    }
}

impl Desk {
    /// Opens the socket. It has an abstract name, because the image may have no writable place.
    pub fn open() -> io::Result<Rc<Self>> {
        let name = format!("flex-pv-{}", random()?);
        let listener = Listener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        let (seats, cluster) = (RefCell::default(), Shared::default());
        Ok(Rc::new(Self { listener: UnixListener::from_std(listener)?, name, seats, cluster }))
    }

    /// Lets a member hand over its volume.
    pub fn seat(self: &Rc<Self>, member: &MemberVariables) -> io::Result<Seat> {
        let address = Address { name: self.name.clone(), key: random()? };
        self.seats.borrow_mut().insert(address.key.clone(), member.clone());
        Ok(Seat { desk: self.clone(), address })
    }

    /// Takes volumes and creates them.
    pub async fn serve(self: &Rc<Self>) -> Infallible {
        let forever = async {
            let mut open = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = self.listener.accept(), if open.len() < MAX_OPEN => match accepted {
                        Ok((stream, _)) => drop(open.spawn_local(self.clone().attend(stream))),
                        Err(_) => sleep(PAUSE).await,
                    },
                    Some(_) = open.join_next() => {}
                }
            }
        };
        LocalSet::new().run_until(forever).await
    }

    /// Serves one connection. A connection that is not a member's gets no answer.
    async fn attend(self: Rc<Self>, mut stream: UnixStream) {
        if !is_of_this_container(&stream) {
            return;
        }
        let Ok(Ok(line)) = timeout(TRANSFER, receive(&mut stream)).await else { return };
        let Some(request) = Request::read(&line) else { return };
        drop(line);
        let Some(member) = self.seats.borrow().get(&request.key).cloned() else { return };
        let outcome = tokio::select! {
            outcome = self.create(&member, &request) => outcome,
            // The member was stopped, and its request ends with it.
            _ = stream.read_u8() => return,
        };
        let _ = timeout(TRANSFER, stream.write_all(answer(&outcome).as_bytes())).await;
    }

    async fn create(
        &self,
        member: &MemberVariables,
        Request { patience, volume, .. }: &Request,
    ) -> Result<(), Failure> {
        is_its_own(&request_of(member)?, volume)?;
        self.cluster.create(volume, *patience).await
    }
}

/// Reads the request of a member from the list of the batch and the environment of this run.
fn request_of(member: &MemberVariables) -> Result<RunRequest, Failure> {
    let of_run = |name: &str| std::env::var(name).ok().filter(|_| name != batch::VARIABLE);
    RunRequest::from_env(|name| member.get(name).cloned().or_else(|| of_run(name)))
        .map_err(|error| Failure::usage(error.to_string()))
}

/// Checks that the other end is a process of the same user, and that this container sees it. With the network of the
/// node, other containers reach the socket too.
fn is_of_this_container(stream: &UnixStream) -> bool {
    let is_ours = |uid: u32| uid == rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| is_ours(peer.uid()) && peer.pid().is_some_and(|pid| pid > 0))
}

/// Receives a line.
async fn receive(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(8 << 10);
    while line.last() != Some(&b'\n') {
        if line.len() >= LARGEST || stream.read_buf(&mut line).await? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(line)
}

/// Returns 128 random bits as text.
fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    let count = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if count < bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

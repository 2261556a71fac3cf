//! What a front and its connections share.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::address::Server;
use super::plan::State;

/// What a front and its connections share.
pub(super) struct Shared {
    /// The server.
    pub(super) server: Server,
    state: Mutex<State>,
    /// Says that an answer is held.
    pub(super) reached: Notify,
    /// Says that the plan has ended.
    pub(super) released: Notify,
}

impl Shared {
    /// Makes the common part of a front before a server.
    pub(super) fn new(server: Server) -> Arc<Self> {
        Arc::new(Shared { server, state: Mutex::default(), reached: Notify::new(), released: Notify::new() })
    }

    /// Locks the state of the plan.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that an answer is held, and waits until the plan ends.
    pub(super) async fn hold(&self) {
        let released = self.released.notified();
        self.state().held();
        self.reached.notify_one();
        released.await;
    }

    /// Connects to the server.
    pub(super) async fn connect(&self) -> io::Result<TcpStream> {
        let Server::Tcp(host, port) = &self.server else {
            return Err(io::Error::other("the server is a socket of this machine"));
        };
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

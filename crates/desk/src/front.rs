//! A front between a program and the server of its storage. It passes everything on, but where a plan lets it fail.
//!
//! A program gets the address of the front in place of the one in its parameter. Connections that speak HTTP/1 are
//! understood: each request has a number, and the front knows what the server has made. Of all other connections (TLS,
//! HTTP/2, NFS, sockets of this machine) the front sees bytes: what a client sends until the server answers counts as a
//! request.

mod address;
mod http;
mod ledger;
mod line;
mod plan;
mod shared;
mod socket;
mod values;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

pub use self::address::Wanted;
use self::address::{Address, Server};
pub use self::ledger::Ledger;
pub use self::plan::{Fault, Plan};
use self::shared::Shared;
use crate::desk::Tools;
use crate::setting::Setting;

/// The bytes by which a method of HTTP/1 is known.
const METHOD: usize = 4;
/// The beginnings of the methods of HTTP/1.
const METHODS: [&[u8; METHOD]; 7] = [b"GET ", b"PUT ", b"POST", b"HEAD", b"DELE", b"PATC", b"OPTI"];
/// The time after which a client that has sent nothing waits for its server to begin.
const SILENCE: Duration = Duration::from_millis(500);
/// The time between two looks at the first bytes.
const LOOK: Duration = Duration::from_millis(1);
/// The delay after an error that would also hit the next `accept`.
const AFTER_ERROR: Duration = Duration::from_millis(100);
/// What a front cannot do without HTTP.
const WITHOUT_HTTP: &str = "the program and its server did not speak HTTP/1 without TLS, so the front could answer no request in place of the server, and saw no objects: where it was to answer 500, it closed the line before the request";

/// A front. It ends with this value.
pub struct Front {
    shared: Arc<Shared>,
    values: Vec<(String, String)>,
    serving: JoinHandle<()>,
    socket: Option<PathBuf>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.serving.abort();
        if let Some(path) = &self.socket {
            let _ = fs::remove_file(path);
        }
    }
}

/// A plan of a front. It ends with this value: then the front passes everything on.
pub struct Armed<'a>(&'a Shared);

impl Armed<'_> {
    /// Returns the request that the fault has met, as method and path; empty if the client does not speak HTTP.
    pub fn struck(&self) -> Option<String> {
        self.0.state().struck()
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> usize {
        self.0.state().requests()
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        self.0.state().disarm();
        self.0.released.notify_waiters();
    }
}

impl Front {
    /// Starts a front before the server whose address a parameter has.
    ///
    /// # Errors
    /// If there is no such parameter, its value is no address, or this machine does not allow the front. The text names
    /// the flag.
    pub async fn start(wanted: &Wanted, setting: &Setting, tools: &Tools) -> Result<Self, String> {
        Self::begin(wanted, setting, tools).await.map_err(|why| format!("--front {wanted}: {why}"))
    }

    async fn begin(wanted: &Wanted, setting: &Setting, tools: &Tools) -> Result<Self, String> {
        let value = |name: &str| {
            let found = setting.value_of(name);
            found.ok_or_else(|| format!("neither config and class nor a Secret in the file have the parameter {name}"))
        };
        let text = value(&wanted.address)?;
        let port = wanted.port.as_deref().map(value).transpose()?;
        let address = Address::read(&text, port.as_deref())?;
        let failed = |error: io::Error| format!("the front cannot listen: {error}");
        if let Server::Unix(path) = &address.server {
            let real = socket::on_this_machine(path, setting, tools)?;
            let name = format!("flex-front-{}.sock", std::process::id());
            let own = real.with_file_name(&name);
            let listener = listening(&own).map_err(failed)?;
            let values = vec![(wanted.address.clone(), address.at_socket(&path.with_file_name(&name)))];
            let shared = Shared::new(Server::Unix(real));
            let serving = tokio::spawn(accept_local(listener, shared.clone()));
            return Ok(Front { shared, values, serving, socket: Some(own) });
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
        let number = listener.local_addr().map_err(failed)?.port();
        let mut values = vec![(wanted.address.clone(), address.at_port(number))];
        values.extend(wanted.port.iter().map(|name| (name.clone(), number.to_string())));
        let shared = Shared::new(address.server);
        let serving = tokio::spawn(accept(listener, shared.clone()));
        Ok(Front { shared, values, serving, socket: None })
    }

    /// Returns the parameters with the values that lead to the front.
    pub fn values(&self) -> &[(String, String)] {
        &self.values
    }

    /// Sets the plan, and begins to count.
    pub fn arm(&self, plan: Plan) -> Armed<'_> {
        self.shared.state().arm(plan);
        Armed(&self.shared)
    }

    /// Waits until an answer is held.
    pub async fn held(&self) {
        loop {
            let reached = self.shared.reached.notified();
            if self.shared.state().is_held() {
                return;
            }
            reached.await;
        }
    }

    /// Returns what the server has made and deleted since the last call.
    pub fn take_ledger(&self) -> Ledger {
        self.shared.state().take_ledger()
    }

    /// Says what the front could not do.
    pub fn limits(&self) -> Option<&'static str> {
        self.shared.state().has_others().then_some(WITHOUT_HTTP)
    }
}

/// Makes a socket to which each user may connect.
fn listening(path: &std::path::Path) -> io::Result<UnixListener> {
    // An earlier call may have had the same process id.
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o777))?;
    Ok(listener)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => drop(tokio::spawn(connected(client, shared.clone()))),
            Err(_) => sleep(AFTER_ERROR).await,
        }
    }
}

async fn connected(client: TcpStream, shared: Arc<Shared>) {
    let speaks_http = speaks_http(&client).await;
    shared.state().connected(speaks_http);
    if client.set_nodelay(true).is_err() {
        return;
    }
    if speaks_http {
        http::serve(client, shared).await;
    } else if let Ok(server) = shared.connect().await {
        line::serve(client, server, &shared).await;
    }
}

async fn accept_local(listener: UnixListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => drop(tokio::spawn(connected_locally(client, shared.clone()))),
            Err(_) => sleep(AFTER_ERROR).await,
        }
    }
}

async fn connected_locally(client: UnixStream, shared: Arc<Shared>) {
    let Server::Unix(path) = &shared.server else { return };
    shared.state().connected(false);
    if let Ok(server) = UnixStream::connect(path).await {
        line::serve(client, server, &shared).await;
    }
}

/// Checks whether a client begins with a request of HTTP/1. Its bytes stay to be read.
async fn speaks_http(client: &TcpStream) -> bool {
    let first = async {
        let mut bytes = [0; METHOD];
        loop {
            match client.peek(&mut bytes).await {
                Ok(METHOD) => return METHODS.iter().any(|method| **method == bytes),
                Ok(0) | Err(_) => return false,
                Ok(_) => sleep(LOOK).await,
            }
        }
    };
    timeout(SILENCE, first).await.unwrap_or(false)
}

#[cfg(test)]
#[path = "front_tests.rs"]
mod tests;

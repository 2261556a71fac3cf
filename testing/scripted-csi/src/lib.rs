//! A scripted CSI driver for tests: it returns each gRPC code, slow answers, lost answers, and wrong volumes. It only
//! remembers what it makes. Like any driver it knows volumes and snapshots by their names, and reports a name that is
//! used for two different things.

mod service;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use csi_spec::csi::controller_server::ControllerServer;
use csi_spec::csi::controller_service_capability::rpc;
use csi_spec::csi::identity_server::IdentityServer;
pub use csi_spec::csi::plugin_capability::service::Type as Offer;
use csi_spec::csi::{CreateSnapshotRequest, CreateVolumeRequest, Snapshot, Topology, Volume};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
pub use tonic::Code;
use tonic::Status;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use service::Service;

/// The properties that a driver reports.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name.
    pub name: String,
    /// The services that it offers beside its identity.
    pub services: Vec<Offer>,
    /// Whether its volumes can grow, at least on their nodes.
    pub expands: bool,
    /// The capabilities of its controller.
    pub calls: Vec<rpc::Type>,
}

impl Default for Options {
    /// Returns the options of a driver that can do everything that an image asks of it, without topology.
    fn default() -> Self {
        Options {
            name: "csi.test".into(),
            services: vec![Offer::ControllerService],
            expands: true,
            calls: vec![
                rpc::Type::CreateDeleteVolume,
                rpc::Type::CreateDeleteSnapshot,
                rpc::Type::CloneVolume,
                rpc::Type::ExpandVolume,
                rpc::Type::ModifyVolume,
                rpc::Type::GetCapacity,
                rpc::Type::ListVolumes,
            ],
        }
    }
}

impl Options {
    /// Adds topology.
    pub fn with_topology(mut self) -> Self {
        self.services.push(Offer::VolumeAccessibilityConstraints);
        self
    }

    /// Removes a call.
    pub fn without(mut self, call: rpc::Type) -> Self {
        self.calls.retain(|it| *it != call);
        self
    }
}

/// The scripted course of one call.
#[derive(Clone)]
pub enum Act {
    /// The call does nothing, and returns a code.
    Fail(Code),
    /// The call succeeds, and the answer is another one.
    Lose(Code),
    /// The call succeeds, and the answer is late.
    Slow(Duration),
    /// The answer has another volume than the one that was made.
    Twist(fn(&mut Volume)),
    /// For Probe: the driver is not ready.
    NotReady,
}

/// A call: its CSI name, with the name or id of its object.
pub type Call = (&'static str, String);

/// A volume, with its request.
#[derive(Clone, Debug)]
pub struct Made {
    /// The volume as it was returned.
    pub volume: Volume,
    /// The request that made it.
    pub request: CreateVolumeRequest,
}

/// The driver's memory.
#[derive(Default)]
struct State {
    volumes: BTreeMap<String, Made>,
    snapshots: BTreeMap<String, (Snapshot, CreateSnapshotRequest)>,
    number: usize,
    calls: Vec<Call>,
    acts: BTreeMap<&'static str, VecDeque<Act>>,
    acts_on: BTreeMap<Call, VecDeque<Act>>,
    secrets: Vec<(&'static str, BTreeMap<String, String>)>,
    location: Vec<Topology>,
    zonal: bool,
    forgets_sources: bool,
    snapshot_id: Option<String>,
    capacity: i64,
    largest: Option<i64>,
    page: usize,
    hold_answer: Option<usize>,
    answered: usize,
    held: bool,
    at_work: usize,
    most: usize,
    gathers: usize,
    connections: usize,
}

struct Shared {
    options: Options,
    state: Mutex<State>,
    release: Notify,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A driver that runs until it is dropped.
pub struct Driver {
    shared: Arc<Shared>,
    runtime: Option<tokio::runtime::Runtime>,
    at: Option<PathBuf>,
    port: u16,
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        if let Some(at) = &self.at {
            let _ = fs::remove_file(at);
        }
    }
}

/// Certificates of a driver on TCP, in PEM.
pub struct Tls {
    /// The authority of the accepted clients.
    pub authority: String,
    /// The driver's certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Driver {
    fn new(options: Options) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let state = State { capacity: 100 << 30, page: usize::MAX, ..State::default() };
        let shared = Arc::new(Shared { options, state: Mutex::new(state), release: Notify::new() });
        Driver { shared, runtime: Some(runtime.expect("a thread can be had")), at: None, port: 0 }
    }

    fn runtime(&self) -> &tokio::runtime::Runtime {
        self.runtime.as_ref().expect("the runtime exists until the drop")
    }

    /// Starts a driver on a unix socket that every user may use.
    pub fn start(options: Options, socket: &Path) -> Self {
        let mut driver = Self::new(options);
        let service = Service(driver.shared.clone());
        // No client sees the socket before it may be used.
        let hidden = socket.with_extension("hidden");
        let listener = {
            let _entered = driver.runtime().enter();
            UnixListener::bind(&hidden).expect("the socket can be made")
        };
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o777)).expect("the socket belongs to the test");
        fs::rename(&hidden, socket).expect("the socket belongs to the test");
        let server = Server::builder()
            .add_service(IdentityServer::new(service.clone()))
            .add_service(ControllerServer::new(service))
            .serve_with_incoming(UnixListenerStream::new(listener).map(driver.shared.counted()));
        driver.runtime().spawn(server);
        driver.at = Some(socket.to_owned());
        driver
    }

    /// Starts a driver on TCP that speaks only to clients of an authority.
    pub fn start_tcp(options: Options, tls: &Tls) -> Self {
        let mut driver = Self::new(options);
        let service = Service(driver.shared.clone());
        let listener = driver.runtime().block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        driver.port = listener.local_addr().expect("the listener is bound").port();
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(&tls.certificate, &tls.key))
            .client_ca_root(Certificate::from_pem(&tls.authority));
        let server = Server::builder()
            .tls_config(tls)
            .expect("the certificates are valid")
            .add_service(IdentityServer::new(service.clone()))
            .add_service(ControllerServer::new(service))
            .serve_with_incoming(TcpListenerStream::new(listener).map(driver.shared.counted()));
        driver.runtime().spawn(server);
        driver
    }

    /// Returns the port of a driver on TCP.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the course of the next calls of a kind, one after the other.
    pub fn acts(&self, call: &'static str, acts: impl IntoIterator<Item = Act>) {
        self.shared.state().acts.entry(call).or_default().extend(acts);
    }

    /// Sets the course of the next calls of a kind about one name or id.
    pub fn acts_on(&self, call: &'static str, about: &str, acts: impl IntoIterator<Item = Act>) {
        self.shared.state().acts_on.entry((call, about.to_owned())).or_default().extend(acts);
    }

    /// Forgets the courses of calls to come.
    pub fn forget_acts(&self) {
        let mut state = self.shared.state();
        state.acts.clear();
        state.acts_on.clear();
    }

    /// Sets the topology of all volumes that it makes from now on.
    pub fn is_at(&self, segments: &[&[(&str, &str)]]) {
        let segment = |pairs: &&[(&str, &str)]| Topology {
            segments: pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        };
        self.shared.state().location = segments.iter().map(segment).collect();
    }

    /// Makes it choose for each volume the first preferred topology, and look for a name there alone. Several volumes can
    /// then have one name. This breaks the rules of CSI, and drivers with one backend for each zone do so.
    pub fn is_zonal(&self) {
        self.shared.state().zonal = true;
    }

    /// Makes it forget the data source of each volume that it makes: a repeated call for a copy is then another request.
    pub fn forgets_sources(&self) {
        self.shared.state().forgets_sources = true;
    }

    /// Gives the next snapshots this id in place of one of its own.
    pub fn calls_snapshots(&self, id: &str) {
        self.shared.state().snapshot_id = Some(id.to_owned());
    }

    /// Loses all snapshots.
    pub fn loses_snapshots(&self) {
        self.shared.state().snapshots.clear();
    }

    /// Sets the capacity that it reports, and the largest size of a volume.
    pub fn has_capacity(&self, bytes: i64, largest: Option<i64>) {
        let mut state = self.shared.state();
        (state.capacity, state.largest) = (bytes, largest);
    }

    /// Makes it list its volumes in pages of this size.
    pub fn in_pages_of(&self, page: usize) {
        self.shared.state().page = page;
    }

    /// Returns all volumes by their names.
    pub fn volumes(&self) -> BTreeMap<String, Made> {
        self.shared.state().volumes.clone()
    }

    /// Makes a snapshot of a volume for another client, and returns its id.
    pub fn snapshot(&self, name: &str, volume: &str) -> String {
        let mut state = self.shared.state();
        let id = format!("snap-of-another-{}", state.snapshots.len());
        let snapshot = Snapshot {
            snapshot_id: id.clone(),
            source_volume_id: volume.to_owned(),
            ready_to_use: true,
            ..Snapshot::default()
        };
        let by = CreateSnapshotRequest { source_volume_id: volume.to_owned(), ..CreateSnapshotRequest::default() };
        state.snapshots.insert(name.to_owned(), (snapshot, by));
        id
    }

    /// Returns all snapshots by their names.
    pub fn snapshots(&self) -> BTreeMap<String, Snapshot> {
        self.shared.state().snapshots.iter().map(|(name, (it, _))| (name.clone(), it.clone())).collect()
    }

    /// Returns the calls so far, and forgets them.
    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.shared.state().calls)
    }

    /// Returns the Secrets of the calls so far, and forgets them.
    pub fn secrets(&self) -> Vec<(&'static str, BTreeMap<String, String>)> {
        std::mem::take(&mut self.shared.state().secrets)
    }

    /// Returns how many volumes were being made or deleted at one time, at most, and begins to count again.
    pub fn most_at_once(&self) -> usize {
        std::mem::take(&mut self.shared.state().most)
    }

    /// Holds the calls that make or delete volumes until so many have been at work at one time, as
    /// [`Self::most_at_once`] counts.
    pub fn gathers(&self, calls: usize) {
        self.shared.state().gathers = calls;
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.state().connections
    }

    /// Holds back the answer of this number after its call, counted from now on, or of none. A held answer is released.
    pub fn hold_answer(&self, number: Option<usize>) {
        let mut state = self.shared.state();
        (state.hold_answer, state.answered, state.held) = (number, 0, false);
        self.shared.release.notify_waiters();
    }

    /// Waits until an answer is held back.
    pub fn holds_answer(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        while Instant::now() < until {
            if self.shared.state().held {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }
}

impl Shared {
    /// Counts each connection.
    fn counted<T>(self: &Arc<Self>) -> impl FnMut(T) -> T + Send + 'static {
        let shared = self.clone();
        move |connection| {
            shared.state().connections += 1;
            connection
        }
    }

    /// Runs a call about a volume, which counts among those at one time.
    async fn call_at_work<T>(
        &self,
        call: &'static str,
        about: &str,
        work: impl FnOnce(&mut State) -> Result<T, Status>,
    ) -> Result<T, Status> {
        {
            let mut state = self.state();
            state.at_work += 1;
            state.most = state.most.max(state.at_work);
        }
        // The call ends when its caller is gone.
        let _at_work = AtWork(self);
        while !self.has_gathered() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.call(call, about, work).await
    }

    fn has_gathered(&self) -> bool {
        let state = self.state();
        state.most >= state.gathers
    }

    /// Runs a call by its scripted course.
    async fn call<T>(
        &self,
        call: &'static str,
        about: &str,
        work: impl FnOnce(&mut State) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let act = {
            let mut state = self.state();
            state.calls.push((call, about.to_owned()));
            let on = state.acts_on.get_mut(&(call, about.to_owned())).and_then(VecDeque::pop_front);
            on.or_else(|| state.acts.get_mut(call).and_then(VecDeque::pop_front))
        };
        let scripted = |code: Code| Err(Status::new(code, format!("as scripted for {call}")));
        let result = match act {
            Some(Act::Fail(code)) => scripted(code),
            Some(Act::Lose(code)) => {
                let _ = work(&mut self.state());
                scripted(code)
            }
            Some(Act::Slow(time)) => {
                let result = work(&mut self.state());
                tokio::time::sleep(time).await;
                result
            }
            Some(Act::Twist(_) | Act::NotReady) | None => work(&mut self.state()),
        };
        let released = self.release.notified();
        let held = {
            let mut state = self.state();
            state.answered += 1;
            state.held |= state.hold_answer == Some(state.answered);
            state.hold_answer == Some(state.answered)
        };
        if held {
            released.await;
        }
        result
    }
}

/// A running call among those at one time, until it is dropped.
struct AtWork<'a>(&'a Shared);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.state().at_work -= 1;
    }
}

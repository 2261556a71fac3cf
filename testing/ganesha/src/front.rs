//! A front before the server that knows the operations CLONE and COPY of NFSv4.2, and those on extended attributes, which
//! nfs-ganesha lacks for its local files. The front works on the disk below the server, and passes all other requests on.
//! All but one are passed on as they are: nfs-ganesha 4.3 refuses clients of version 4.2 that set the flag for fencing.
//!
//! A request with one of the operations names both files by handles, which only the server can read. So the front asks
//! the server for the numbers of both files in place of the operation, finds the files on the disk, copies, and answers
//! as a server with the operation would.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::Ganesha;
use crate::wire::{self, Call, Request};
use crate::xattrs::{self, Xattrs};

/// What the front does with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The front does it.
    Done,
    /// The front does it, after it has shortened the source to this size, as a pod may do meanwhile.
    Shortened(u64),
    /// The front refuses it with this status of NFSv4.
    Refused(u32),
}

/// The time within which a request that is to be held must come.
const HELD_TIMEOUT: Duration = Duration::from_secs(120);

/// The largest part that one COPY copies, as servers bound it that do not copy in the background.
const LARGEST_COPY: u64 = 1 << 20;

/// The operations that a front can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// CREATE of a directory.
    MakeDirectory,
    /// REMOVE.
    Remove,
    /// RENAME.
    Rename,
}

/// The requests that a front holds.
#[derive(Default)]
struct Hold {
    operation: Option<Operation>,
    since: Option<Instant>,
}

/// The requests with an operation, by the files and the place in the source: a client repeats a request whose answer is late.
type Counted = Mutex<HashSet<(Option<(u64, u64)>, u64)>>;

/// What all connections share.
struct Shared {
    directory: PathBuf,
    server: u16,
    clone: Answer,
    copy: Answer,
    clones: Counted,
    copies: Counted,
    hold: Mutex<Hold>,
    changed: Condvar,
    xattrs: Xattrs,
}

/// A request whose answer the front makes.
enum Asked {
    Copy(Call),
    Xattrs(xattrs::Call),
}

/// A front before a server. Its threads end with the connections.
pub struct Front {
    port: u16,
    shared: Arc<Shared>,
}

impl Front {
    /// Starts a front before a server, without extended attributes.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(server: &Ganesha, clone: Answer, copy: Answer) -> Self {
        Self::start_with(server, clone, copy, Xattrs::OfServer)
    }

    /// Starts a front before a server.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start_with(server: &Ganesha, clone: Answer, copy: Answer, xattrs: Xattrs) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound socket").port();
        let (clones, copies) = (Counted::default(), Counted::default());
        let (directory, server) = (server.directory(), server.port());
        let (hold, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { directory, server, clone, copy, clones, copies, hold, changed, xattrs });
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A client that is gone ends its connection with an error.
                let _ = serve(client, &of_thread);
            }
        });
        Self { port, shared }
    }

    /// Returns the port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Holds each request with this operation, before the server gets it, until `release`.
    ///
    /// # Panics
    /// If a thread of the front has panicked.
    pub fn hold(&self, operation: Operation) {
        self.shared.hold.lock().expect("no thread panics").operation = Some(operation);
    }

    /// Waits until a request is held.
    ///
    /// # Panics
    /// If there is none after a while.
    pub fn wait_until_held(&self) {
        let hold = self.shared.hold.lock().expect("no thread panics");
        let waited = self.shared.changed.wait_timeout_while(hold, HELD_TIMEOUT, |hold| hold.since.is_none());
        assert!(!waited.expect("no thread panics").1.timed_out(), "no request was held within {HELD_TIMEOUT:?}");
    }

    /// Passes on what is held, and holds nothing more. Returns how long the first request was held.
    ///
    /// # Panics
    /// As [`Front::hold`].
    pub fn release(&self) -> Duration {
        let held = std::mem::take(&mut *self.shared.hold.lock().expect("no thread panics"));
        self.shared.changed.notify_all();
        held.since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Returns how many requests to clone it got. A repeated request counts once.
    ///
    /// # Panics
    /// As [`Front::hold`].
    pub fn clones(&self) -> usize {
        self.shared.clones.lock().expect("no thread panics").len()
    }

    /// Returns how many requests to copy it got. A repeated request counts once.
    ///
    /// # Panics
    /// As [`Front::hold`].
    pub fn copies(&self) -> usize {
        self.shared.copies.lock().expect("no thread panics").len()
    }
}

/// The requests that wait for the server's answer, by their number.
type Waiting = Arc<Mutex<HashMap<u32, Asked>>>;

fn serve(client: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server))?;
    let waiting = Waiting::default();
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let asked = Arc::clone(&waiting);
    let of_requests = Arc::clone(shared);
    std::thread::spawn(move || {
        while let Ok(message) = wire::read_message(&mut from_client) {
            let message = wire::without_fencing(message);
            of_requests.wait_while_held(&message);
            let sent = match of_requests.request(&message) {
                Some((id, call, instead)) => {
                    asked.lock().expect("no thread panics").insert(id, call);
                    instead
                }
                None => message,
            };
            if wire::write_message(&mut to_server, &sent).is_err() {
                break;
            }
        }
        let _ = to_server.shutdown(Shutdown::Both);
    });
    let (mut from_server, mut to_client, shared) = (server, client, Arc::clone(shared));
    std::thread::spawn(move || {
        while let Ok(message) = wire::read_message(&mut from_server) {
            let id = wire::id(&message);
            let call = id.and_then(|id| waiting.lock().expect("no thread panics").remove(&id));
            let sent = match call {
                Some(Asked::Copy(call)) => shared.answer(&message, call),
                Some(Asked::Xattrs(call)) => shared.answer_xattrs(&message, &call),
                None => message,
            };
            if wire::write_message(&mut to_client, &sent).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
    Ok(())
}

impl Shared {
    /// Waits as long as the front holds the operation of a request.
    fn wait_while_held(&self, request: &[u8]) {
        let operation = match wire::operation(request) {
            Some((wire::CREATE, wire::DIRECTORY)) => Operation::MakeDirectory,
            Some((wire::REMOVE, _)) => Operation::Remove,
            Some((wire::RENAME, _)) => Operation::Rename,
            _ => return,
        };
        let mut hold = self.hold.lock().expect("no thread panics");
        while hold.operation == Some(operation) {
            hold.since.get_or_insert_with(Instant::now);
            self.changed.notify_all();
            hold = self.changed.wait(hold).expect("no thread panics");
        }
    }

    /// Reads a request that the front answers. Returns its number, and the request that the server gets instead.
    fn request(&self, message: &[u8]) -> Option<(u32, Asked, Vec<u8>)> {
        if let Some(Request { id, call, instead }) = wire::request(message) {
            return Some((id, Asked::Copy(call), instead));
        }
        if self.xattrs == Xattrs::OfServer {
            return None;
        }
        let (call, instead) = wire::of_file(message, xattrs::Call::read)?;
        Some((wire::id(message)?, Asked::Xattrs(call), instead))
    }

    /// Does an operation on extended attributes, and makes the answer from that of the server.
    fn answer_xattrs(&self, reply: &[u8], call: &xattrs::Call) -> Vec<u8> {
        let Some(number) = wire::number_of_file(reply) else { return reply.to_vec() };
        let outcome = match (self.xattrs, find(&self.directory, number)) {
            (Xattrs::Unknown(status), _) => Err(status),
            (_, Some(file)) => call.done(&file),
            (_, None) => Err(wire::IO_ERROR),
        };
        wire::reply_of_file(reply, call.operation(), outcome)
    }

    /// Does the operation, and makes the answer from that of the server.
    fn answer(&self, reply: &[u8], call: Call) -> Vec<u8> {
        let (counter, wanted) = match call.is_clone {
            true => (&self.clones, self.clone),
            false => (&self.copies, self.copy),
        };
        let files = wire::files(reply);
        counter.lock().expect("no thread panics").insert((files, call.from));
        let Some(files) = files else { return reply.to_vec() };
        let outcome = match wanted {
            Answer::Refused(status) => Err(status),
            Answer::Done => self.copied(files, &call).map_err(|_| wire::IO_ERROR),
            Answer::Shortened(size) => {
                let shortened = self.shorten(files.0, size).and_then(|()| self.copied(files, &call));
                shortened.map_err(|_| wire::IO_ERROR)
            }
        };
        wire::reply(reply, &call, outcome)
    }

    fn shorten(&self, source: u64, size: u64) -> io::Result<()> {
        let path = find(&self.directory, source).ok_or_else(|| io::Error::other("no such file"))?;
        OpenOptions::new().write(true).open(path)?.set_len(size)
    }

    /// Copies a part of a file on the disk. Returns the number of bytes.
    fn copied(&self, (source, target): (u64, u64), call: &Call) -> io::Result<u64> {
        let open = |number| find(&self.directory, number).ok_or_else(|| io::Error::other("no such file"));
        let source = File::open(open(source)?)?;
        let target = OpenOptions::new().write(true).open(open(target)?)?;
        let rest = source.metadata()?.len().saturating_sub(call.from);
        let wanted = if call.count == 0 { rest } else { call.count.min(rest) };
        let count = if call.is_clone { wanted } else { wanted.min(LARGEST_COPY) };
        let mut bytes = vec![0; usize::try_from(count).map_err(io::Error::other)?];
        source.read_exact_at(&mut bytes, call.from)?;
        target.write_all_at(&bytes, call.to)?;
        Ok(count)
    }
}

/// Finds a file or directory below a directory by its number.
fn find(directory: &Path, number: u64) -> Option<PathBuf> {
    fs::read_dir(directory).ok()?.flatten().find_map(|entry| {
        let found = entry.metadata().ok()?;
        match found.ino() == number {
            true => Some(entry.path()),
            false if found.is_dir() => find(&entry.path(), number),
            false => None,
        }
    })
}

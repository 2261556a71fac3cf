//! A proxy in front of a Cinder: it sees each call, and can interrupt one.

use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::exchange::{forward, receive};

/// A call that came through.
#[derive(Clone, Debug)]
pub struct Call {
    /// When.
    pub at: Instant,
    /// `create`, `os-reserve`, `delete`, … for those that change something; `GET …` for those that look.
    pub what: String,
    /// The path, without what stands behind a question mark.
    pub path: String,
    /// What the first digit of the answer's status says; none where there was none.
    pub status: Option<u16>,
    /// The token of whoever asks.
    pub token: Option<String>,
    /// The body of the request.
    pub body: Value,
}

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Through,
    /// Cinder gets it; its answer is lost, and whoever asked is stopped meanwhile.
    Held,
    /// Cinder does not get it.
    Status(u16, String),
}

#[derive(Default)]
struct Plan {
    /// The number of the call, from 1, that is held.
    hold: Option<usize>,
    /// Calls seen since that was set; a look that is repeated counts once.
    seen: usize,
    last: String,
    /// The statuses that the next calls of a kind get in place of an answer.
    refuse: Vec<(String, u16)>,
    /// What all calls of a kind get in place of an answer.
    answers: Vec<(String, Value)>,
}

/// A proxy.
pub struct Proxy {
    port: u16,
    calls: Arc<Mutex<Vec<Call>>>,
    plan: Arc<Mutex<Plan>>,
    held: Mutex<Receiver<Sender<()>>>,
    ended: Arc<AtomicBool>,
}

impl Proxy {
    /// Before a port of this machine, on all addresses.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start(upstream: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound socket").port();
        let (calls, plan) = (Arc::<Mutex<Vec<Call>>>::default(), Arc::<Mutex<Plan>>::default());
        let (sender, held) = channel();
        let ended = Arc::new(AtomicBool::new(false));
        let state = (calls.clone(), plan.clone(), ended.clone());
        std::thread::spawn(move || {
            let (calls, plan, ended) = state;
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let (calls, plan, sender) = (calls.clone(), plan.clone(), sender.clone());
                std::thread::spawn(move || serve(stream, upstream, &calls, &plan, &sender));
            }
        });
        Self { port, calls, plan, held: Mutex::new(held), ended }
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The calls that came through so far.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("no panic holds it").clone()
    }

    /// What changed something, in order.
    pub fn changes(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.what).filter(|what| !what.starts_with("GET")).collect()
    }

    /// Forgets the calls so far.
    pub fn forget(&self) {
        self.calls.lock().expect("no panic holds it").clear();
    }

    /// The answer to the call of this number, from 1, is held back from now on; a look that is repeated counts once. None: no
    /// more.
    pub fn hold(&self, number: Option<usize>) {
        let mut plan = self.plan.lock().expect("no panic holds it");
        (plan.hold, plan.seen, plan.last) = (number, 0, String::new());
    }

    /// Whether a call is held, for a moment. Whoever asked can be stopped now; the call ends when what is returned is dropped.
    pub fn is_held(&self, patience: Duration) -> Option<Sender<()>> {
        self.held.lock().expect("no panic holds it").recv_timeout(patience).ok()
    }

    /// The next calls of a kind get these statuses, one each, and do not reach Cinder.
    pub fn refuse(&self, what: &str, statuses: &[u16]) {
        let mut plan = self.plan.lock().expect("no panic holds it");
        plan.refuse.extend(statuses.iter().map(|status| (what.to_owned(), *status)));
    }

    /// All calls of a kind get this answer from now on, and do not reach Cinder.
    pub fn answer(&self, what: &str, body: Value) {
        self.plan.lock().expect("no panic holds it").answers.insert(0, (what.to_owned(), body));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // So that it looks.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn serve(
    mut stream: TcpStream,
    upstream: u16,
    calls: &Mutex<Vec<Call>>,
    plan: &Mutex<Plan>,
    held: &Sender<Sender<()>>,
) {
    let Some(request) = receive(&mut stream) else { return };
    let mut call = call(&request);
    let fate = fate(&mut plan.lock().expect("no panic holds it"), &call.what);
    let answer = match fate {
        Fate::Status(status, ref body) => {
            let head = "Content-Type: application/json\r\nConnection: close\r\nContent-Length";
            Some(format!("HTTP/1.1 {status} Instead\r\n{head}: {}\r\n\r\n{body}", body.len()).into_bytes())
        }
        Fate::Through | Fate::Held => forward(upstream, &request),
    };
    let status =
        |answer: &Vec<u8>| String::from_utf8_lossy(&answer[..answer.len().min(16)]).split(' ').nth(1)?.parse().ok();
    call.status = answer.as_ref().and_then(status);
    calls.lock().expect("no panic holds it").push(call);
    if fate == Fate::Held {
        let (sender, release) = channel::<()>();
        if held.send(sender).is_ok() {
            let _ = release.recv();
        }
        let _ = stream.shutdown(Shutdown::Both);
        return;
    }
    if let Some(answer) = answer {
        let _ = stream.write_all(&answer);
    }
}

fn fate(plan: &mut Plan, what: &str) -> Fate {
    if let Some(at) = plan.refuse.iter().position(|(of, _)| of == what) {
        return Fate::Status(plan.refuse.remove(at).1, String::new());
    }
    if let Some((_, body)) = plan.answers.iter().find(|(of, _)| of == what) {
        return Fate::Status(200, body.to_string());
    }
    let repeated = what.starts_with("GET") && plan.last == what;
    plan.last = what.to_owned();
    if repeated {
        return Fate::Through;
    }
    plan.seen += 1;
    if plan.hold == Some(plan.seen) { Fate::Held } else { Fate::Through }
}

fn call(request: &[u8]) -> Call {
    let text = String::from_utf8_lossy(request);
    let mut first = text.lines().next().unwrap_or_default().split(' ');
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default().to_owned();
    let body: Value =
        text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok()).unwrap_or_default();
    let token = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("x-auth-token").then(|| value.trim().to_owned())
    });
    let action = body.as_object().and_then(|body| body.keys().next().cloned());
    let what = match (method, path.rsplit('/').next().unwrap_or_default()) {
        ("POST", "action") => action.unwrap_or_default(),
        ("POST", "tokens") => "log-in".to_owned(),
        ("POST", "snapshots") => "create-snapshot".to_owned(),
        ("POST", _) => "create".to_owned(),
        ("DELETE", _) if path.contains("/snapshots/") => "delete-snapshot".to_owned(),
        ("DELETE", _) => "delete".to_owned(),
        (method, last) => format!("{method} {last}"),
    };
    Call { at: Instant::now(), what, path, status: None, token, body }
}

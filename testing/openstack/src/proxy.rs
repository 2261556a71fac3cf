//! A proxy before a Cinder: it records each call, and can interrupt one.

use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::exchange::{forward, receive};

/// A recorded call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The time of the call.
    pub at: Instant,
    /// `create`, `os-reserve`, `delete`, … for calls that change something; `GET …` for those that read.
    pub what: String,
    /// The path, without the query.
    pub path: String,
    /// The answer's status, or `None` without an answer.
    pub status: Option<u16>,
    /// The token of the sender.
    pub token: Option<String>,
    /// The body of the request.
    pub body: Value,
}

/// The course of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Through,
    /// Cinder gets the call; its answer is lost, and the sender is killed meanwhile.
    Held,
    /// Cinder does not get it.
    Status(u16, String),
}

#[derive(Default)]
struct Plan {
    /// The number of the call, from 1, whose answer is held back.
    hold_answer: Option<usize>,
    /// The calls since that was set; a repeated read counts once.
    count: usize,
    last: String,
    /// The statuses and bodies that the next calls of a kind get in place of Cinder's.
    next: Vec<(String, u16, String)>,
    /// The answers that all calls of a kind get in place of Cinder's.
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
    /// Starts a proxy before a port of this machine, on all addresses.
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

    /// Returns the port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("no code panics while it holds the lock").clone()
    }

    /// Returns the calls that changed something, in their order.
    pub fn changes(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.what).filter(|what| !what.starts_with("GET")).collect()
    }

    /// Forgets the calls so far.
    pub fn forget(&self) {
        self.calls.lock().expect("no code panics while it holds the lock").clear();
    }

    /// Holds back the answer to the call of this number, counted from 1 from now on; a repeated read counts once.
    /// `None` ends this.
    pub fn hold_answer(&self, number: Option<usize>) {
        let mut plan = self.plan.lock().expect("no code panics while it holds the lock");
        (plan.hold_answer, plan.count, plan.last) = (number, 0, String::new());
    }

    /// Waits a moment for a held call, and returns it. The sender can be killed now; the call ends when the returned
    /// value is dropped.
    pub fn held_answer(&self, patience: Duration) -> Option<Sender<()>> {
        self.held.lock().expect("no code panics while it holds the lock").recv_timeout(patience).ok()
    }

    /// Answers the next calls of a kind with these statuses, one each; they do not reach Cinder.
    pub fn refuse(&self, what: &str, statuses: &[u16]) {
        let mut plan = self.plan.lock().expect("no code panics while it holds the lock");
        plan.next.extend(statuses.iter().map(|status| (what.to_owned(), *status, String::new())));
    }

    /// Answers the next call of a kind with this body; it does not reach Cinder.
    pub fn answer_once(&self, what: &str, body: &Value) {
        let mut plan = self.plan.lock().expect("no code panics while it holds the lock");
        plan.next.push((what.to_owned(), 200, body.to_string()));
    }

    /// Answers all calls of a kind with this body from now on; they do not reach Cinder.
    pub fn answer(&self, what: &str, body: Value) {
        self.plan.lock().expect("no code panics while it holds the lock").answers.insert(0, (what.to_owned(), body));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the thread, which then checks the flag.
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
    let fate = fate(&mut plan.lock().expect("no code panics while it holds the lock"), &call.what);
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
    calls.lock().expect("no code panics while it holds the lock").push(call);
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
    if let Some(at) = plan.next.iter().position(|(of, ..)| of == what) {
        let (_, status, body) = plan.next.remove(at);
        return Fate::Status(status, body);
    }
    if let Some((_, body)) = plan.answers.iter().find(|(of, _)| of == what) {
        return Fate::Status(200, body.to_string());
    }
    let repeated = what.starts_with("GET") && plan.last == what;
    plan.last = what.to_owned();
    if repeated {
        return Fate::Through;
    }
    plan.count += 1;
    if plan.hold_answer == Some(plan.count) { Fate::Held } else { Fate::Through }
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

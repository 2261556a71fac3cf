//! The process of one member of a batch.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::time::Duration;

use flex_contract::batch::{self, MemberVariables};
use flex_contract::exit;
use flex_contract::names::TERMINATION_MESSAGE;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use super::command::{Each, cannot_start, not_started};
use crate::Failure;
use crate::batch::Stop;
use crate::handover::{self, Desk, Seat};
use crate::secrets::Secrets;
use crate::termination_message::PATH_VARIABLE;

/// The time that a process has to stop after SIGTERM. It is less than the kubelet gives to all of them.
const GRACE: Duration = Duration::from_secs(5);
/// The time for which the output of an ended process is read. A process that it started may still hold the output open.
const DRAIN: Duration = Duration::from_millis(500);
/// The number of characters at the end of the output that count as last words.
const MAX_MESSAGE: usize = 600;
/// The number of bytes of the output that are kept. A secret that begins before the last words is recognised only as a
/// whole.
const MAX_OUTPUT: usize = 16 << 10;

/// Runs the command for a member.
///
/// # Errors
/// If the member fails, with its exit code and last words.
pub(super) async fn run(
    each: &Each,
    number: usize,
    member: &MemberVariables,
    desk: Option<&Rc<Desk>>,
    stop: Stop,
) -> Result<(), Failure> {
    let program = &each.command[0];
    let no_process = |error: io::Error| Failure { code: not_started(&error), message: cannot_start(program, &error) };
    // The file is only in memory, because the image may have no writable place.
    let texts = File::from(memfd_create("words", MemfdFlags::CLOEXEC).map_err(|error| no_process(error.into()))?);
    let seat = desk.map(|desk| desk.seat(member)).transpose().map_err(no_process)?;
    let Started { mut output, mut child } = start(each, member, seat.as_ref(), &texts).map_err(no_process)?;
    let mut log = Log { number, line: Vec::new(), end: Vec::new() };
    let ended = attend(each, &mut child, &mut output, &mut log, stop).await;
    while let Ok(Ok(true)) = timeout(DRAIN, log.follow(&mut output)).await {}
    log.print();
    let Ended { status, stopped_for } =
        ended.map_err(|error| Failure::retry(format!("its end was missed: {error}")))?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    if code == exit::OK {
        return Ok(());
    }
    let said =
        text(&read(&texts)).or_else(|| Some(end(&Secrets::of_this_run().mask(&text(&log.end)?)))).unwrap_or_default();
    match stopped_for {
        Some(limit) => {
            let message = format!("it took longer than {} s and was stopped; its last words: ", limit.as_secs());
            Err(Failure::retry(message + if said.is_empty() { "none" } else { &said }))
        }
        None => Err(Failure { code, message: said }),
    }
}

/// A process that was started.
struct Started {
    output: pipe::Receiver,
    child: Child,
}

/// The end of a process.
struct Ended {
    status: ExitStatus,
    /// The time limit, if the process exceeded it.
    stopped_for: Option<Duration>,
}

fn start(each: &Each, member: &MemberVariables, seat: Option<&Seat>, texts: &File) -> io::Result<Started> {
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(&each.command[0]);
    command
        .args(&each.command[1..])
        .env_remove(batch::VARIABLE)
        .env_remove(handover::VARIABLE)
        .envs(member)
        .envs(seat.map(|seat| (handover::VARIABLE, seat.address())))
        .env(PATH_VARIABLE, format!("/proc/{}/fd/{}", std::process::id(), texts.as_raw_fd()))
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    // The ends for writing are closed here too, so that the output ends with its writers.
    let child = command.spawn()?;
    Ok(Started { output: pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?, child })
}

/// Waits for the end of the process, and follows the output. Stops the process with all its children at its time limit
/// or at the signal to stop.
async fn attend(
    each: &Each,
    child: &mut Child,
    output: &mut pipe::Receiver,
    log: &mut Log,
    mut stop: Stop,
) -> io::Result<Ended> {
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    // A process that has just ended cannot be stopped, and need not be.
    let kill = |signal| group.map(|group| kill_process_group(group, signal).is_ok());
    let (mut open, mut asked, mut too_long) = (true, false, None);
    let mut due = each.limit.map(|limit| Instant::now() + limit);
    loop {
        let time_is_up = async move {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = child.wait() => return Ok(Ended { status: status?, stopped_for: too_long }),
            more = log.follow(output), if open => open = more.unwrap_or(false),
            () = stop.told(), if !asked => {
                kill(Signal::TERM);
                (asked, due) = (true, Some(Instant::now() + GRACE));
            }
            () = time_is_up => {
                let (signal, next) = if asked { (Signal::KILL, None) } else { (Signal::TERM, Some(Instant::now() + GRACE)) };
                too_long = if asked { too_long } else { each.limit };
                kill(signal);
                (asked, due) = (true, next);
            }
        }
    }
}

/// The output of one process on its way to the common log, each line with the member's number.
struct Log {
    number: usize,
    line: Vec<u8>,
    end: Vec<u8>,
}

impl Log {
    /// Reads the available output. Returns whether more may follow.
    async fn follow(&mut self, output: &mut pipe::Receiver) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        let count = output.read(&mut bytes).await?;
        for part in bytes[..count].split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") || self.line.len() >= bytes.len() {
                self.print();
            }
        }
        self.end.extend_from_slice(&bytes[..count]);
        self.end.drain(..self.end.len().saturating_sub(MAX_OUTPUT));
        Ok(count > 0)
    }

    fn print(&mut self) {
        if !self.line.is_empty() {
            let text = String::from_utf8_lossy(&self.line);
            // As one text it is one call of the system.
            let line = format!("[{}] {}\n", self.number, text.trim_end_matches('\n'));
            eprint!("{line}");
            self.line.clear();
        }
    }
}

/// Reads the last words that were left. The reader's position in the file differs from that of the writers.
fn read(texts: &File) -> Vec<u8> {
    let mut bytes = vec![0; TERMINATION_MESSAGE];
    let count = texts.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(count);
    bytes
}

/// Returns the last [`MAX_MESSAGE`] characters of a text.
fn end(text: &str) -> String {
    let skipped = text.chars().count().saturating_sub(MAX_MESSAGE);
    text.chars().skip(skipped).collect()
}

fn text(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

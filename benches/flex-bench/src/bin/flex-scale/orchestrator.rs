//! The orchestrator as a process of this machine, and the resources that it uses.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use flex_bench::machine::Process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// The name of the replica in its Lease.
pub const REPLICA: &str = "bench";
/// The time limit of a start.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// A running orchestrator; it is killed when this is dropped.
pub struct Orchestrator {
    child: Child,
    /// The address of its status page.
    pub page: SocketAddr,
    /// Its process.
    pub process: Process,
    /// The time from the start of the process until its report that it is ready.
    pub ready_after: Duration,
}

impl Orchestrator {
    /// Starts it, and waits until it is ready.
    ///
    /// # Errors
    /// It ends, or is not ready in time; its log says why.
    pub async fn start(program: &Path, kubeconfig: &Path, namespaces: (&str, &str), log: PathBuf) -> Result<Self> {
        let (address, page) = (free_address()?, free_address()?);
        let file = fs::File::options().create(true).append(true).open(&log).context("create a log")?;
        let began = Instant::now();
        let child = Command::new(program)
            .args(["--namespace", namespaces.0, "--config-namespace", namespaces.1, "--replica", REPLICA])
            .args(["--admin-address", &address.to_string(), "--status-address", &page.to_string()])
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let pid = child.id().context("it ended at once")?;
        let mut orchestrator = Orchestrator { child, page, process: Process { pid }, ready_after: Duration::ZERO };
        while !is_ready(address).await {
            if let Some(status) = orchestrator.child.try_wait()? {
                bail!("the orchestrator ended: {status}; see {}", log.display());
            }
            if began.elapsed() > READY_TIMEOUT {
                bail!("the orchestrator is not ready after {READY_TIMEOUT:?}; see {}", log.display());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        orchestrator.ready_after = began.elapsed();
        Ok(orchestrator)
    }

    /// Stops it as Kubernetes does, so that the next one leads at once.
    ///
    /// # Errors
    /// It does not end well.
    pub async fn stop(mut self) -> Result<()> {
        let signalled = std::process::Command::new("kill").arg(self.process.pid.to_string()).status()?;
        let ended = self.child.wait().await?;
        if signalled.success() && ended.success() { Ok(()) } else { bail!("the orchestrator ended with {ended}") }
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?.local_addr()?)
}

async fn is_ready(address: SocketAddr) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    ask.await.is_ok_and(|answer| answer.split(' ').nth(1) == Some("200"))
}

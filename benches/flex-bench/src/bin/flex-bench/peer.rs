//! Another provisioner on the same cluster: an external provisioner that is on this machine, with the CSI driver of the
//! tests.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use cluster::{ClientLimits, Cluster};
use flex_bench::machine::Process;
use flex_bench::many::within;
use flex_bench::objects;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::bursts::{Bench, Burst};

/// The class that the peer serves.
const CLASS: &str = "bench-peer";
/// The name of the CSI driver.
const DRIVER: &str = "bench.csi.flex-provisioner.io";

/// The programs of the peer.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The external provisioner.
    pub provisioner: PathBuf,
    /// The CSI driver of the tests, as `testing/csi-driver/build.sh` builds it.
    pub driver: PathBuf,
}

/// The peer, while it runs. Both programs end with this value.
struct Peer {
    provisioner: Child,
    driver: Child,
    directory: TempDir,
    programs: Programs,
}

/// Measures a burst of claims that the peer provisions and deletes.
///
/// # Errors
/// A program does not start or ends early, the claims are not done in time, or the driver still has a volume after that.
pub async fn measure(bench: &Bench<'_>, cluster: &Cluster, programs: &Programs, count: usize) -> Result<Burst> {
    let mut peer = Peer::start(cluster, programs).await?;
    objects::apply(
        &bench.client,
        &json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": CLASS },
            "provisioner": DRIVER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
        }),
    )
    .await?;
    let process = Process { pid: peer.provisioner.id().context("the peer has ended")? };
    let name = format!("peer-{count}");
    let measured = tokio::select! {
        measured = bench.claims_of(process, &name, "claims of the peer", CLASS, count) => measured,
        error = peer.ended() => Err(error),
    };
    let remaining = peer.volumes().await;
    peer.stop().await?;
    let measured = measured?;
    ensure!(remaining? == 0, "the peer has left volumes in its backend");
    Ok(measured)
}

impl Peer {
    async fn start(cluster: &Cluster, programs: &Programs) -> Result<Self> {
        let directory = TempDir::with_prefix("flex-bench-peer-").context("create a directory for the peer")?;
        let socket = directory.path().join("csi.sock");
        let endpoint = format!("unix://{}", socket.display());
        let data = directory.path().join("data").display().to_string();
        let serve = ["serve", "--name", DRIVER, "--data", &data, "--endpoint", &endpoint];
        let driver = started(&programs.driver, &serve.map(str::to_owned), &directory.path().join("driver.log"))?;
        let listens = async {
            while !socket.exists() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        };
        within(Duration::from_secs(30), "the CSI driver listens", listens).await?;
        let mut arguments = vec![
            format!("--kubeconfig={}", cluster.kubeconfig().display()),
            format!("--csi-address={}", socket.display()),
        ];
        if cluster.limits() == ClientLimits::Raised {
            arguments.extend(["--kube-api-qps=1000".to_owned(), "--kube-api-burst=1000".to_owned()]);
        }
        let provisioner = started(&programs.provisioner, &arguments, &directory.path().join("provisioner.log"))?;
        Ok(Peer { provisioner, driver, directory, programs: programs.clone() })
    }

    /// Waits until one of the programs ends, which is an error.
    async fn ended(&mut self) -> anyhow::Error {
        let (name, status) = tokio::select! {
            status = self.provisioner.wait() => ("provisioner", status),
            status = self.driver.wait() => ("driver", status),
        };
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let log = std::fs::read_to_string(self.directory.path().join(format!("{name}.log"))).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(5).collect();
        anyhow!("the peer's {name} has ended ({status}); its last lines, the newest first:\n{}", last.join("\n"))
    }

    /// Counts the volumes of the backend.
    async fn volumes(&self) -> Result<usize> {
        let output = Command::new(&self.programs.driver)
            .arg("list")
            .arg("--data")
            .arg(self.directory.path().join("data"))
            .output()
            .await?;
        ensure!(output.status.success(), "the CSI driver cannot list: {}", String::from_utf8_lossy(&output.stderr));
        let listing: Value = serde_json::from_slice(&output.stdout).context("read the list of the CSI driver")?;
        Ok(listing["volumes"].as_array().map_or(0, Vec::len))
    }

    async fn stop(mut self) -> Result<()> {
        self.provisioner.kill().await.context("end the peer's provisioner")?;
        self.driver.kill().await.context("end the peer's driver")?;
        self.directory.close().context("remove the directory of the peer")
    }
}

/// Starts a program that writes into a log file.
fn started(program: &Path, arguments: &[String], log: &Path) -> Result<Child> {
    let output = std::fs::File::create(log).with_context(|| format!("create {}", log.display()))?;
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {}", program.display()))
}

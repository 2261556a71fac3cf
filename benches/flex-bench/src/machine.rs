//! The machine below the cluster: its directories, its processes, and its hardware.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Serialize;

/// Returns the path of a cluster's containerd socket.
pub fn containerd_socket(cluster: &str) -> String {
    format!("/run/flex-cluster/{cluster}/containerd.sock")
}

/// Returns the names in a directory; none if it does not exist.
///
/// # Errors
/// If it cannot be read.
pub fn names_in(directory: &Path) -> Result<BTreeSet<String>> {
    match fs::read_dir(directory) {
        Ok(entries) => {
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<Result<_>>()
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error).with_context(|| format!("read {}", directory.display())),
    }
}

/// The first process of a container.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
}

impl Process {
    /// Finds the process by its control group, whose name contains the container's.
    ///
    /// # Errors
    /// If there is none.
    pub fn of_container(id: &str) -> Result<Self> {
        let numbers = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers
            .filter(|pid: &u32| fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(id)))
            .min()
            .map(|pid| Process { pid })
            .with_context(|| format!("no process of container {id}"))
    }

    /// Returns its peak resident memory, in bytes.
    ///
    /// # Errors
    /// If it has ended.
    pub fn peak_memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).context("the process has ended")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("VmHWM is not a number")?;
        Ok(kib * 1024)
    }

    /// Resets [`Process::peak_memory`] to the present resident memory.
    ///
    /// # Errors
    /// If it has ended, or belongs to another user.
    pub fn forget_peak(&self) -> Result<()> {
        fs::write(format!("/proc/{}/clear_refs", self.pid), "5").context("reset the peak of a process's memory")
    }

    /// Returns its processor time so far, to the microsecond. Ended threads are not counted.
    ///
    /// # Errors
    /// If it has ended.
    pub fn processor_time(&self) -> Result<Duration> {
        let mut all = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.pid)).context("the process has ended")? {
            // The first number is the time on a processor in nanoseconds.
            let text = fs::read_to_string(task?.path().join("schedstat")).context("read schedstat")?;
            all += text.split_whitespace().next().context("an empty schedstat")?.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(all))
    }

    /// Returns the processor time of the process and of its ended children, to 10 ms.
    ///
    /// # Errors
    /// If it has ended.
    pub fn used_with_children(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).context("the process has ended")?;
        crate::profile::parse_process(&stat).context("/proc/…/stat is not as expected")
    }

    /// Returns when it began, to about 20 ms.
    ///
    /// # Errors
    /// If it has ended.
    pub fn began(&self) -> Result<Timestamp> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).context("the process has ended")?;
        // The second field is the program's name in brackets, which may contain anything.
        let fields = stat.rsplit_once(')').context("/proc/…/stat is not as expected")?.1;
        let ticks: f64 = fields.split_whitespace().nth(19).context("no start time")?.parse()?;
        let uptime = fs::read_to_string("/proc/uptime")?;
        let now = Timestamp::now();
        let uptime: f64 = uptime.split_whitespace().next().context("no uptime")?.parse()?;
        Ok(now - Duration::from_secs_f64((uptime - ticks / 100.0).max(0.0)))
    }
}

/// The machine of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// The number of cores.
    pub cores: usize,
    /// Memory, in GiB.
    pub memory_gib: u64,
    /// The operating system.
    pub system: String,
    /// The kernel.
    pub kernel: String,
    /// The load before: the mean number of processes that wanted to run, in the last minute.
    pub load_before: String,
    /// containerd's version.
    pub containerd: String,
    /// etcd's version.
    pub etcd: String,
}

impl Machine {
    /// Returns this machine.
    pub fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, key: &str, separator: char| {
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(separator).map_or("unknown", |(_, value)| value.trim().trim_matches('"')).to_owned()
        };
        let kib = after(&read("/proc/meminfo"), "MemTotal", ':');
        Machine {
            processor: after(&read("/proc/cpuinfo"), "model name", ':'),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            memory_gib: kib.trim_end_matches(" kB").parse::<u64>().unwrap_or(0).div_ceil(1024 * 1024),
            system: after(&read("/etc/os-release"), "PRETTY_NAME", '='),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_before: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
            // `containerd github.com/containerd/containerd VERSION …` and `etcd Version: VERSION`.
            containerd: first_line(&["containerd", "--version"]).split(' ').nth(2).unwrap_or("unknown").to_owned(),
            etcd: first_line(&["etcd", "--version"]).split(' ').nth(2).unwrap_or("unknown").to_owned(),
        }
    }
}

/// Returns the state of the project: its commit, and whether there are changes beside it.
pub fn commit() -> String {
    let changes = first_line(&["git", "status", "--porcelain"]);
    let beside = if changes.is_empty() { "" } else { " with changes" };
    first_line(&["git", "rev-parse", "--short=12", "HEAD"]) + beside
}

/// Returns the first line that a program prints; empty if it prints none, or does not run.
pub fn first_line(command: &[&str]) -> String {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

//! The use of the processors during a burst: it shows what limits the rate on a busy machine.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::machine::Process;

/// The kernel counts a process's time in hundredths of a second.
const TICKS: f64 = 100.0;
/// The files with the time of a control group and all below it: version 1, in nanoseconds.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct"];
/// The orchestrator's name in a profile.
pub const ORCHESTRATOR: &str = "orchestrator";

/// The measured processes.
#[derive(Clone, Debug)]
pub struct Watched {
    processes: Vec<(String, Process)>,
    pods: Option<PathBuf>,
}

/// The time that each process had used at one moment, in seconds.
#[derive(Clone, Debug)]
pub struct Sample {
    at: Instant,
    processes: Vec<f64>,
    pods: f64,
    busy: f64,
    stolen: f64,
}

/// The use of the processors between two moments.
#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    /// The time between, in seconds.
    pub seconds: f64,
    /// The number of processors.
    pub cores: usize,
    /// The processor time of each process in seconds, the most first.
    pub used: Vec<(String, f64)>,
    /// The unused time, in seconds.
    pub idle: f64,
}

impl Watched {
    /// Measures processes by name, and with the name of a whole cluster its pods as well.
    pub fn new(mut processes: Vec<(String, Process)>, cluster: Option<&str>) -> Self {
        processes.push(("the benchmark itself".into(), Process { pid: std::process::id() }));
        let group = |cluster| {
            let files = GROUPS.map(|group| PathBuf::from(format!("{group}/flex-cluster-{cluster}/cpuacct.usage")));
            files.into_iter().find(|file| file.exists())
        };
        Watched { processes, pods: cluster.and_then(group) }
    }

    /// Returns the present times.
    ///
    /// # Errors
    /// A process has ended.
    pub fn sample(&self) -> Result<Sample> {
        let used = |(name, process): &(String, Process)| {
            process.used_with_children().map(|time| time.as_secs_f64()).with_context(|| format!("the time of {name}"))
        };
        let pods = match &self.pods {
            Some(file) => fs::read_to_string(file).context("the time of the pods")?.trim().parse::<f64>()? / 1e9,
            None => 0.0,
        };
        let (busy, stolen) = machine()?;
        let processes = self.processes.iter().map(used).collect::<Result<_>>()?;
        Ok(Sample { at: Instant::now(), processes, pods, busy, stolen })
    }

    /// Returns the use since then.
    ///
    /// # Errors
    /// A process has ended.
    pub fn since(&self, before: &Sample) -> Result<Profile> {
        let now = self.sample()?;
        let seconds = (now.at - before.at).as_secs_f64();
        let names = self.processes.iter().map(|(name, _)| name.clone());
        let times = now.processes.iter().zip(&before.processes).map(|(now, before)| now - before);
        let mut used: Vec<(String, f64)> = names.zip(times).collect();
        if self.pods.is_some() {
            // The orchestrator is a pod, too, and has a row of its own.
            let orchestrator = used.iter().find(|(name, _)| name == ORCHESTRATOR).map_or(0.0, |(_, time)| *time);
            used.push(("images, and all other pods".into(), (now.pods - before.pods - orchestrator).max(0.0)));
        }
        let known: f64 = used.iter().map(|(_, time)| time).sum();
        let busy = now.busy - before.busy;
        let rest = if self.pods.is_some() { "all else: shims, runc, the kernel" } else { "all else" };
        used.push((rest.into(), (busy - known).max(0.0)));
        let stolen = now.stolen - before.stolen;
        if stolen > 0.0 {
            used.push(("taken by the machine's host".into(), stolen));
        }
        used.sort_by(|a, b| b.1.total_cmp(&a.1));
        let cores = std::thread::available_parallelism().map_or(1, Into::into);
        let idle = (seconds * cores as f64 - busy.max(known) - stolen).max(0.0);
        let round = |time: f64| (time * 100.0).round() / 100.0;
        used.iter_mut().for_each(|(_, time)| *time = round(*time));
        Ok(Profile { seconds: round(seconds), cores, used, idle: round(idle) })
    }
}

impl Profile {
    /// Returns the percentage of the machine's time.
    pub fn percent(&self, time: f64) -> f64 {
        100.0 * time / (self.seconds * self.cores as f64).max(f64::MIN_POSITIVE)
    }

    /// Returns the time that one of them has used.
    pub fn of(&self, name: &str) -> Option<f64> {
        self.used.iter().find(|(used, _)| used == name).map(|(_, time)| *time)
    }
}

/// Returns the machine's busy time since its start, and the time that its host took, in seconds.
fn machine() -> Result<(f64, f64)> {
    let text = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    parse_machine(text.lines().next().unwrap_or_default()).context("/proc/stat is not as expected")
}

/// Parses a line `cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …`.
fn parse_machine(line: &str) -> Option<(f64, f64)> {
    let numbers: Vec<f64> = line.strip_prefix("cpu ")?.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let at = |n: usize| numbers.get(n).map(|ticks| ticks / TICKS);
    Some((at(0)? + at(1)? + at(2)? + at(5)? + at(6)?, at(7)?))
}

/// Returns the time in a line of `/proc/PID/stat`, with that of ended children that were waited for.
pub(crate) fn parse_process(stat: &str) -> Option<Duration> {
    // The second field is the program's name in brackets, which may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_secs_f64(ticks as f64 / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_from_the_files_of_the_kernel() {
        assert_eq!(parse_machine("cpu  100 200 300 4000 5000 600 700 800 0 0"), Some((19.0, 8.0)));
        assert_eq!(parse_machine("cpu0 1"), None);
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 11 22 33 44 20 0 1 0 100 1 2";
        assert_eq!(parse_process(stat), Some(Duration::from_millis(1100)));
        assert_eq!(parse_process("7"), None);
    }

    #[test]
    fn the_parts_of_a_profile_add_up_to_the_machine() {
        let watched = Watched::new(Vec::new(), None);
        let before = watched.sample().unwrap();
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            std::hint::black_box(0);
        }
        let profile = watched.since(&before).unwrap();
        assert!(profile.of("the benchmark itself").is_some_and(|time| time > 0.1), "{profile:?}");
        let all: f64 = profile.used.iter().map(|(_, time)| time).sum::<f64>() + profile.idle;
        assert!(profile.percent(all) > 80.0, "{profile:?}");
    }
}

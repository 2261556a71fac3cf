//! The metrics that are measured when somebody asks for them.

use std::collections::BTreeMap;
use std::fs;

use flex_core::claim::progress::{Progress, progress};
use flex_core::config::classes::ClassLookup;

use crate::metrics::{ProcessUse, Waiting};
use crate::reconcile::Context;

/// The unit of times in `/proc/PID/stat`, in one second. Linux has the same on all machines.
const TICKS: f64 = 100.0;

/// Measures what the state of this process tells, and returns all metrics in the text format of Prometheus.
pub fn text(context: &Context) -> String {
    measure(context);
    context.metrics.text()
}

fn measure(context: &Context) {
    let now = context.clock.now();
    let mut claims: BTreeMap<(String, Progress), Waiting> = BTreeMap::new();
    let mut runs: BTreeMap<String, i64> = BTreeMap::new();
    let mut outages = Vec::new();
    {
        let index = context.cluster.index();
        let classes = index.classes();
        for class in classes.iter() {
            outages.extend(index.outages_of(&class.name).into_iter().map(|operation| (class.name.clone(), operation)));
        }
        for claim in index.unsettled_claims() {
            let progress = progress(&claim);
            let Some(class) = claim.class.as_deref() else { continue };
            if progress.is_bound() || !matches!(classes.lookup(class), ClassLookup::Ours(_)) {
                continue;
            }
            let waiting = claims.entry((class.to_owned(), progress)).or_default();
            waiting.claims += 1;
            waiting.oldest = waiting.oldest.max(now - claim.created);
        }
        for job in index.jobs().filter(|job| !job.is_over) {
            *runs.entry(job.run_labels.operation.to_string()).or_default() += 1;
        }
    }
    context.metrics.in_progress(claims, runs);
    context.metrics.outages(outages);
    context.metrics.queue_depth.set(i64::try_from(context.cluster.queue.depth()).unwrap_or(i64::MAX));
    if let Some(used) = used_by_process() {
        context.metrics.process(used);
    }
}

/// Reads what this process uses. Returns `None` where the system does not tell.
fn used_by_process() -> Option<ProcessUse> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    Some(ProcessUse {
        resident: resident_bytes(&fs::read_to_string("/proc/self/status").ok()?)?,
        processor: processor_seconds(&stat)?,
        files: i64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).unwrap_or(i64::MAX),
    })
}

/// Returns the memory by `/proc/PID/status`, which has it in KiB whatever the size of a page.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes.saturating_mul(1024))
}

/// Returns the seconds on processors by `/proc/PID/stat`. The name of the program, in parentheses, may have spaces.
fn processor_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks = |at: usize| rest.split_whitespace().nth(at)?.parse::<u32>().ok();
    Some((f64::from(ticks(11)?) + f64::from(ticks(12)?)) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_on_processors_is_read_behind_the_name_of_the_program() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 100 1 1";
        assert_eq!(processor_seconds(stat), Some(3.0));
        assert_eq!(processor_seconds("7 (a"), None);
        assert_eq!(processor_seconds("7 (a) S 1"), None);
    }

    #[test]
    fn memory_is_read_in_kibibytes() {
        assert_eq!(resident_bytes("VmPeak:\t  9 kB\nVmRSS:\t   2048 kB\n"), Some(2 << 20));
        assert_eq!(resident_bytes("VmRSS:\t 2048\n"), None);
        assert_eq!(resident_bytes(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_tells_what_this_process_uses() {
        let used = used_by_process().unwrap();
        assert!(used.resident > 1024 && used.files > 0, "{used:?}");
    }
}

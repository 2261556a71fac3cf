//! What was measured, for people and for programs.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use flex_bench::timeline::Step;

use crate::bursts::Burst;
use crate::run::{Case, Results};

/// Writes `results.json` and `results.md`.
pub fn write(results: &Results, out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    for (file, text) in
        [("results.json", serde_json::to_string_pretty(results)? + "\n"), ("results.md", markdown(results))]
    {
        let path = out.join(file);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// The value that so many percent are not above.
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

/// The results as a table.
pub fn table(results: &Results) -> String {
    let mut text = String::from("| | measured | p50 | p90 | max |\n|---|---|---|---|---|\n");
    for case in &results.cases {
        let Case { what, measured, p50, p90, max, .. } = case;
        let _ = writeln!(text, "| {what} | {measured} | {p50:.0} ms | {p90:.0} ms | {max:.0} ms |");
    }
    text
}

/// Many at one time.
pub fn bursts(results: &Results) -> String {
    let mut text = String::from(
        "| at one time | of them | until the last | a second | p50 | p99 | deleted a second |\n|---|---|---|---|---|---|---|\n",
    );
    for burst in &results.bursts {
        let Burst { what, count, seconds, per_second, p50, p99, deleted_per_second } = burst;
        let deleted = deleted_per_second.map_or_else(String::new, |rate| format!("{rate:.1}"));
        let _ = writeln!(
            text,
            "| {what} | {count} | {seconds:.1} s | {per_second:.1} | {p50:.0} ms | {p99:.0} ms | {deleted} |"
        );
    }
    text
}

/// Where the time of a case goes: the median of each step, and of what it took after the one before it.
fn steps(case: &Case) -> String {
    let at = |step: Step| -> Vec<f64> {
        case.runs.iter().filter_map(|run| run.iter().find(|(s, _)| *s == step)).map(|(_, at)| *at).collect()
    };
    let mut medians: Vec<(Step, f64)> = Step::ALL
        .into_iter()
        .map(|step| (step, at(step)))
        .filter(|(_, at)| !at.is_empty())
        .map(|(step, at)| (step, percentile(&at, 50)))
        .collect();
    medians.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut text = format!("### {}\n\n| step | p50 | after the one before |\n|---|---|---|\n", case.what);
    let mut before = 0.0;
    for (step, at) in medians {
        let _ = writeln!(text, "| {} | {at:.0} ms | {:.0} ms |", step.words(), at - before);
        before = at;
    }
    text
}

fn markdown(results: &Results) -> String {
    let machine = &results.machine;
    let runs = results.cases.first().map_or(0, |case| case.total.len());
    let details: Vec<String> = results.cases.iter().map(steps).collect();
    format!(
        "# One claim on an idle cluster\n\nWritten by `make bench`; `results.json` has every single value.\n\n{}\n\
         ## Many at one time\n\n\
         All claims (pods) are created at once, from 32 connections. A claim is done when its watch says Bound, a pod when \
         it is reported Succeeded. Deletion is of all claims at once, until the last volume is gone. Each once.\n\n{}\n\
         ## Where the time goes\n\n\
         Medians, since the creation of the claim (Job, pod). Between *pod scheduled* and *sandbox begun* the kubelet \
         waits for the pod's volumes, at which it looks every 300 ms; the token of a ServiceAccount is such a volume, so \
         nearly every pod pays for it. *Sandbox runs* and *container runs* are containerd's and runc's work. *Reported* \
         comes so late because the kubelet looks at ended containers once a second; nothing of ours waits for it.\n\n{}\n\
         ## Machine and method\n\n\
         - {}, {} cores, {} GiB; {}, Linux {}; load {} before the run.\n\
         - Kubernetes {} as in `tests/cluster`, all components and their limits at their defaults, one node, etcd's \
         data in memory; containerd {}, etcd {}.\n\
         - flex-provisioner at commit {}, deployed by `deploy/kustomize`. {}.\n\
         - Each {runs} times, in turns, one at a time; the first of each does not count. After each all of it is \
         deleted, and nothing of it is left before the next begins.\n\
         - The time begins just before the request that creates the claim is sent. API objects: when a watch told of \
         them. Containers: containerd's own times. All clocks are one machine's.\n",
        table(results),
        bursts(results),
        details.join("\n"),
        machine.processor,
        machine.cores,
        machine.memory_gib,
        machine.system,
        machine.kernel,
        machine.load_before,
        results.kubernetes,
        machine.containerd,
        machine.etcd,
        results.commit,
        results.date,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!([50, 90, 100].map(|percent| percentile(&values, percent)), [10.0, 18.0, 20.0]);
        assert_eq!(percentile(&[7.0], 50), 7.0);
    }
}

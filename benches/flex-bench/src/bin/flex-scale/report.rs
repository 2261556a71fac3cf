//! The report of the measurements, for people and for programs.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use flex_bench::audit::{self, Who};
use flex_bench::plot::{self, Series};
use flex_bench::show;
use serde::Serialize;
use serde_json::json;

use crate::plane::How;
use crate::policies::Comparison;
use crate::scale::{Burst, Results};

/// A target of a value.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// The name of the value.
    pub what: String,
    /// The largest allowed value.
    pub bound: f64,
    /// The measured value, if there is one.
    pub measured: Option<f64>,
    /// The unit of both.
    pub unit: &'static str,
}

impl Target {
    fn verdict(&self) -> &'static str {
        match self.measured {
            None => "not measured",
            Some(measured) if measured <= self.bound => "met",
            Some(_) => "**missed**",
        }
    }
}

/// Writes `scale.json`, `scale.md` and the plots.
pub fn write(results: &Results, out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    let all = json!({ "targets": targets(results), "results": results });
    for (file, text) in [("scale.json", show::json(&all)?), ("scale.md", markdown(results))] {
        let path = out.join(file);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    let series = |value: &dyn Fn(&Burst) -> f64| -> Vec<Series> {
        let of = |how: How| Series {
            name: how.describe().to_owned(),
            points: of_kind(results, how).map(|burst| (burst.claims as f64, value(burst))).collect(),
        };
        [of(How::Batches), of(How::Each)].into_iter().filter(|series| !series.points.is_empty()).collect()
    };
    let cost = series(&|burst| burst.cpu_ms_per_claim);
    let title = "CPU of the orchestrator for a claim, by the size of the burst";
    plot::by_size(&out.join("scale-cpu.svg"), title, "milliseconds", &cost, Some(("target", 2.0)))?;
    let asked = series(&|burst| own_requests(burst));
    let title = "Requests by orchestrator and image for a claim, by the size of the burst";
    plot::by_size(&out.join("scale-requests.svg"), title, "requests", &asked, None)?;
    let memory = series(&|burst| burst.peak_mib);
    let title = "Memory of the orchestrator, by the size of the burst";
    plot::by_size(&out.join("scale-memory.svg"), title, "MiB", &memory, None)
}

/// Writes `policies.json` and `policies.md`.
pub fn write_comparison(comparison: &Comparison, out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    for (file, text) in [("policies.json", show::json(&json!(comparison))?), ("policies.md", comparison.table())] {
        let path = out.join(file);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Returns all printed tables.
pub fn tables(results: &Results) -> String {
    format!(
        "{}\n{}\n{}\n{}\n{}",
        target_table(results),
        bursts(results),
        memory(results),
        requests(results),
        profiles(results)
    )
}

fn of_kind(results: &Results, how: How) -> impl Iterator<Item = &Burst> {
    results.bursts.iter().filter(move |burst| burst.how == how)
}

/// Returns the burst of 1,000 claims, or the largest below.
fn typical(results: &Results, how: How) -> Option<&Burst> {
    of_kind(results, how).filter(|burst| burst.claims <= 1_000).max_by_key(|burst| burst.claims)
}

fn own_requests(burst: &Burst) -> f64 {
    audit::of(&burst.requests, Who::Orchestrator) + audit::of(&burst.requests, Who::Image)
}

fn targets(results: &Results) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut target = |what: String, bound, measured, unit| targets.push(Target { what, bound, measured, unit });
    for (how, most) in [(How::Batches, 7.0), (How::Each, 11.0)] {
        let burst = typical(results, how);
        let size = burst.map_or_else(String::new, |burst| format!(", of {}", show::number(burst.claims)));
        let texts = how.describe();
        let what = format!("requests by orchestrator and image for a claim, {texts}{size}");
        target(what, most, burst.map(own_requests), "");
        if how == How::Batches {
            let measured = burst.map(|burst| audit::of(&burst.requests, Who::ControllerManager));
            target(format!("requests by the controller manager for a claim, {texts}{size}"), 3.0, measured, "");
            let measured = burst.map(|burst| audit::of(&burst.deletion_requests, Who::Orchestrator));
            target(format!("requests by the orchestrator for a deletion, {texts}{size}"), 3.5, measured, "");
        }
        let measured = burst.map(|burst| burst.cpu_ms_per_claim);
        target(format!("CPU of the orchestrator for a claim, {texts}{size}"), 2.0, measured, " ms");
        let at = |size| of_kind(results, how).find(|burst| burst.claims == size).map(|burst| burst.cpu_ms_per_claim);
        let measured = at(10_000).and_then(|many| Some(many / at(10)?));
        target(format!("the same with 10,000 waiting, divided by that with 10, {texts}"), 1.5, measured, "");
    }
    for how in [How::Batches, How::Wide] {
        let found = results.in_flight.iter().find(|found| found.how == how);
        let many = show::number(found.map_or(1_000, |found| found.claims));
        let what = format!("peak memory with {many} claims in progress, {}", how.describe());
        target(what, 25.0, found.map(|found| found.peak_mib.max(found.peak_when_bound_mib)), " MiB");
    }
    let standing = results.standing.as_ref();
    let many = show::number(standing.map_or(50_000, |standing| standing.claims));
    let peak = standing.map(|standing| standing.peak_mib);
    target(format!("peak memory after a start among {many} claims and volumes"), 80.0, peak, " MiB");
    let ready = standing.map(|standing| standing.ready_s);
    target(format!("ready after a start among {many} claims and volumes"), 5.0, ready, " s");
    targets
}

fn target_table(results: &Results) -> String {
    let mut text = String::from("| | target | measured | |\n|---|---|---|---|\n");
    for target in targets(results) {
        let Target { what, bound, measured, unit } = &target;
        let measured = measured.map_or_else(String::new, |measured| format!("{measured:.2}{unit}"));
        let _ = writeln!(text, "| {what} | ≤ {bound}{unit} | {measured} | {} |", target.verdict());
    }
    text
}

fn bursts(results: &Results) -> String {
    let mut text = String::from(
        "| claims at once | | all bound after | a second | p50 | p99 | CPU for each | CPU for its deletion | peak memory |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for burst in &results.bursts {
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} s | {:.1} | {:.1} s | {:.1} s | {:.2} ms | {:.2} ms | {:.1} MiB |",
            show::number(burst.claims),
            burst.how.describe(),
            burst.seconds,
            burst.claims as f64 / burst.seconds,
            burst.latency.p50 / 1000.0,
            burst.latency.p99 / 1000.0,
            burst.cpu_ms_per_claim,
            burst.cpu_ms_per_deletion,
            burst.peak_mib,
        );
    }
    text
}

fn memory(results: &Results) -> String {
    let mut text = String::new();
    for found in &results.in_flight {
        let _ = writeln!(
            text,
            "With {} claims in progress, {}: {:.1} MiB at most; {:.1} MiB until all are bound.\n",
            show::number(found.claims),
            found.how.describe(),
            found.peak_mib,
            found.peak_when_bound_mib
        );
    }
    if let Some(standing) = &results.standing {
        let _ = writeln!(
            text,
            "A process that starts among {} bound claims and as many volumes is ready after {:.2} s.\n\
             Until half a minute later it uses at most {:.1} MiB, and {:.2} s of CPU.",
            show::number(standing.claims),
            standing.ready_s,
            standing.peak_mib,
            standing.cpu_s
        );
    }
    if let Some(drain) = &results.drain {
        let rate = |seconds: f64| drain.volumes as f64 / seconds;
        let _ = writeln!(
            text,
            "\n{} volumes were made in batches in {:.0} s ({:.1} a second), and deleted at once in {:.0} s ({:.1} a second).  \n\
             Meanwhile {} claims arrived, one a second, each with a pod: they were bound after {:.2} s (p50) and {:.2} s (p99). \
             Without other work, it was {:.2} s and {:.2} s.",
            show::number(drain.volumes),
            drain.made_s,
            rate(drain.made_s),
            drain.deleted_s,
            rate(drain.deleted_s),
            drain.arrived,
            drain.during.p50 / 1000.0,
            drain.during.p99 / 1000.0,
            drain.quiet.p50 / 1000.0,
            drain.quiet.p99 / 1000.0,
        );
        let _ = writeln!(text, "\n| stage of a claim that arrived meanwhile | p50 | p99 |\n|---|---|---|");
        for (stage, took) in &drain.stages {
            let _ = writeln!(text, "| {stage} | {:.2} s | {:.2} s |", took.p50 / 1000.0, took.p99 / 1000.0);
        }
    }
    text
}

fn heading(burst: &Burst) -> String {
    format!("{}, {}", show::number(burst.claims), burst.how.describe())
}

fn requests(results: &Results) -> String {
    let made = results.bursts.iter().map(|burst| (heading(burst), burst.requests.as_slice()));
    let gone = results.bursts.iter().map(|burst| (heading(burst) + ", deletion", burst.deletion_requests.as_slice()));
    let mut text = show::requests(made.chain(gone));
    for how in [How::Batches, How::Each] {
        if let Some(burst) = typical(results, how) {
            let _ = write!(text, "\n{}", show::each_request(&heading(burst), &burst.requests));
            let gone = heading(burst) + ", deletion";
            let _ = write!(text, "\n{}", show::each_request(&gone, &burst.deletion_requests));
        }
    }
    text
}

fn profiles(results: &Results) -> String {
    show::profiles(results.bursts.iter().map(|burst| (heading(burst), &burst.profile)))
}

fn markdown(results: &Results) -> String {
    let machine = &results.machine;
    format!(
        "# Many claims\n\nWritten by `make bench`; `scale.json` has the values.\n\n{}\n{}\n\
         ![CPU for a claim](scale-cpu.svg)\n\n![Requests for a claim](scale-requests.svg)\n\n![Memory](scale-memory.svg)\n\n\
         {}\n## Requests\n\n{}\n## Use of the processors\n\n{}\n\
         ## Machine and method\n\n\
         - {}, {} cores, {} GiB; {}, Linux {}; load {} before the run.\n\
         - The control plane is that of `testing/cluster` without nodes, with raised client limits of the controller \
         manager and etcd's data in memory.\n  \
           The node is simulated: it takes each pod, creates its PersistentVolumes and reports its end at once, so that \
         the times are those of the control plane.\n  \
           With a pod each, 50 claims are in progress at one time (`max-in-flight`); in batches, up to 250 in each batch \
         and 1,000 at one time.\n  \
           A batch has claims that are created within a second.\n\
         - CPU is the processor time of the orchestrator's process from the first claim to a second after the last run \
         was deleted; memory is its largest resident size.\n  \
           Each row has a process of its own, and rows of fewer than {TOGETHER} claims are the mean of several bursts.\n\
         - Requests are counted in the API server's audit log in the same time; Leases are left out, events are included.\n  \
           Requests of the kubelet are those of the simulated node, and others are those of this program.\n\
         - For the memory with many claims in progress, the node is paused until there are pods for all claims.\n\
         - For the start among many claims, these claims and volumes are copies of a claim and volume that were bound \
         before.\n  \
           Nothing else runs.\n\
         - flex-provisioner at commit {}. {}.\n",
        target_table(results),
        bursts(results),
        memory(results),
        requests(results),
        profiles(results),
        machine.processor,
        machine.cores,
        machine.memory_gib,
        machine.system,
        machine.kernel,
        machine.load_before,
        results.commit,
        results.date,
        TOGETHER = crate::scale::TOGETHER,
    )
}

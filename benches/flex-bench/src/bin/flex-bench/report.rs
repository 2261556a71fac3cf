//! The report of the measurements, for people and for programs.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use cluster::ClientLimits;
use flex_bench::peers::PEERS;
use flex_bench::statistics::percentile;
use flex_bench::timeline::Step;
use flex_bench::{plot, show};
use serde_json::json;

use crate::bursts::{Burst, Cost};
use crate::run::{Case, Results};

/// Writes `results.json`, `results.md` and the plots.
pub fn write(results: &Results, out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    for (file, text) in [("results.json", show::json(&json!(results))?), ("results.md", markdown(results))] {
        let path = out.join(file);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    for burst in claims(results) {
        let title = format!("{} {}", show::number(burst.count), burst.what);
        let mut curves = vec![("Bound".to_owned(), burst.done.clone())];
        if let Some(deletion) = &burst.deletion {
            curves.push(("deleted, since the first deletion".to_owned(), deletion.done.clone()));
        }
        plot::done_over_time(&out.join(file(burst)), &title, &curves, &PEERS)?;
    }
    let measured = results.bursts.iter().map(|burst| (heading(burst), burst.per_second, burst.cost.is_some()));
    let theirs = PEERS.map(|peer| (peer.name.to_owned(), peer.per_second, false));
    let bars: Vec<_> = measured.chain(theirs).collect();
    plot::bars(&out.join("rates.svg"), "Claims bound, or pods run, in a second", "a second", &bars)
}

/// Returns all printed tables.
pub fn tables(results: &Results) -> String {
    format!(
        "{}\n{}\n{}\n{}\n{}\n{}",
        singles(results),
        bursts(results),
        costs(results),
        pv_sync(results),
        requests(results),
        profiles(results)
    )
}

fn claims(results: &Results) -> impl Iterator<Item = &Burst> {
    results.bursts.iter().filter(|burst| burst.cost.is_some())
}

fn heading(burst: &Burst) -> String {
    format!("{} {}", show::number(burst.count), burst.what)
}

fn file(burst: &Burst) -> String {
    format!("burst-{}.svg", burst.name)
}

/// Prints the single claims.
fn singles(results: &Results) -> String {
    let mut text = String::from("| | measured | times | p50 | p90 | p99 | max |\n|---|---|---|---|---|---|---|\n");
    let cases = results.cases.iter().map(|case| (case.what, case.measured, &case.latency, case.total.len()));
    let what = "a claim of a class with a filled pool";
    let hits = results.hits.iter().map(|hits| (what, "claim created → Bound", &hits.latency, hits.total.len()));
    for (what, measured, latency, times) in cases.chain(hits) {
        let [p50, p90, p99, max] =
            [latency.p50, latency.p90, latency.p99, latency.max].map(|millis| format!("{millis:.0} ms"));
        let _ = writeln!(text, "| {what} | {measured} | {times} | {p50} | {p90} | {p99} | {max} |");
    }
    text
}

/// Prints the bursts, beside the machine's limits.
fn bursts(results: &Results) -> String {
    let limits = &results.machine_limits;
    let mut text = String::from(
        "| at one time | until the last | a second | p50 | p90 | p99 | max | relative to bare pods | deleted a second |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for burst in &results.bursts {
        let Burst { seconds, per_second, latency, deletion, .. } = burst;
        let [p50, p90, p99, max] =
            [latency.p50, latency.p90, latency.p99, latency.max].map(|millis| format!("{:.1} s", millis / 1000.0));
        let deleted = deletion.as_ref().map_or_else(String::new, |deletion| format!("{:.1}", deletion.per_second));
        let _ = writeln!(
            text,
            "| {} | {seconds:.1} s | {per_second:.1} | {p50} | {p90} | {p99} | {max} | {:.2} | {deleted} |",
            heading(burst),
            per_second / limits.pods,
        );
    }
    let _ = writeln!(text, "\nThe API server stores {:.0} objects a second.", limits.writes);
    text.push_str(&beside_peer(results));
    match &results.hits {
        Some(hits) => {
            let _ = writeln!(text, "A pool was filled with {:.1} volumes a second.", hits.filled_per_second);
        }
        None => text.push_str("Pools were not measured.\n"),
    }
    text
}

/// Prints the bursts of the peer beside those of the same size in batches. Empty without a peer.
fn beside_peer(results: &Results) -> String {
    let named = |name: String| results.bursts.iter().find(|burst| burst.name == name);
    let deleted = |burst: &Burst| burst.deletion.as_ref().map_or(f64::NAN, |deletion| deletion.per_second);
    let mut rows = String::new();
    for theirs in results.bursts.iter().filter(|burst| burst.name.starts_with("peer-")) {
        let Some(ours) = named(format!("batches-{}", theirs.count)) else { continue };
        let rates = [("bound", ours.per_second, theirs.per_second), ("deleted", deleted(ours), deleted(theirs))];
        for (what, ours, by_peer) in rates {
            let (count, ratio) = (show::number(theirs.count), ours / by_peer);
            let _ = writeln!(rows, "| {count} claims {what} | {ours:.1} | {by_peer:.1} | {ratio:.2} |");
        }
    }
    match rows.is_empty() {
        true => rows,
        false => format!("\n| in a second | flex-provisioner | the peer | ratio |\n|---|---|---|---|\n{rows}"),
    }
}

/// Prints the cost of claims.
fn costs(results: &Results) -> String {
    let mut text = String::from(
        "| for each | writes | share of the API server's limit | CPU of the provisioner | its peak memory |\n\
         |---|---|---|---|---|\n",
    );
    let mut row = |name: String, cost: &Cost, per_second: f64| {
        let Cost { cpu_ms, peak_mib, writes, .. } = cost;
        let share = 100.0 * writes * per_second / results.machine_limits.writes;
        let _ = writeln!(text, "| {name} | {writes:.1} | {share:.0} % | {cpu_ms:.2} ms | {peak_mib:.1} MiB |");
    };
    for burst in claims(results) {
        if let Some(cost) = &burst.cost {
            row(heading(burst), cost, burst.per_second);
        }
        if let Some(deletion) = &burst.deletion {
            row(heading(burst) + ", deletion", &deletion.cost, deletion.per_second);
        }
    }
    text
}

/// Prints how long the volumes of each burst waited for the PV controller.
fn pv_sync(results: &Results) -> String {
    let mut text = String::from("| volumes of | that waited | p50 | p99 |\n|---|---|---|---|\n");
    let millis = |value: Option<f64>| value.map_or_else(String::new, |millis| format!("{millis:.0} ms"));
    for burst in claims(results) {
        // A peer adopts no volume.
        if let Some(Cost { pv_sync, .. }) = &burst.cost
            && pv_sync.volumes > 0.0
        {
            let (p50, p99) = (millis(pv_sync.p50_ms), millis(pv_sync.p99_ms));
            let _ = writeln!(text, "| {} | {:.0} | {p50} | {p99} |", heading(burst), pv_sync.volumes);
        }
    }
    text
}

fn requests(results: &Results) -> String {
    let made = claims(results).filter_map(|burst| Some((heading(burst), burst.cost.as_ref()?.requests.as_slice())));
    let gone = claims(results)
        .filter_map(|burst| Some((heading(burst) + ", deletion", burst.deletion.as_ref()?.cost.requests.as_slice())));
    let mut text = show::requests(made.chain(gone));
    // The largest of the bursts in batches: the others are like it.
    let batches = claims(results).filter(|burst| burst.name.starts_with("batches")).last();
    for burst in [claims(results).next(), batches].into_iter().flatten() {
        if let Some(cost) = &burst.cost {
            let _ = write!(text, "\n{}", show::each_request(&heading(burst), &cost.requests));
        }
        if let Some(deletion) = &burst.deletion {
            let gone = heading(burst) + ", deletion";
            let _ = write!(text, "\n{}", show::each_request(&gone, &deletion.cost.requests));
        }
    }
    text
}

fn profiles(results: &Results) -> String {
    let made = results.bursts.iter().map(|burst| (heading(burst), &burst.profile));
    let gone =
        claims(results).filter_map(|burst| Some((heading(burst) + ", deletion", &burst.deletion.as_ref()?.profile)));
    show::profiles(made.chain(gone))
}

/// Prints how the time of a case is spent: the median of each step, and its distance from the step before.
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
    let mut text = format!("### {}\n\n| step | p50 | since the step before |\n|---|---|---|\n", case.what);
    let mut before = 0.0;
    for (step, at) in medians {
        let _ = writeln!(text, "| {} | {at:.0} ms | {:.0} ms |", step.describe(), at - before);
        before = at;
    }
    text
}

fn markdown(results: &Results) -> String {
    let machine = &results.machine;
    let details: Vec<String> = results.cases.iter().map(steps).collect();
    let plots: Vec<String> = claims(results).map(|burst| format!("![{}]({})\n", heading(burst), file(burst))).collect();
    let limits = match results.limits {
        ClientLimits::Default => "all components and their limits at their defaults",
        ClientLimits::Raised => {
            "controller manager, scheduler and kubelet with 1,000 requests a second instead of their defaults"
        }
    };
    format!(
        "# Speed\n\nWritten by `make bench`; `results.json` has every single value.\n\n\
         ## One claim on an idle cluster\n\n{}\n\
         ## Many at one time\n\n\
         All objects are created at once, from {WRITERS} connections.\n\
         A claim is done when its watch shows Bound, a pod when it is reported Succeeded, a Job when its pod is.\n\
         Then all claims are deleted at once; the deletion is done when the last volume is gone.\n\
         Each burst runs once, and begins when nothing of the last one is left.\n\n{}\n\
         ![Claims in a second](rates.svg)\n\n{}\n\
         ### Cost of each claim\n\n\
         The cost is counted until no run is left.\n\
         Writes are those of all clients but this program, in the API server's audit log.\n\
         Their share of the limit is that at the rate of the burst.\n\n{}\n\
         ### Waits for the PV controller\n\n\
         A claim is not bound before the PV controller knows its volume.\n\
         The time runs from the adoption of a volume until the controller has shown that; \
         it comes from the buckets of the metric `flex_pv_sync_duration_seconds`.\n\n{}\n\
         ### Requests\n\n\
         These are the requests in the audit log in the same time.\n\
         Leases are left out, because their renewal follows the clock; events are included.\n\
         Others are this program, the API server itself, and a peer.\n\n{}\n\
         ### Use of the processors\n\n\
         The times are those of `/proc`, from the first creation until the last is done.\n\
         If no time is idle, the machine bounds the rate; if much is idle, limits and waits do.\n\n{}\n\
         ## Steps of one claim\n\n\
         The times are medians since the creation of the claim (Job, pod).\n\
         Between *pod scheduled* and *sandbox begun* the kubelet waits for the pod's volumes, which it checks every 300 ms.\n\
         The token of a ServiceAccount is such a volume, so nearly every pod waits.\n\
         *Sandbox runs* and *container runs* are the work of containerd and runc.\n\
         *Reported* is late because the kubelet checks ended containers once a second; the orchestrator does not wait \
         for it.\n\n{}\n\
         ## Machine and method\n\n\
         - {}, {} cores, {} GiB; {}, Linux {}; load {} before the run.\n\
         - Kubernetes {} as in `testing/cluster`, {limits}, one node, etcd's data in memory; containerd {}, etcd {}.\n\
         - flex-provisioner at commit {}, deployed by `deploy/kustomize`. {}.\n\
         - Single claims, Jobs and pods are measured in turn, one at a time; the first of each does not count.\n  \
           Each is deleted, and nothing of it is left before the next begins.\n  \
           With fewer than 100 values p99 is the largest.\n\
         - The time begins just before the request that creates the claim is sent.\n  \
           Times of API objects are those at which a watch showed them; times of containers are containerd's own.\n  \
           All clocks belong to one machine.\n\
         - A batch has at most 250 claims that are created within a second, and 1,000 claims are in progress at one time.\n  \
           The image's program makes one volume, and `flex-pv each --jobs 4` runs it for each claim.\n\
         - A pool is full before its claims are created, and is not filled again meanwhile.\n\
         - The API server's limit is measured with small ConfigMaps, created from as many connections.\n\
         - Memory is the provisioner's largest resident size during the burst.\n\
         - The peer, if there is one, is the program of `PEER`, with the CSI driver of the tests on the same machine.\n  \
           The peer runs only during its own bursts. With raised limits it may send 1,000 requests a second.\n\
         - The rates of other provisioners are those of bursts on clusters of this kind: external-provisioner with its \
         own limits and the given ones of the controller manager, and local-path-provisioner.\n",
        singles(results),
        bursts(results),
        plots.join("\n"),
        costs(results),
        pv_sync(results),
        requests(results),
        profiles(results),
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
        WRITERS = flex_bench::many::WRITERS,
    )
}

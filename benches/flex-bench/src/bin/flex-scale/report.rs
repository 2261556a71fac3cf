//! What was measured, for people and for programs.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::scale::Results;

/// Writes `scale.json` and `scale.md`.
pub fn write(results: &Results, out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    for (file, text) in [("scale.json", serde_json::to_string_pretty(results)? + "\n"), ("scale.md", markdown(results))]
    {
        let path = out.join(file);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// The results as tables.
pub fn table(results: &Results) -> String {
    let mut text = String::from(
        "| claims at once | all bound after | a second | CPU for each | CPU for its deletion | peak memory |\n|---|---|---|---|---|---|\n",
    );
    for burst in &results.bursts {
        let _ = writeln!(
            text,
            "| {} | {:.1} s | {:.1} | {:.2} ms | {:.2} ms | {:.1} MiB |",
            burst.claims,
            burst.seconds,
            burst.claims as f64 / burst.seconds,
            burst.cpu_ms_per_claim,
            burst.cpu_ms_per_deletion,
            burst.peak_mib,
        );
    }
    let requests = &results.requests;
    let _ = writeln!(
        text,
        "\nRequests for a claim until it is bound, in the mean of {}: {:.1} by the orchestrator (events included), {:.1} by the controller manager.",
        requests.claims, requests.orchestrator, requests.controller_manager
    );
    if let Some(standing) = &results.standing {
        let _ = writeln!(
            text,
            "\nStarted among {} bound claims and as many volumes: ready after {:.2} s; by half a minute later {:.1} MiB at most, {:.2} s of CPU.",
            standing.claims, standing.ready_s, standing.peak_mib, standing.cpu_s
        );
    }
    text
}

fn markdown(results: &Results) -> String {
    let machine = &results.machine;
    format!(
        "# Many claims\n\nWritten by `make bench`; `scale.json` has the values.\n\n{}\n\
         ## Machine and method\n\n\
         - {}, {} cores, {} GiB; {}, Linux {}; load {} before the run.\n\
         - The control plane of `tests/cluster` without nodes, the controller manager's client limits raised, etcd's data in \
         memory. The node is simulated: it takes each pod, creates its PersistentVolume and reports its end at once, so \
         that the times are those of the control plane. A pod and a Job for each claim, 50 at one time (`max-in-flight`).\n\
         - CPU is what the kernel counted for the orchestrator's process from the first claim to 2 s after the last was \
         bound; memory its largest resident size. A process of its own for each row.\n\
         - Requests are counted in the API server's audit log, in a run of its own.\n\
         - Those among which it is started are copies of a claim and volume that were bound before, and nobody else is at work.\n\
         - flex-provisioner at commit {}. {}.\n",
        table(results),
        machine.processor,
        machine.cores,
        machine.memory_gib,
        machine.system,
        machine.kernel,
        machine.load_before,
        results.commit,
        results.date,
    )
}

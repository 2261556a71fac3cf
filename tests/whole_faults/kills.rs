//! The processes that are killed during a burst of claims.

use std::fs;
use std::time::{Duration, Instant};

use cluster::Component;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::ListParams;

use crate::alone;
use crate::burst::{Log, Runs, burst, mark};
use crate::processes::{of_script, sandbox_of};
use orchestrator::deployed::{kill, orchestrator_pid};
use orchestrator::dice::Dice;
use orchestrator::ring::{OWN, Ring};
use orchestrator::wait::{GUARD, unexpected, until};

/// How long a process is killed again and again: longer than claims are created.
const WHILE: Duration = Duration::from_secs(25);
/// The least number of kills of the orchestrator.
const KILLS: i32 = 5;
/// The least number of kills of images.
const IMAGES: usize = 8;

/// Whether a disturbance goes on: for a while, and on a busy machine until it has done what the test is about.
fn goes_on(began: Instant, is_enough: bool) -> bool {
    began.elapsed() < WHILE || !is_enough && began.elapsed() < GUARD
}

fn seed() -> u64 {
    std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(u64::from(std::process::id()))
}

/// Returns the orchestrator's process, and the number of restarts of its container. The status of a pod is behind its
/// processes, whose control groups name their containers.
async fn orchestrator(ring: &Ring) -> (i32, i32) {
    let pods_of_orchestrator = ListParams::default().labels("app.kubernetes.io/name=flex-provisioner");
    until("one orchestrator runs", || async {
        let pods = ring.api::<Pod>(OWN).list(&pods_of_orchestrator).await.map_err(|error| error.to_string())?.items;
        let containers =
            |pod: &Pod| pod.status.clone().and_then(|status| status.container_statuses).unwrap_or_default();
        let pid = orchestrator_pid();
        let group = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()).unwrap_or_default();
        let is_its = |container: &ContainerStatus| {
            let id = container.container_id.as_deref().and_then(|id| id.strip_prefix("containerd://"));
            id.is_some_and(|id| group.contains(id))
        };
        match (pods.as_slice(), pid) {
            ([pod], Some(pid)) => match containers(pod).into_iter().find(is_its) {
                Some(container) => Ok((pid, container.restart_count)),
                None => unexpected((pid, &pod.status)),
            },
            (pods, pid) => unexpected((pods.len(), pid)),
        }
    })
    .await
}

#[tokio::test]
async fn claims_survive_repeated_kills_of_the_orchestrator() {
    let (_turn, ring) = alone("kill-orchestrator").await;
    kill_orchestrators(&ring, Runs::Own).await;
}

/// Claims are collected in memory, and Jobs have several of them.
#[tokio::test]
async fn batches_survive_repeated_kills_of_the_orchestrator() {
    let (_turn, ring) = alone("kill-amid-batches").await;
    kill_orchestrators(&ring, Runs::Shared).await;
}

async fn kill_orchestrators(ring: &Ring, runs: Runs) {
    let seed = seed();
    let (_, before) = orchestrator(ring).await;
    // The list of a batch is open for seconds in one process alone.
    let least = if runs == Runs::Own { Duration::from_millis(500) } else { Duration::from_secs(3) };
    let disturb = |mut log: Log| async move {
        let (mut dice, began) = (Dice::of(seed, 0, "orchestrator"), Instant::now());
        while goes_on(began, log.done.len() as i32 >= KILLS) {
            tokio::time::sleep(least + dice.time(Duration::from_secs(3))).await;
            let pid =
                until("the orchestrator runs again", || async { orchestrator_pid().ok_or("not yet".into()) }).await;
            kill(pid);
            log.note(format!("killed the orchestrator, process {pid}"));
        }
        log
    };
    burst(ring, runs, seed, disturb).await;
    let (_, restarts) = orchestrator(ring).await;
    assert!(restarts >= before + KILLS, "only {} restarts", restarts - before);
}

#[tokio::test]
async fn claims_survive_kills_of_images_at_any_moment() {
    let (_turn, ring) = alone("kill-images").await;
    let (seed, adoption_mark) = (seed(), mark("kill-images"));
    let before = orchestrator(&ring).await;
    let disturb = |mut log: Log| {
        let ring = &ring;
        async move {
            let (mut dice, began) = (Dice::of(seed, 0, "images"), Instant::now());
            while goes_on(began, log.done.len() >= IMAGES) {
                tokio::time::sleep(dice.time(Duration::from_millis(1200))).await;
                let running = of_script(&adoption_mark);
                if running.is_empty() {
                    add_claim_after_burst(ring, &mut log, began).await;
                    continue;
                }
                let image = &running[dice.roll(running.len() as u64) as usize];
                kill_if_there(image.pid);
                log.note(format!("killed an image, process {}, one of {}", image.pid, running.len()));
            }
            assert!(log.done.len() >= IMAGES, "only {} images were killed", log.done.len());
            log
        }
    };
    burst(&ring, Runs::Own, seed, disturb).await;
    assert_eq!(orchestrator(&ring).await, before, "the orchestrator was not restarted");
}

#[tokio::test]
async fn claims_survive_kills_of_shims_sandboxes_and_the_kubelet() {
    let (_turn, ring) = alone("kill-node").await;
    let (seed, adoption_mark) = (seed(), mark("kill-node"));
    let before = orchestrator(&ring).await;
    let disturb = |mut log: Log| {
        let ring = &ring;
        async move {
            let (mut dice, began) = (Dice::of(seed, 0, "node"), Instant::now());
            let (mut shims, mut sandboxes, mut kubelets) = (0, 0, 0);
            while goes_on(began, shims >= 2 && sandboxes >= 2 && kubelets == 2) {
                tokio::time::sleep(dice.time(Duration::from_millis(1500))).await;
                if kubelets < 2 && began.elapsed() > WHILE / 3 * (kubelets + 1) {
                    ring.cluster().kill(Component::Kubelet).await.unwrap();
                    log.note("killed the kubelet");
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    ring.cluster().restart(Component::Kubelet).await.unwrap();
                    log.note("the kubelet is back");
                    kubelets += 1;
                }
                let running = of_script(&adoption_mark);
                let Some(image) = running.first() else {
                    add_claim_after_burst(ring, &mut log, began).await;
                    continue;
                };
                if shims <= sandboxes {
                    kill_if_there(image.parent);
                    shims += 1;
                    log.note(format!("killed the shim of a container, process {}", image.parent));
                } else if let Some(sandbox) = sandbox_of(image) {
                    kill_if_there(sandbox);
                    sandboxes += 1;
                    log.note(format!("killed the sandbox of a pod, process {sandbox}"));
                }
            }
            assert!(shims >= 2 && sandboxes >= 2 && kubelets == 2, "{shims} shims, {sandboxes} sandboxes");
            log
        }
    };
    burst(&ring, Runs::Own, seed, disturb).await;
    assert_eq!(orchestrator(&ring).await, before, "the orchestrator was not restarted");
}

#[tokio::test]
async fn claims_survive_a_paused_and_killed_api_server() {
    let (_turn, ring) = alone("stop-api").await;
    let before = orchestrator(&ring).await;
    let disturb = |mut log: Log| {
        let cluster = ring.cluster();
        async move {
            tokio::time::sleep(Duration::from_secs(6)).await;
            cluster.pause(Component::ApiServer).unwrap();
            log.note("the API server is paused");
            tokio::time::sleep(Duration::from_secs(60)).await;
            cluster.resume(Component::ApiServer).unwrap();
            log.note("the API server continues");
            tokio::time::sleep(Duration::from_secs(3)).await;
            cluster.kill(Component::ApiServer).await.unwrap();
            log.note("killed the API server");
            tokio::time::sleep(Duration::from_secs(10)).await;
            cluster.restart(Component::ApiServer).await.unwrap();
            log.note("the API server is back");
            log
        }
    };
    burst(&ring, Runs::Own, seed(), disturb).await;
    assert_eq!(orchestrator(&ring).await, before, "the process is the same, and was never restarted");
}

/// Gives a disturbance another run if those of the burst were too few for it.
async fn add_claim_after_burst(ring: &Ring, log: &mut Log, began: Instant) {
    if began.elapsed() > WHILE {
        log.add_claim(ring).await;
    }
}

/// Kills a process that may have ended meanwhile.
fn kill_if_there(pid: i32) {
    let _ =
        std::process::Command::new("kill").args(["-9", &pid.to_string()]).stderr(std::process::Stdio::null()).status();
}

//! The program `flex-orchestrator`: its flags, its start and its end.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{CommandFactory, Parser};
use flex_core::config::classes::Identity;
use flex_core::policies;
use flex_core::text::output;
use strum::VariantNames;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::api::events::{EventRecorder, Reporter};
use crate::api::fence::Fence;
use crate::api::lease::LeaderElector;
use crate::api::says::causes;
use crate::api::writes::{Binding, Writes};
use crate::api::{client, cluster_uid, external_provisioner, watch as watches};
use crate::clock::Clock;
use crate::flags::{Names, Namespaces};
use crate::log::{Log, LogFormat};
use crate::metrics::Metrics;
use crate::page::{self, PolicyStates, Sources};
use crate::reconcile::{self, Context};
use crate::state::ClusterState;

/// The name of the program.
const NAME: &str = "flex-orchestrator";
/// The time for writes in progress, after the signal to stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// A duration, or never.
#[derive(Clone, Copy, Debug)]
struct Interval(Option<Duration>);

fn interval(text: &str) -> Result<Interval, String> {
    match text {
        "off" => Ok(Interval(None)),
        text => flex_core::config::values::duration(text).map(|time| Interval(Some(time))),
    }
}

/// An address to listen on, or none.
#[derive(Clone, Copy, Debug)]
struct Address(Option<SocketAddr>);

fn address(text: &str) -> Result<Address, String> {
    match text {
        "off" => Ok(Address(None)),
        text => {
            let parsed = text.parse().map(|address| Address(Some(address)));
            parsed.map_err(|_| "write an address with a port, such as 127.0.0.1:8081, or `off`".to_owned())
        }
    }
}

/// Provision, bind and delete volumes until stopped.
///
/// Exits 0 when a signal stops it, and 1 if it has no access to a cluster or cannot listen for health and metrics.
#[derive(Debug, Parser)]
#[command(name = NAME, version)]
struct Flags {
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    namespaces: Namespaces,
    /// The controller that completes a claim: `direct` for the orchestrator, `controller` for the PV controller.
    #[arg(long, env = "FLEX_BINDING", default_value = "direct", value_parser = bindings())]
    binding: Binding,
    /// The address that serves health and metrics.
    #[arg(long, env = "FLEX_ADMIN_ADDRESS", default_value = "0.0.0.0:8080")]
    admin_address: SocketAddr,
    /// The address that serves the status page for people, or `off`. Whoever reaches it reads the names of all claims.
    #[arg(long, env = "FLEX_STATUS_ADDRESS", default_value = "127.0.0.1:8081", value_parser = address)]
    status_address: Address,
    /// The API address that images get as KUBE_API [default: the address in use].
    #[arg(long, env = "FLEX_KUBE_API")]
    kube_api: Option<String>,
    /// The form of the log: `text` or `json`.
    #[arg(long, env = "FLEX_LOG_FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
    /// The log filter, such as `info` or `flex_provisioner=debug,info`.
    #[arg(long, env = "FLEX_LOG", default_value = "info")]
    log: String,
    /// The time between two searches for orphaned and stuck objects, such as `10m`, or `off`.
    #[arg(long, env = "FLEX_SWEEP_INTERVAL", default_value = "10m", value_parser = interval)]
    sweep_interval: Interval,
    /// The name of this replica in the Lease [default: the host name].
    #[arg(long, env = "POD_NAME")]
    replica: Option<String>,
}

fn bindings() -> impl TypedValueParser<Value = Binding> {
    PossibleValuesParser::new(Binding::VARIANTS).try_map(|text| text.parse::<Binding>())
}

/// Returns the flags, as the documentation lists them.
pub fn command() -> clap::Command {
    Flags::command()
}

/// Runs the orchestrator with the flags of the command line.
pub fn main() -> ExitCode {
    abort_on_panic();
    run(Flags::parse()).unwrap_or_else(|error| {
        // The answer of a server may have characters that act on a terminal.
        eprintln!("{NAME}: {}", output(&causes(&error), false));
        ExitCode::FAILURE
    })
}

/// Lets a panic of any task end the process in each profile, as `panic = "abort"` does in the one for users.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

fn run(args: Flags) -> anyhow::Result<ExitCode> {
    let log = Log::start(&args.log, args.log_format)?;
    // The runtime has one thread: the work here is mostly waiting, and one thread needs less memory and fewer wake-ups.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(orchestrate(args, log))
}

/// Runs the orchestrator until a signal stops it.
async fn orchestrate(args: Flags, log: Log) -> anyhow::Result<ExitCode> {
    let Flags { names, namespaces, binding, admin_address, status_address, kube_api, sweep_interval, replica, .. } =
        args;
    let identity = names.identity(&namespaces);
    let metrics = Metrics::of(&identity.instance);
    let (client, address) = client::connect(&metrics).await?;
    let clock = Clock::default();
    // Kubernetes ends a process that does not answer, also while this one waits for the API server.
    let served = Arc::default();
    let admin_address = crate::admin::serve(admin_address, Arc::clone(&served)).await?;
    let identity = Identity { cluster: cluster_uid::until_known(&client, &clock).await, ..identity };
    let cluster = ClusterState::new(identity.clone(), clock.clone());
    cluster.queue.pause();
    let replica =
        replica.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_else(|| format!("pid-{}", std::process::id()));
    let reporter = Reporter::new(&identity.provisioner, &replica);
    let (events, event_writer) = EventRecorder::start(client.clone(), reporter, clock.clone());
    let fence = Fence::default();
    let writes = Writes::new(fence.client(&client), identity.clone(), binding).with_cache(&cluster);
    let kube_api = kube_api.unwrap_or(address);
    let context = Context::new(identity.clone(), cluster.clone(), writes, events, metrics, kube_api, clock);
    context.sweep.every(sweep_interval.0);
    let _ = served.set(context.clone());
    watches::start(&client, &identity, &cluster, &context.metrics);
    tokio::spawn(external_provisioner::follow(client.clone(), cluster.clone(), context.clock.clone()));
    reconcile::start(&context);

    let renewed = context.metrics.lease_age.clone();
    let lease = identity.lease();
    let (candidate, leading) =
        LeaderElector::new(client.clone(), lease, replica.clone(), fence, renewed, cluster.clone());
    tokio::spawn(log.follow(candidate.log_filter(), context.clock.clone()));
    let policies = PolicyStates::default();
    if let Some(address) = status_address.0 {
        let (context, client, leading, policies) = (context.clone(), client.clone(), leading.clone(), policies.clone());
        let holder = candidate.holder();
        page::serve(address, Sources { context, client, replica, leading, holder, policies }).await;
    }
    let (stop, stopped) = watch::channel(false);
    // A replica that is not ready does not compete for the Lease, so that a ready one can lead.
    let listed = cluster.clone();
    let standing = tokio::spawn(async move {
        listed.until_ready().await;
        candidate.run(stopped).await;
    });
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        provisioner = identity.provisioner,
        instance = identity.instance,
        configs = identity.config_namespaces.join(","),
        %admin_address,
        "started"
    );
    tokio::spawn(log_policies(client, policies));
    tokio::spawn(log_ready(cluster));
    lead_until_signal(&context, leading).await?;
    tracing::info!("stopping");
    shut_down(&context, Running { stop, standing, event_writer }).await;
    Ok(ExitCode::SUCCESS)
}

/// Notes whether this replica leads, until a signal or the end of the election stops it.
async fn lead_until_signal(context: &Context, mut leading: watch::Receiver<bool>) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            changed = leading.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let leads = *leading.borrow_and_update();
                context.metrics.leader.set(i64::from(leads));
                if !leads {
                    context.metrics.forget();
                    context.sweep.forget();
                    context.last_hour.forget();
                }
            }
        }
    }
}

/// The tasks that end with the orchestrator.
struct Running {
    /// Stops the election.
    stop: watch::Sender<bool>,
    /// The election.
    standing: JoinHandle<()>,
    /// The task that writes events.
    event_writer: JoinHandle<()>,
}

/// Waits for writes in progress, releases the Lease, and writes the last events.
async fn shut_down(context: &Context, running: Running) {
    context.cluster.queue.pause();
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, async {
        while context.cluster.queue.is_working() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    running.stop.send_replace(true);
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, running.standing).await;
    context.events.close();
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, running.event_writer).await;
}

/// Logs how long the first lists took.
async fn log_ready(cluster: ClusterState) {
    let began = std::time::Instant::now();
    cluster.until_ready().await;
    tracing::info!(elapsed = ?began.elapsed(), "ready");
}

/// Reads the admission policies, and logs which features are off without them. The orchestrator itself does not depend on them.
async fn log_policies(client: kube::Client, known: PolicyStates) {
    let states = crate::api::policies::read(&client).await.map(|live| policies::states(&live));
    match known.get_or_init(|| states) {
        Ok(states) => tracing::info!("{}", policies::summary(states)),
        Err(why) => tracing::info!("whether the admission policies are installed is not known: {why}"),
    }
}

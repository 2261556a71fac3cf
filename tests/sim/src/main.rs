//! `flex-sim`: runs many histories, one history, or the planted bugs that must be found.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant, SystemTime};

use clap::{Parser, ValueEnum};
use flex_provisioner::metrics::Metrics;
use sim::bugs::Bug;
use sim::check::Guarantee;
use sim::coverage::Coverage;
use sim::history::{Outcome, Plan, run_plan};
use sim::trace::Listener;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulates the orchestrator in a world of faults, and checks its promises.
#[derive(Debug, Parser)]
#[command(name = "flex-sim", version)]
struct Args {
    /// The number of histories.
    #[arg(long, default_value_t = 10_000, conflicts_with = "minutes")]
    histories: u64,
    /// The duration in minutes, in place of a number of histories.
    #[arg(long)]
    minutes: Option<u64>,
    /// The seed of the first history; the others follow it [default: 0; with --minutes, another each time].
    #[arg(long)]
    seed_base: Option<u64>,
    /// Run only the history with this seed, and print everything that happens in it.
    #[arg(long)]
    seed: Option<u64>,
    /// Plant a bug.
    #[arg(long, value_enum)]
    bug: Option<Bug>,
    /// Make the world one for this bug, without the bug.
    #[arg(long, value_enum, conflicts_with = "bug")]
    suited: Option<Bug>,
    /// Plant each bug, in a world that is made for it, and check that it is found.
    #[arg(long)]
    bugs: bool,
    /// Continue after a failure, to count failures.
    #[arg(long)]
    keep_going: bool,
    /// The number of threads.
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(2, usize::from))]
    threads: usize,
}

/// The time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

impl Args {
    fn plan(&self, seed: u64) -> Plan {
        Plan { seed, suited: self.bug.or(self.suited), bug: self.bug }
    }
}

/// The number of histories in which each rule must be reached that can be.
const ENOUGH: u64 = 20_000;
/// The number of histories within which a bug must be found.
const FOUND_WITHIN: u64 = 10_000;

#[derive(Default)]
struct Sum {
    histories: u64,
    broken: BTreeMap<Guarantee, u64>,
    counts: BTreeMap<&'static str, u64>,
    rules: Coverage,
    first: Option<(u64, String)>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    tracing::subscriber::set_global_default(Listener).expect("no other listener");
    if let Some(seed) = args.seed {
        let outcome = run_plan(args.plan(seed), true, &Metrics::default());
        outcome.trace.lines.iter().for_each(|line| println!("{line}"));
        outcome.wrong.iter().for_each(|wrong| println!("{:?}: {}", wrong.guarantee, wrong.what));
        println!("seed {seed}: {}", if outcome.wrong.is_empty() { "all is well" } else { "broken" });
        return if outcome.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if args.bugs {
        return bugs(&args);
    }
    let began = Instant::now();
    let deadline = args.minutes.map(|minutes| began + Duration::from_secs(60 * minutes));
    let most = if args.minutes.is_some() { u64::MAX } else { args.histories };
    if args.minutes.is_some() {
        println!("the first seed is {}", args.first());
    }
    let sum = many(&args, most, deadline, |seed, metrics| run_plan(args.plan(seed), false, metrics));
    report(&args, &sum, began.elapsed())
}

impl Args {
    /// Returns the seed of the first history.
    fn first(&self) -> u64 {
        // The value is computed once, so that all callers get the same.
        static ANY: LazyLock<u64> = LazyLock::new(|| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            // The seeds are far apart, but short enough to be typed.
            now.as_secs() % 1_000_000_000 * 1_000_000
        });
        self.seed_base.unwrap_or_else(|| if self.minutes.is_some() { *ANY } else { 0 })
    }

    /// Returns the command that repeats a history.
    fn replay(&self, bug: Option<Bug>, seed: u64) -> String {
        let bug = bug.and_then(|bug| Some(format!(" --bug {}", bug.to_possible_value()?.get_name())));
        format!("flex-sim --seed {seed}{}", bug.unwrap_or_default())
    }
}

/// Prints the progress until all threads have ended.
fn progress(done: &AtomicU64, running: &AtomicUsize) {
    let (began, mut last_line) = (Instant::now(), Instant::now());
    while running.load(Ordering::Relaxed) > 0 {
        std::thread::sleep(Duration::from_millis(20));
        if last_line.elapsed() >= PROGRESS {
            last_line = Instant::now();
            let done = done.load(Ordering::Relaxed);
            eprintln!("{done} histories, {:.0} a second", done as f64 / began.elapsed().as_secs_f64());
        }
    }
}

/// Runs histories until there are enough, or one has failed.
fn many(args: &Args, most: u64, deadline: Option<Instant>, one: impl Fn(u64, &Metrics) -> Outcome + Sync) -> Sum {
    let (next, done, running) = (AtomicU64::new(0), AtomicU64::new(0), AtomicUsize::new(args.threads));
    let stop = AtomicBool::new(false);
    let sum = Mutex::new(Sum::default());
    std::thread::scope(|scope| {
        for _ in 0..args.threads {
            scope.spawn(|| {
                let mut own = Sum::default();
                let metrics = Metrics::default();
                while !stop.load(Ordering::Relaxed) && deadline.is_none_or(|deadline| Instant::now() < deadline) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= most {
                        break;
                    }
                    let seed = args.first().wrapping_add(at);
                    let outcome = one(seed, &metrics);
                    if let Some(wrong) = outcome.wrong.first().filter(|_| args.keep_going) {
                        let replay = args.replay(args.bug, seed);
                        println!("{:?}: {}; replay it with: {replay}", wrong.guarantee, wrong.what);
                    }
                    own.take(seed, outcome);
                    done.fetch_add(1, Ordering::Relaxed);
                    if own.first.is_some() && !args.keep_going {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                own.rules = Coverage::of(&metrics);
                sum.lock().expect("no thread panics").add(own);
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        progress(&done, &running);
    });
    sum.into_inner().expect("no thread panics")
}

impl Sum {
    fn take(&mut self, seed: u64, outcome: Outcome) {
        self.histories += 1;
        for (what, count) in outcome.trace.counts {
            *self.counts.entry(what).or_default() += count;
        }
        if let Some(wrong) = outcome.wrong.first() {
            *self.broken.entry(wrong.guarantee).or_default() += 1;
            let what = format!("{:?}: {}", wrong.guarantee, wrong.what);
            if self.first.as_ref().is_none_or(|(first, _)| seed < *first) {
                self.first = Some((seed, what));
            }
        }
    }

    fn add(&mut self, other: Sum) {
        self.histories += other.histories;
        other.broken.into_iter().for_each(|(broken, count)| *self.broken.entry(broken).or_default() += count);
        other.counts.into_iter().for_each(|(what, count)| *self.counts.entry(what).or_default() += count);
        self.rules.add(&other.rules);
        self.first = [self.first.take(), other.first].into_iter().flatten().min();
    }
}

fn report(args: &Args, sum: &Sum, took: Duration) -> ExitCode {
    if let Some((seed, what)) = &sum.first {
        let outcome = run_plan(args.plan(*seed), true, &Metrics::default());
        let lines = outcome.trace.lines;
        lines.iter().skip(lines.len().saturating_sub(60)).for_each(|line| println!("{line}"));
        println!("seed {seed} is broken: {what}");
        println!("replay it with: {}", args.replay(args.bug, *seed));
    }
    println!("in {:.1} s: {}", took.as_secs_f64(), counts(sum));
    let complete = report_rules(sum);
    let number = |broken| sum.broken.get(&broken).copied().unwrap_or_default();
    println!(
        "histories {}: {} leaked, {} duplicate, {} stuck",
        sum.histories,
        number(Guarantee::Leaked),
        number(Guarantee::Duplicate),
        number(Guarantee::Stuck)
    );
    if sum.first.is_none() && complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints which rules were reached. Returns whether enough were: nothing is known of a rule that no history reaches.
fn report_rules(sum: &Sum) -> bool {
    let report = sum.rules.report();
    let missed: Vec<String> = report.unknown.iter().map(ToString::to_string).collect();
    println!("rules decided: {} of {}; missed: {}", report.decided, report.all, missed.join(", "));
    for (rule, why) in &report.reached {
        println!("the rule {rule} was reached, but sim::coverage::UNREACHED says that this is impossible: {why}");
    }
    let complete = missed.is_empty() || sum.histories < ENOUGH || sum.first.is_some();
    if !complete {
        println!("the histories do not reach every rule, so that they say nothing of it");
    }
    complete
}

fn counts(sum: &Sum) -> String {
    sum.counts.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

/// Returns what fails with a bug and does not fail without it in the same history.
fn shown_by(bug: Bug, seed: u64, metrics: &Metrics) -> Outcome {
    let suited = Plan { seed, suited: Some(bug), bug: None };
    let mut outcome = run_plan(Plan { bug: Some(bug), ..suited }, false, metrics);
    let shows = outcome.wrong.first().is_some_and(|wrong| bug.is_shown_by(wrong.guarantee));
    if !shows || !run_plan(suited, false, metrics).wrong.is_empty() {
        outcome.wrong.clear();
    }
    outcome
}

/// Checks that each bug is found.
fn bugs(args: &Args) -> ExitCode {
    let mut missed = 0;
    for bug in Bug::value_variants() {
        let began = Instant::now();
        let sum = many(args, FOUND_WITHIN, None, |seed, metrics| shown_by(*bug, seed, metrics));
        match &sum.first {
            Some((seed, what)) => {
                println!(
                    "{bug:?}: found after {} histories ({:.1} s), seed {seed}: {what}",
                    sum.histories,
                    began.elapsed().as_secs_f64()
                );
            }
            None => {
                missed += 1;
                println!("{bug:?}: NOT FOUND in {} histories", sum.histories);
            }
        }
    }
    println!("bugs {}: {missed} missed", Bug::value_variants().len());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

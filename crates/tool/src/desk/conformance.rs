//! `conformance`: proves on this machine, or on a cluster, that a program keeps the contract.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use flex_desk::conformance::patience::Repeat;
use flex_desk::conformance::{self, Case, Commands, Done, Outcome, Possible, Report, Storage, run};
use flex_desk::desk::{Isolation, Tools};
use flex_desk::front::Wanted;
use flex_provisioner::api::says;
use quick_junit::{NonSuccessKind, Report as Junit, TestCase, TestCaseStatus, TestSuite};
use serde_json::{Value, json};

use super::again::again;
use super::args::{Subject, directory};
use super::call::{Signals, random_id};
use super::on_cluster::{self, OnClusterArgs, Proof};
use crate::flags::Output;
use crate::markdown::plain;
use crate::name::name;
use crate::out::{colours, remark, say};
use crate::table::Tone;

/// The exit code if a case has failed.
const FAILED: u8 = 1;
/// The exit code if the cases could not be run.
const BROKEN: u8 = 2;

#[derive(Debug, Args)]
pub(crate) struct ConformanceArgs {
    /// The program that stands in for the image, with its arguments; none for a config with a script.
    #[arg(value_name = "PROGRAM", trailing_var_arg = true)]
    program: Vec<String>,
    /// Run only the case with this id; can be repeated.
    #[arg(long, value_name = "ID", value_parser = ids())]
    only: Vec<String>,
    /// Say what a case does, why, and how to mend a program that fails it.
    #[arg(long, value_name = "ID", value_parser = ids())]
    explain: Option<String>,
    /// Write the results into this file, too, in the format of JUnit.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// The storage is neither in directories of the node nor on this machine: a server, a cloud or a driver has it. Cases then look at list runs in place of files, and delete what they have made by delete runs. With a DIRECTORY of this machine that has the storage's files, cases look there.
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, require_equals = true)]
    external_storage: Option<Option<PathBuf>>,
    /// The parameter with the address of the storage's server, or ADDRESS,PORT for two parameters. The command stands between program and server then: it loses answers, cuts the line, answers 500 and is slow. Implies `--external-storage`.
    #[arg(long, value_name = "PARAMETER", value_parser = Wanted::parse)]
    front: Option<Wanted>,
    /// A command of the shell that prints the content of a volume, which the variables VOLUME_ID, VOLUME_SOURCE and PV_FILE describe.
    #[arg(long, value_name = "COMMAND", requires = "write_with")]
    read_with: Option<String>,
    /// A command of the shell that makes its standard input the content of such a volume.
    #[arg(long, value_name = "COMMAND", requires = "read_with")]
    write_with: Option<String>,
    #[command(flatten)]
    subject: Subject,
    #[command(flatten)]
    on_cluster: OnClusterArgs,
}

fn ids() -> PossibleValuesParser {
    Case::ALL.iter().map(|case| case.id()).collect::<Vec<_>>().into()
}

pub(crate) fn conformance(args: ConformanceArgs) -> anyhow::Result<ExitCode> {
    if let Some(case) = args.explain.as_deref().and_then(Case::find) {
        explain(case);
        return Ok(ExitCode::SUCCESS);
    }
    match prove(&args) {
        Ok(report) => Ok(ExitCode::from(if report.is_good() { 0 } else { FAILED })),
        Err(error) => {
            remark!("{}: {}", name(), says::causes(&error));
            Ok(ExitCode::from(BROKEN))
        }
    }
}

/// Says what a case does.
fn done_by(case: Case) -> String {
    plain(&case.what().iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "))
}

fn explain(case: Case) {
    say!("{}\n\n{}\n{}", case.id(), done_by(case), plain(case.expected()));
    if let Some(capability) = case.needs() {
        say!("It runs only if the config declares the capability {capability}.");
    }
    if case.needs_front() {
        say!("It runs only with --front.");
    }
    for (place, possible) in
        [("On a cluster", case.on_cluster()), ("With external storage", case.with_external_storage())]
    {
        match possible {
            Possible::Yes => {}
            Possible::ByList => say!("{place} it runs only if the config declares the capability list."),
            Possible::No(why) => say!("{place} it is not possible: {why}."),
        }
    }
    if case.with_commands() {
        say!("With --read-with and --write-with it is possible with external storage, too.");
    }
    say!("\nWhy: {}\nTo mend the program: {}", plain(case.why()), plain(case.mend()));
}

fn prove(args: &ConformanceArgs) -> anyhow::Result<Report> {
    let chosen = |case: &&Case| match args.only.is_empty() {
        true => args.front.is_some() || !case.needs_front(),
        false => args.only.iter().any(|id| id == case.id()),
    };
    let cases: Vec<Case> = Case::ALL.iter().filter(chosen).copied().collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shows = args.output == Output::Table;
    let after = |done: &Done| {
        if shows {
            line(done, args.program.len());
        }
    };
    let (report, left) = match args.on_cluster.cluster {
        true => {
            let proof = on_cluster::prove(&args.on_cluster, &args.subject, &cases, after);
            let Proof { done, left } = runtime.block_on(proof)?;
            name_left(&left);
            (Report { done: done?, isolation: Isolation::Root }, left)
        }
        false => on_desk(args, &runtime, &cases, after)?,
    };
    show(args, &report)?;
    if !left.is_empty() {
        bail!("the command could not remove everything that its runs have made (see above): remove it by hand");
    }
    Ok(report)
}

/// Names what the command could not remove.
fn name_left(left: &[String]) {
    left.iter().for_each(|what| remark!("left behind: {what}"));
}

/// Runs cases on this machine. Returns the storage that the command could not delete, too.
fn on_desk(
    args: &ConformanceArgs,
    runtime: &tokio::runtime::Runtime,
    cases: &[Case],
    after: impl FnMut(&Done),
) -> anyhow::Result<(Report, Vec<String>)> {
    let (setting, tools) = args.subject.read(&args.program)?;
    if tools.program.is_none() && setting.recipe.script.is_none() {
        bail!("the config names an image, which this machine does not run: name the program that stands in for it");
    }
    let storage = storage(args, &tools)?;
    let call = random_id();
    if storage.is_shared() {
        remark!("the ids of all volumes and snapshots of this call begin with {call}-");
    }
    let front = args.front.as_ref();
    let subject = conformance::Subject { setting: &setting, tools: &tools, storage: &storage, call: &call, front };
    let proof = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let stopped = async || {
            signals.received().await;
            if storage.is_shared() {
                remark!("deleting what the runs have made; a second signal stops that, too");
            }
        };
        Ok::<_, std::io::Error>(run(subject, cases, stopped, after).await)
    })?;
    name_left(&proof.left);
    proof.notes.iter().for_each(|note| remark!("{note}"));
    if storage.is_external && front.is_none() && args.only.is_empty() {
        remark!("no case has let the server fail: --front PARAMETER adds cases that do");
    }
    Ok((Report { done: proof.done?, isolation: proof.isolation }, proof.left))
}

/// Returns where the storage of the runs is.
fn storage(args: &ConformanceArgs, tools: &Tools) -> anyhow::Result<Storage> {
    let files = args.external_storage.iter().flatten().next();
    let named = |path: &PathBuf| directory(path, &format!("--external-storage={}", path.display()));
    let commands = args.read_with.clone().zip(args.write_with.clone());
    Ok(Storage {
        on_node: tools.on_node.clone(),
        is_external: args.external_storage.is_some() || args.front.is_some(),
        files: files.map(named).transpose()?,
        commands: commands.map(|(read, write)| Commands { read, write }),
    })
}

/// Prints the report, and writes it into a file.
fn show(args: &ConformanceArgs, report: &Report) -> anyhow::Result<()> {
    if let Some(path) = &args.junit {
        let file = std::fs::File::create(path).with_context(|| format!("{} cannot be written", path.display()))?;
        junit(report, args.program.len())
            .serialize(file)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    match args.output.document(|| document(report, args.program.len()))? {
        Some(document) => say!("{document}"),
        None => summary(report, args.only.is_empty()),
    }
    Ok(())
}

/// Returns what a person needs to know about a case that has failed, beside what was seen. The last words of the call, so
/// many, are the program.
fn advice(case: Case, program: usize) -> [(&'static str, String); 4] {
    [
        ("done", done_by(case)),
        ("expected", plain(case.expected())),
        ("mend", plain(case.mend())),
        ("repeat", again(case, program)),
    ]
}

/// Returns the same as lines; none for a case that has not failed.
fn advice_of(done: &Done, program: usize) -> Vec<String> {
    match done.outcome {
        Outcome::Failed(_) => advice(done.case, program).map(|(name, text)| format!("{name}: {text}")).into(),
        _ => Vec::new(),
    }
}

fn line(done: &Done, program: usize) {
    let (tone, word, why) = match &done.outcome {
        Outcome::Passed => (Tone::Good, "pass", ""),
        Outcome::Failed(why) => (Tone::Bad, "FAIL", why.as_str()),
        Outcome::Skipped(why) => (Tone::Plain, "skip", why.as_str()),
        Outcome::NotPossible(why) => (Tone::Plain, "n/a ", why.as_str()),
    };
    let word = if colours() { format!("{0}{word}{0:#}", tone.style()) } else { word.to_owned() };
    let why = if why.is_empty() { String::new() } else { format!("  {}", flex_core::text::line(why, usize::MAX)) };
    say!("{word}  {:<20}{:>5} ms{why}", done.case.id(), done.took.as_millis());
    let more = done.repeats.iter().map(repeated).chain(advice_of(done, program));
    more.for_each(|text| say!("      {}", flex_core::text::line(&text, usize::MAX)));
}

/// Says that a run was repeated, and why.
fn repeated(repeat: &Repeat) -> String {
    format!("repeated: {repeat}")
}

/// Prints the counts. A call for all cases ends with the words for a README.
fn summary(report: &Report, is_whole: bool) {
    let [passed, failed, skipped, not_possible] = report.counts();
    let not_possible = match not_possible {
        0 => String::new(),
        count => format!(", {count} not possible here"),
    };
    let repeated = match report.done.iter().map(|done| done.repeats.len()).sum() {
        0_usize => String::new(),
        count => format!("; {count} runs asked for another attempt, and were repeated"),
    };
    say!("{passed} cases passed, {failed} failed, {skipped} skipped{not_possible}{repeated}");
    if let Isolation::None(why) = &report.isolation {
        say!("The program ran without the mounts and the user of a pod: {why}");
    }
    if is_whole {
        say!("{}", report.summary());
    }
}

fn document(report: &Report, program: usize) -> Value {
    let one = |done: &Done| {
        let (outcome, why) = match &done.outcome {
            Outcome::Passed => ("passed", None),
            Outcome::Failed(why) => ("failed", Some(why)),
            Outcome::Skipped(why) => ("skipped", Some(why)),
            Outcome::NotPossible(why) => ("not-possible", Some(why)),
        };
        let milliseconds = u64::try_from(done.took.as_millis()).unwrap_or(u64::MAX);
        let repeats = |Repeat { operation, attempt, code, words }: &Repeat| json!({ "operation": operation, "attempt": attempt, "exitCode": code, "lastWords": words });
        let repeats: Vec<Value> = done.repeats.iter().map(repeats).collect();
        let mut case = json!({ "id": done.case.id(), "outcome": outcome, "why": why, "milliseconds": milliseconds, "repeats": repeats });
        if let Outcome::Failed(_) = done.outcome {
            advice(done.case, program).into_iter().for_each(|(name, text)| case[name] = text.into());
        }
        case
    };
    let [passed, failed, skipped, not_possible] = report.counts();
    let cases: Vec<Value> = report.done.iter().map(one).collect();
    json!({
        "summary": report.summary(),
        "passed": passed,
        "failed": failed,
        "skipped": skipped,
        "notPossible": not_possible,
        "cases": cases,
    })
}

fn junit(report: &Report, program: usize) -> Junit {
    let mut suite = TestSuite::new("conformance");
    suite.add_property(("summary", report.summary().as_str()));
    for done in &report.done {
        let status = match &done.outcome {
            Outcome::Passed => TestCaseStatus::success(),
            Outcome::Failed(why) => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_message(why.as_str()).set_description(advice_of(done, program).join("\n"));
                status
            }
            Outcome::Skipped(why) | Outcome::NotPossible(why) => {
                let mut status = TestCaseStatus::skipped();
                status.set_message(why.as_str());
                status
            }
        };
        let mut case = TestCase::new(done.case.id(), status);
        case.set_classname("flex-provisioner.conformance").set_time(done.took);
        if !done.repeats.is_empty() {
            case.set_system_out(done.repeats.iter().map(repeated).collect::<Vec<_>>().join("\n"));
        }
        suite.add_test_case(case);
    }
    let mut all = Junit::new("flex-provisioner conformance");
    all.add_test_suite(suite);
    all
}

//! Wrong programs: right ones in shell, Python and Go, each with a mistake of a vendor, and the case that must find it.
//!
//! Each row of a table is a program: what it does, the case, and the texts that take the place of others in the right
//! program. Each case has a program that only this case finds, unless [`TOGETHER`] says why it has none.
//!
//! `cargo test --test desk -- --ignored wrong::` proves that no other case finds these programs, and that no case finds
//! what none can know. It takes long.

mod go;
mod http_array;
mod lines;
mod python;
mod row;
mod shell_copies;
mod shell_volumes;

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use flex_desk::conformance::Case;

use self::row::{By, Edits, Found, Only, Row, edited};
use crate::front::{self, Stand};
use crate::{Files, judged, without_front};

/// The config of all programs but those for an array.
const CONFIG: &str = "crates/tool/tests/desk/wrong/config.yaml";
/// The right programs.
const SHELL: &str = include_str!("right.sh");
const PYTHON: &str = include_str!("right.py");
const GO: &str = include_str!("right.go");
/// The name of a right program.
const RIGHT: &str = "keeps the contract";
/// The page with the mistakes that no case can know.
const PAGE: &str = include_str!("../../../../../docs/reference/conformance.md");
/// The programs that are judged at one time. Most of them wait.
const AT_ONCE: usize = 4;

/// Cases without a program that only they find, with the reason.
const TOGETHER: [(Case, &str); 3] = [
    (Case::DeleteGone, "each case that deletes a volume sees what a deletion leaves"),
    (Case::DeleteUnknown, "delete-half-made and hostile-texts also delete for ids whose runs have stored nothing"),
    (Case::NextVolumeEmpty, "interleaved also deletes volumes with data, and looks at all that stays of them"),
];

/// Runs cases on the right program with these edits. Returns the id of each case, its outcome and the reason.
type Judge = Box<dyn Fn(&str, Edits, &[Case]) -> Vec<[String; 3]> + Sync>;

/// Programs of one kind.
struct Kind {
    /// The wrong ones.
    wrong: Vec<Row>,
    /// The cases that are possible.
    cases: Vec<Case>,
    judge: Judge,
}

/// Runs cases on a program for directories.
fn on_desk(program: &str, cases: &[Case]) -> Vec<[String; 3]> {
    let (answer, outcomes) = judged(CONFIG, program, cases, &[]);
    let has_failed = outcomes.iter().any(|[_, outcome, _]| outcome == "failed");
    assert_eq!(answer.code, Some(i32::from(has_failed)), "{answer:?}");
    outcomes
}

fn script(right: &'static str, wrong: Vec<Row>) -> Kind {
    let judge = move |does: &str, edits: Edits, cases: &[Case]| {
        let files = Files::new();
        on_desk(&files.write("program", &edited(right, does, edits)), cases)
    };
    Kind { wrong, cases: without_front(), judge: Box::new(judge) }
}

fn of_shell() -> Kind {
    script(SHELL, [shell_volumes::WRONG, shell_copies::WRONG].concat())
}

fn of_python() -> Kind {
    script(PYTHON, python::WRONG.to_vec())
}

/// Returns a name of a file for a program.
fn slug(does: &str) -> String {
    does.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

/// Builds the right program of Go and these wrong ones by one call of its compiler.
fn of_go(wrong: Vec<Row>) -> Kind {
    let files = Files::new();
    let right: (&str, Edits) = (RIGHT, &[]);
    for (does, edits) in wrong.iter().map(|(does, _, edits)| (*does, *edits)).chain([right]) {
        let folder = files.path(&slug(does));
        fs::create_dir(&folder).unwrap_or_else(|error| panic!("{does}: {error}"));
        fs::write(format!("{folder}/main.go"), edited(GO, does, edits)).unwrap();
    }
    fs::write(files.path("go.mod"), "module mine\n\ngo 1.21\n").unwrap();
    files.build_go("go build -ldflags='-s -w' -o bin/ ./...");
    let judge = move |does: &str, _: Edits, cases: &[Case]| on_desk(&files.path(&format!("bin/{}", slug(does))), cases);
    Kind { wrong, cases: without_front(), judge: Box::new(judge) }
}

fn for_array(right: &'static str, wrong: &[Row]) -> Kind {
    let judge = move |does: &str, edits: Edits, cases: &[Case]| {
        Stand::new().judged("program", &edited(right, does, edits), cases).1
    };
    Kind { wrong: wrong.to_vec(), cases: Case::ALL.to_vec(), judge: Box::new(judge) }
}

fn of_python_for_array() -> Kind {
    for_array(front::PYTHON, http_array::PYTHON)
}

fn of_shell_for_array() -> Kind {
    for_array(front::SHELL, http_array::SHELL)
}

/// Does something for each item, on as many threads as the runs need. Returns what there is to say.
fn each<T: Sync>(items: &[T], one: impl Fn(&T) -> Option<String> + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mine = std::iter::from_fn(|| items.get(next.fetch_add(1, Ordering::Relaxed)));
        mine.filter_map(&one).collect::<Vec<String>>()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("each program is judged")).collect()
    })
}

/// Checks that each wrong program fails its case.
fn are_found(kind: &Kind) {
    let missed = each(&kind.wrong, |(does, found, edits)| {
        let judged = || (kind.judge)(does, edits, &[found.case()]).remove(0);
        // On a busy machine, a signal may miss the moment of the mistake.
        let first = Some(judged()).filter(|[_, outcome, _]| outcome == "failed");
        let [id, outcome, why] = first.unwrap_or_else(judged);
        let said = format!("{id}: a program that {does}: {outcome}: {why}");
        println!("{said}");
        (outcome != "failed").then_some(said)
    });
    let count = format!("{} of {} wrong programs are found", kind.wrong.len() - missed.len(), kind.wrong.len());
    println!("{count}");
    assert!(missed.is_empty(), "{count}:\n{}", missed.join("\n"));
}

/// Checks that no other case finds the programs that only one case must find.
fn are_found_by_one_case(kind: &Kind) {
    let only: Vec<Row> = kind.wrong.iter().filter(|(_, found, _)| matches!(found, Only(_))).copied().collect();
    let blamed = each(&only, |(does, found, edits)| {
        let failed = |cases: &[Case]| -> BTreeSet<String> {
            let all = (kind.judge)(does, edits, cases).into_iter();
            all.filter(|[_, outcome, _]| outcome == "failed").map(|[id, ..]| id).collect()
        };
        let is_odd = |case: &Case, failed: &BTreeSet<String>| failed.contains(case.id()) != (*case == found.case());
        let first = failed(&kind.cases);
        println!("a program that {does}: {}", first.iter().cloned().collect::<Vec<_>>().join(", "));
        // On a busy machine, a signal may miss its moment, or a time limit may end a run.
        let odd: Vec<Case> = kind.cases.iter().filter(|case| is_odd(case, &first)).copied().collect();
        let again = if odd.is_empty() { BTreeSet::new() } else { failed(&odd) };
        let odd: Vec<&str> = odd.iter().filter(|case| is_odd(case, &again)).map(|case| case.id()).collect();
        let case = found.case().id();
        (!odd.is_empty()).then(|| format!("a program that {does}: only {case} must fail, but see {}", odd.join(", ")))
    });
    let count = format!("{} of {} wrong programs are found by one case", only.len() - blamed.len(), only.len());
    println!("{count}");
    assert!(blamed.is_empty(), "{count}:\n{}", blamed.join("\n"));
}

/// Checks that a right program passes cases.
fn pass(kind: &Kind, does: &str, edits: Edits, cases: &[Case]) -> Option<String> {
    let outcomes = (kind.judge)(does, edits, cases);
    assert_eq!(outcomes.len(), cases.len(), "{does}");
    let failed = outcomes.into_iter().filter(|[_, outcome, _]| outcome != "passed");
    let failed: Vec<String> = failed.map(|[id, outcome, why]| format!("{id}: {outcome} {why}")).collect();
    (!failed.is_empty()).then(|| format!("a program that {does}: {}", failed.join("; ")))
}

#[test]
fn the_right_shell_program_passes_every_case() {
    assert_eq!(pass(&of_shell(), RIGHT, &[], &without_front()), None);
}

#[test]
fn the_right_python_program_passes_every_case() {
    assert_eq!(pass(&of_python(), RIGHT, &[], &without_front()), None);
}

#[test]
fn the_right_go_program_passes_every_case() {
    assert_eq!(pass(&of_go(Vec::new()), RIGHT, &[], &without_front()), None);
}

#[test]
fn right_programs_of_another_kind_pass() {
    for (kind, right) in [(of_shell(), shell_copies::RIGHT), (of_python(), python::RIGHT)] {
        let blamed = each(right, |(does, cases, edits)| pass(&kind, does, edits, cases));
        assert!(blamed.is_empty(), "{}", blamed.join("\n"));
    }
}

#[test]
fn each_wrong_shell_program_is_found_by_its_case() {
    are_found(&of_shell());
}

#[test]
fn each_wrong_python_program_is_found_by_its_case() {
    are_found(&of_python());
}

#[test]
fn each_wrong_go_program_is_found_by_its_case() {
    are_found(&of_go(go::WRONG.to_vec()));
}

#[test]
fn each_wrong_program_for_an_array_is_found_by_its_case() {
    are_found(&of_python_for_array());
    are_found(&of_shell_for_array());
}

#[test]
fn each_case_has_a_wrong_program_that_only_it_finds() {
    let tables =
        [shell_volumes::WRONG, shell_copies::WRONG, python::WRONG, go::WRONG, http_array::PYTHON, http_array::SHELL];
    let has = |wanted: Found| tables.iter().flat_map(|table| table.iter()).any(|(_, found, _)| *found == wanted);
    for case in Case::ALL {
        let together = TOGETHER.iter().find(|(other, _)| other == case).map(|(_, why)| why);
        assert_eq!(has(Only(*case)), together.is_none(), "{}: {together:?}", case.id());
        assert!(has(Only(*case)) || has(By(*case)), "{}: no wrong program", case.id());
    }
}

#[test]
fn the_manual_names_each_mistake_that_no_case_can_know() {
    for (does, _) in shell_copies::UNKNOWABLE.iter().chain(python::UNKNOWABLE) {
        assert!(PAGE.contains(&format!("\n| {does} | ")), "{does}");
    }
}

#[test]
#[ignore = "takes long: all cases for each of many programs"]
fn no_other_case_finds_a_program_that_only_one_must_find() {
    for kind in [of_shell(), of_python(), of_go(go::WRONG.to_vec()), of_python_for_array(), of_shell_for_array()] {
        are_found_by_one_case(&kind);
    }
}

#[test]
#[ignore = "takes long: all cases for each of several programs"]
fn no_case_finds_a_mistake_that_none_can_know() {
    for (kind, unknowable) in [(of_shell(), shell_copies::UNKNOWABLE), (of_python(), python::UNKNOWABLE)] {
        let blamed = each(unknowable, |(does, edits)| pass(&kind, does, edits, &kind.cases));
        assert!(blamed.is_empty(), "{}", blamed.join("\n"));
    }
}

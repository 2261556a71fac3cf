//! Tests of `conformance` with a front before a server: programs for an HTTP array, right ones and wrong ones, each with one
//! mistake of a vendor and the case that must find it.

use flex_desk::conformance::Case;

use crate::array::Array;
use crate::{Answer, Files, call, judged};

/// Programs that keep the contract.
const PYTHON: &str = include_str!("http_array.py");
const SHELL: &str = include_str!("http_array.sh");

/// The cases with a front.
const BEHIND: [Case; 5] = [Case::AnswerLost, Case::ServerFails, Case::LineCut, Case::KilledAtAnswer, Case::ServerSlow];
/// Cases about content, which commands write and read.
const ABOUT_CONTENT: [Case; 8] = [
    Case::CalledAgain,
    Case::VolumeIsLast,
    Case::NextVolumeEmpty,
    Case::Expand,
    Case::CloneContent,
    Case::SnapshotRestore,
    Case::SnapshotKilled,
    Case::SnapshotOutlives,
];

/// The part of a command that names the content of a volume.
const CONTENT: &str = r#"curl -fsS -H "Authorization: Bearer $ARRAY_TOKEN" "$ARRAY_URL$(printf %s "$VOLUME_SOURCE" | sed 's/.*"path":"//; s/".*//')/content""#;

/// Texts of a program, and those that take their places.
type Edits = &'static [(&'static str, &'static str)];

/// The lines of the programs that mistakes replace.
const TRIES: &str = "TRIES = {\"GET\": 2}";
const FAILS: &str = "        fail(\"retry\", f\"the array answered {answer.status} to {method} {path}\")";
const POST: &str = "found[0] if found else ask(\"POST\", f\"/{kind}\", body)";
const REMOVE: &str = "    for one in find(kind, name):\n        ask(\"DELETE\"";
const LIST: &str = "volumes = [one for one in ask(\"GET\", \"/volumes\") if len(one[\"name\"]) == 36]";

/// Each mistake in the program of Python.
const WRONG: &[(&str, Case, Edits)] = &[
    ("asks again for a volume", Case::AnswerLost, &[(TRIES, "TRIES = {\"GET\": 2, \"POST\": 2}")]),
    (
        "deletes the first of two volumes, and lists one",
        Case::AnswerLost,
        &[
            (TRIES, "TRIES = {\"GET\": 2, \"POST\": 2}"),
            (REMOVE, "    for one in find(kind, name)[:1]:\n        ask(\"DELETE\""),
            (LIST, "volumes = list({one[\"name\"]: one for one in ask(\"GET\", \"/volumes\")}.values())"),
        ],
    ),
    (
        "takes a conflict for a failure",
        Case::AnswerLost,
        &[(POST, "ask(\"POST\", f\"/{kind}\", {**body, \"unique\": True})")],
    ),
    (
        "gives up after a failure of the server",
        Case::ServerFails,
        &[(FAILS, "        fail(\"never\", f\"no {path}\")")],
    ),
    (
        "gives up a snapshot if the server fails in the second attempt, too",
        Case::ServerFails,
        &[(
            FAILS,
            "        is_last = operation == \"snapshot\" and env[\"ATTEMPT\"] != \"1\"\n        fail(\"never\" if is_last else \"retry\", f\"no {path}\")",
        )],
    ),
    (
        "takes a failure at a deletion for gone",
        Case::ServerFails,
        &[(
            FAILS,
            "        if operation == \"delete\":\n            return []\n        fail(\"retry\", f\"no {path}\")",
        )],
    ),
    (
        "takes a failure for an empty list",
        Case::ServerFails,
        &[(FAILS, "        if operation == \"list\":\n            return []\n        fail(\"retry\", f\"no {path}\")")],
    ),
    (
        "takes a failure for a missing volume",
        Case::ServerFails,
        &[(FAILS, "        if method == \"GET\":\n            return []\n        fail(\"retry\", f\"no {path}\")")],
    ),
    (
        "prints its token with a failure",
        Case::ServerFails,
        &[(FAILS, "        print(method, path, headers, flush=True)\n        fail(\"retry\", f\"no {path}\")")],
    ),
    (
        "gives a new volume another name for a while",
        Case::KilledAtAnswer,
        &[(
            POST,
            "found[0] if found else ask(\"POST\", f\"/{kind}\", {**body, \"name\": \"tmp-\" + os.urandom(4).hex()})\n    one = ready(kind, one)\n    ask(\"PATCH\", f\"/{kind}/{one['id']}\", {\"name\": body[\"name\"]})",
        )],
    ),
    (
        "waits a second, and asks again",
        Case::ServerSlow,
        &[(TRIES, "TRIES = {\"GET\": 2, \"POST\": 2}"), ("timeout=30", "timeout=1")],
    ),
    (
        "takes nothing to delete for a failure",
        Case::DeleteTwice,
        &[(
            REMOVE,
            "    if not find(kind, name):\n        fail(\"retry\", \"there is none\")\n    for one in find(kind, name):\n        ask(\"DELETE\"",
        )],
    ),
    (
        "creates a volume before it is ready",
        Case::VolumeIsLast,
        &[("while one[\"state\"] != \"ready\":", "while False:")],
    ),
    ("makes empty clones", Case::CloneContent, &[("if env.get(\"CLONE_OF\"):", "if False:")]),
    (
        "makes empty snapshots",
        Case::SnapshotRestore,
        &[("{\"name\": snapshot_id, \"volume\": source(\"volumes\", volume_id)}", "{\"name\": snapshot_id}")],
    ),
    (
        "makes the volume anew when it grows",
        Case::Expand,
        &[(
            "            ask(\"PATCH\", f\"/volumes/{volume['id']}\", {\"bytes\"",
            "            remove(\"volumes\", volume_id)\n            make(\"volumes\", {\"name\": volume_id, \"bytes\"",
        )],
    ),
    (
        "makes each volume one MiB",
        Case::Sizes,
        &[("\"bytes\": int(env[\"SIZE_BYTES\"])}\n    if", "\"bytes\": 1 << 20}\n    if")],
    ),
];

/// Each mistake in the program of the shell.
const WRONG_SHELL: &[(&str, Case, Edits)] = &[
    ("gives up after a failure", Case::ServerFails, &[("exec flex-pv fail retry", "exec flex-pv fail never")]),
    ("reads no status", Case::ServerFails, &[("curl -fsS", "curl -sS")]),
    ("lists what it has got", Case::LineCut, &[("found=$(must GET /volumes)", "found=$(ask GET /volumes || :)")]),
    (
        "makes a volume without a look",
        Case::AnswerLost,
        &[("    if [ -z \"$one\" ]; then\n        from", "    if true; then\n        from")],
    ),
    ("lets its client ask again", Case::AnswerLost, &[("curl -fsS", "curl -fsS --retry 2 --retry-all-errors")]),
];

/// An array, with the config of its programs.
struct Stand {
    array: Array,
    files: Files,
    config: String,
}

impl Stand {
    fn new() -> Self {
        let (array, files) = (Array::start(), Files::new());
        let labels = "labels: {type: provisioner-config, storage-class: array}";
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: array, namespace: flex-provisioner, {labels}}}\ndata:\n  plugin-name: kubernetes.io/flex-provisioner\n  image: i\n  service-account-name: s\n  secret-env: array\n  capabilities: expand, clone, snapshot, list\n  volume-sources: nfs\n  array-url: {}\n---\napiVersion: v1\nkind: Secret\nmetadata: {{name: array, namespace: flex-provisioner}}\nstringData: {{ARRAY_TOKEN: {}}}\n",
            array.url(),
            Array::TOKEN
        );
        let config = files.write("config.yaml", &text);
        Stand { array, files, config }
    }

    /// Runs cases on a program, and returns the answer of the command, and the id of each case with its outcome and reason.
    fn judged(&self, name: &str, program: &str, cases: &[Case]) -> (Answer, Vec<[String; 3]>) {
        let program = self.files.write(&name.replace([' ', ','], "-"), program);
        let write = CONTENT.replace("curl", "curl -X PUT --data-binary @-");
        let more = ["--front", "array-url", "--read-with", CONTENT, "--write-with", write.as_str()];
        judged(&self.config, &program, cases, &more)
    }

    /// Checks that a program passes cases, but for those with these outcomes, and leaves nothing.
    fn passes(&self, program: &str, cases: &[Case], others: &[&str]) {
        let (answer, outcomes) = self.judged("right", program, cases);
        for [id, outcome, why] in &outcomes {
            assert!(outcome == "passed" || others.contains(&outcome.as_str()), "{id}: {outcome} {why}: {answer:?}");
        }
        assert_eq!(answer.code, Some(0), "{answer:?}");
        assert!(!answer.err.contains("did not speak HTTP"), "{answer:?}");
        assert!(self.array.names().is_empty(), "{:?}", self.array.names());
    }
}

/// Returns a program with a mistake.
fn edited(right: &str, name: &str, edits: &[(&str, &str)]) -> String {
    edits.iter().fold(right.to_owned(), |text, (right, wrong)| {
        assert!(text.contains(right), "{name}: the program has no `{right}`");
        text.replacen(right, wrong, 1)
    })
}

/// Checks that each wrong program fails its case. Several run at one time, because most of them wait.
fn are_found(right: &str, wrong: &[(&str, Case, Edits)]) {
    let missed = |part: &[(&str, Case, Edits)]| {
        let stand = Stand::new();
        let missed = part.iter().filter_map(|(name, case, edits)| {
            let program = edited(right, name, edits);
            let judged = || stand.judged(name, &program, &[*case]).1.remove(0);
            // On a busy machine, a command may come after the moment of the mistake.
            let found = Some(judged()).filter(|[_, outcome, _]| outcome == "failed");
            let [_, outcome, why] = found.unwrap_or_else(judged);
            println!("{}: a program that {name}: {outcome}: {why}", case.id());
            (outcome != "failed").then(|| format!("{}: a program that {name}: {outcome} {why}", case.id()))
        });
        missed.collect::<Vec<String>>()
    };
    let missed: Vec<String> = std::thread::scope(|scope| {
        let missed = &missed;
        let threads: Vec<_> =
            wrong.chunks(wrong.len().div_ceil(4)).map(|part| scope.spawn(move || missed(part))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("each program is judged")).collect()
    });
    let found = wrong.len() - missed.len();
    assert!(missed.is_empty(), "{found} of {} wrong programs are found:\n{}", wrong.len(), missed.join("\n"));
}

#[test]
fn a_right_program_passes_behind_a_front() {
    Stand::new().passes(PYTHON, &BEHIND, &[]);
}

#[test]
fn a_right_shell_script_passes_behind_a_front() {
    Stand::new().passes(SHELL, &BEHIND, &[]);
}

#[test]
fn commands_show_the_content_of_volumes_elsewhere() {
    Stand::new().passes(PYTHON, &ABOUT_CONTENT, &[]);
}

#[test]
fn all_other_cases_pass_with_commands_too() {
    let is_other = |case: &&Case| !BEHIND.contains(case) && !ABOUT_CONTENT.contains(case);
    let others: Vec<Case> = Case::ALL.iter().filter(is_other).copied().collect();
    Stand::new().passes(SHELL, &others, &["skipped", "not-possible"]);
}

#[test]
fn each_wrong_program_for_an_array_is_found_by_its_case() {
    are_found(PYTHON, WRONG);
}

#[test]
fn each_wrong_shell_script_for_an_array_is_found_by_its_case() {
    are_found(SHELL, WRONG_SHELL);
}

#[test]
fn a_call_without_a_server_says_what_is_missing() {
    let stand = Stand::new();
    let program = stand.files.write("right", PYTHON);
    let config = ["--config", stand.config.as_str()];
    for (flags, words) in [
        (vec!["--front", "array"], "neither config and class nor a Secret in the file have the parameter array"),
        (vec!["--front", "ARRAY_TOKEN"], "has no port: name the parameter with the port, too"),
        (vec!["--front", "a,b,c"], "write the name of the parameter"),
        (vec!["--read-with", "cat"], "--write-with"),
    ] {
        let own = ["conformance", "--only", "volume-fits"];
        let words_of_call = [&own[..], &config, &flags, &[program.as_str()]].concat();
        let answer = call(&words_of_call);
        assert!(answer.code == Some(2) && answer.err.contains(words), "{flags:?}: {answer:?}");
    }
    // Without the flag, nobody can lose an answer.
    let own = ["conformance", "--external-storage", "--only", "answer-lost"];
    let answer = call(&[&own[..], &config, &[program.as_str()]].concat());
    assert!(answer.code == Some(0) && answer.out.contains("by --front PARAMETER"), "{answer:?}");
    for flag in ["--front", "--read-with"] {
        let answer = call(&["conformance", "--cluster", flag, "x"]);
        assert!(answer.code == Some(2) && answer.err.contains("cannot be used with"), "{answer:?}");
    }
}

#[test]
fn a_program_that_comes_another_way_to_its_server_is_not_judged() {
    let stand = Stand::new();
    let direct = PYTHON.replace("urlsplit(env[\"ARRAY_URL\"])", &format!("urlsplit(\"{}\")", stand.array.url()));
    let (answer, outcomes) = stand.judged("direct", &direct, &[Case::AnswerLost]);
    let [_, outcome, why] = &outcomes[0];
    assert!(outcome == "not-possible" && why.contains("no run has connected to the address in array-url"), "{why}");
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(stand.array.names().is_empty(), "{:?}", stand.array.names());
}

//! Tests of `conformance` with a front before a server: right programs for an HTTP array.

use flex_desk::conformance::Case;

use crate::array::Array;
use crate::{Answer, Files, call, judged};

/// Programs that keep the contract.
pub(crate) const PYTHON: &str = include_str!("wrong/http_array.py");
pub(crate) const SHELL: &str = include_str!("wrong/http_array.sh");

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

/// An array, with the config of its programs.
pub(crate) struct Stand {
    array: Array,
    files: Files,
    config: String,
}

impl Stand {
    pub(crate) fn new() -> Self {
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
    pub(crate) fn judged(&self, name: &str, program: &str, cases: &[Case]) -> (Answer, Vec<[String; 3]>) {
        let program = self.files.write(name, program);
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

//! The files of a new provisioner: a pure function of its name, its language and its operations.

use clap::ValueEnum;

use super::template::rendered;
use crate::schema::ADDRESS;

/// The operations that the program can have beside provision and delete, by the names of their capabilities.
pub(super) const OPERATIONS: [&str; 5] = ["expand", "clone", "snapshot", "list", "capacity"];

/// A language for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// A shell script.
    Shell,
    /// A program in Rust, with its standard library alone.
    Rust,
    /// A program in Go, with its standard library alone.
    Go,
    /// A program in Python, with its standard library alone.
    Python,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// The path in the new directory.
    pub path: &'static str,
    /// The text.
    pub text: String,
    /// The file is a program.
    pub executable: bool,
}

/// A file with its template.
type Template = (&'static str, &'static str);

/// The files that all languages have.
const COMMON: [Template; 5] = [
    ("config.yaml", include_str!("templates/config.yaml.txt")),
    ("storageclass.yaml", include_str!("templates/storageclass.yaml.txt")),
    ("claim.yaml", include_str!("templates/claim.yaml.txt")),
    ("test.sh", include_str!("templates/test.sh.txt")),
    (".github/workflows/conformance.yaml", include_str!("templates/ci.yaml.txt")),
];

impl Language {
    /// Returns the file with the program.
    pub(super) fn source(self) -> &'static str {
        self.templates()[0].0
    }

    fn templates(self) -> &'static [Template] {
        match self {
            Language::Shell => &[
                ("provision.sh", include_str!("templates/shell/provision.sh.txt")),
                ("Dockerfile", include_str!("templates/shell/Dockerfile.txt")),
            ],
            Language::Python => &[
                ("provision.py", include_str!("templates/python/provision.py.txt")),
                ("Dockerfile", include_str!("templates/python/Dockerfile.txt")),
            ],
            Language::Go => &[
                ("main.go", include_str!("templates/go/main.go.txt")),
                ("go.mod", include_str!("templates/go/go.mod.txt")),
                ("Dockerfile", include_str!("templates/go/Dockerfile.txt")),
            ],
            Language::Rust => &[
                ("src/main.rs", include_str!("templates/rust/main.rs.txt")),
                ("Cargo.toml", include_str!("templates/rust/Cargo.toml.txt")),
                ("Dockerfile", include_str!("templates/rust/Dockerfile.txt")),
            ],
        }
    }

    /// Returns the command that builds the program, and the path of the program.
    fn build(self, name: &str) -> (&'static str, String) {
        match self {
            Language::Shell => ("sh -n provision.sh", "./provision.sh".into()),
            Language::Python => ("python3 -m py_compile provision.py", "./provision.py".into()),
            Language::Go => ("CGO_ENABLED=0 go build -o build/provision .", "build/provision".into()),
            // The program's place does not depend on cargo's settings for this machine.
            Language::Rust => {
                ("cargo install --quiet --debug --force --path . --root build", format!("build/bin/{name}"))
            }
        }
    }
}

/// Returns the files of a provisioner.
pub(super) fn files(name: &str, language: Language, operations: &[String]) -> Vec<File> {
    let (build, program) = language.build(name);
    let mut capabilities: Vec<&str> = operations.iter().map(String::as_str).collect();
    capabilities.sort_unstable();
    capabilities.dedup();
    let list = capabilities.join(", ");
    let names = [
        ("NAME", name),
        ("CAPABILITIES", &list),
        ("BUILD", build),
        ("PROGRAM", &program),
        ("VERSION", env!("CARGO_PKG_VERSION")),
        ("SCHEMA", ADDRESS),
    ];
    let any = ["any"].into_iter().filter(|_| !capabilities.is_empty());
    let chosen: Vec<&str> = capabilities.iter().copied().chain(any).collect();
    let all = language.templates().iter().chain(&COMMON);
    all.map(|(path, template)| File {
        path,
        text: rendered(template, &names, &chosen),
        executable: template.starts_with("#!"),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mark_of_a_template_is_left() {
        let all: Vec<String> = OPERATIONS.map(str::to_owned).into();
        for language in Language::value_variants() {
            for operations in [&all[..], &[]] {
                for file in files("mine", *language, operations) {
                    let left = file.text.lines().find(|line| line.contains("%NAME") || line.trim().starts_with("%if"));
                    assert_eq!(left, None, "{language:?} {}", file.path);
                }
            }
        }
    }

    /// The action takes the tool of this version, and calls the test that stands beside the workflow.
    #[test]
    fn the_build_server_uses_the_action_of_this_version() {
        let all = files("mine", Language::Shell, &[]);
        let workflow = &all.iter().find(|file| file.path.starts_with(".github/")).unwrap().text;
        let action = include_str!("../../../../.github/actions/conformance/action.yml");
        let called = workflow.split_once("/.github/actions/conformance@").unwrap().1;
        let (_, inputs) = called.split_once("with:\n").unwrap();
        let inputs: Vec<_> = inputs.lines().map_while(|line| line.strip_prefix("        ")?.split_once(": ")).collect();
        let version = concat!("v", env!("CARGO_PKG_VERSION"));
        assert!(inputs.contains(&("version", version)) && inputs.contains(&("command", "./test.sh")), "{inputs:?}");
        for (name, _) in inputs {
            assert!(action.contains(&format!("\n  {name}:\n")), "the action has no input {name}");
        }
    }

    /// Anybody can open a pull request, and its program runs there.
    #[test]
    fn the_build_server_gives_a_pull_request_few_rights_and_runs_only_pinned_actions() {
        let all = files("mine", Language::Shell, &[]);
        let workflow = &all.iter().find(|file| file.path.starts_with(".github/")).unwrap().text;
        assert!(!workflow.contains("sudo") && !workflow.contains("pull_request_target"), "{workflow}");
        assert!(workflow.contains("permissions:\n  contents: read\n"), "{workflow}");
        let actions: Vec<&str> =
            workflow.lines().filter_map(|line| line.split_once("uses: ")).map(|(_, it)| it).collect();
        assert_eq!(actions.len(), 3);
        for action in actions {
            let commit = action.split_once('@').map_or("", |(_, rest)| rest.split(' ').next().unwrap_or_default());
            assert!(commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{action}");
        }
    }

    #[test]
    fn only_chosen_operations_are_declared_and_written() {
        let text = |operations: &[&str], path: &str| {
            let operations: Vec<String> = operations.iter().map(|name| (*name).to_owned()).collect();
            let files = files("mine", Language::Shell, &operations);
            files.into_iter().find(|file| file.path == path).unwrap().text
        };
        assert!(text(&["list", "clone"], "config.yaml").contains("capabilities: clone, list\n"));
        assert!(!text(&[], "config.yaml").contains("\n  capabilities:"));
        assert!(!text(&["list"], "provision.sh").contains("flex-pv copy"));
    }
}

//! `validate`: checks files as the orchestrator checks the cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use flex_core::config::classes::{ClassObject, Classes, Config, Identity, classes};
use flex_core::config::document::{self, Document, Documents, Lines};
use flex_core::config::external_provisioner::ExternalProvisioners;
use flex_core::config::{common_mistakes, keys, labels, script, spelling};
use flex_core::object::ObjectName;
use flex_provisioner::flags::Names;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::files::{expand, read, shown};
use crate::flags::{self, FlexNamespaces, Output};
use crate::out::say;
use crate::shell::{self, Remark};

#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// Files or directories with provisioner ConfigMaps and the StorageClasses that use them; `-` for standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    namespaces: FlexNamespaces,
}

/// A file to check.
struct File {
    name: String,
    text: String,
    /// The command line names the file itself, and not its directory.
    named: bool,
}

/// A message about a place in a file.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    file: String,
    line: u64,
    severity: &'static str,
    message: String,
}

/// A config in a file.
struct Found {
    config: Config,
    file: String,
    lines: Lines,
}

/// The first line of an object in a file.
struct FileLine {
    file: String,
    line: u64,
}

/// The contents of all files, and the messages about them.
#[derive(Default)]
struct CheckedFiles {
    configs: Vec<Found>,
    objects: Vec<ClassObject>,
    /// The place of each StorageClass.
    classes: BTreeMap<String, FileLine>,
    messages: Vec<Message>,
}

pub(super) fn validate(args: ValidateArgs) -> anyhow::Result<ExitCode> {
    let ValidateArgs { files, output, names, namespaces } = args;
    let mut texts = Vec::new();
    for path in expand(&files)? {
        texts.push(File { name: shown(&path), text: read(&path)?, named: files.contains(&path) });
    }
    let CheckedFiles { configs, messages, .. } = check(&texts, &flags::identity(&names, &namespaces.into()));
    print(&messages, configs.len(), output)?;
    let failed = messages.iter().any(|message| message.severity == "error");
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Checks files for an orchestrator with these names and config namespaces.
fn check(files: &[File], identity: &Identity) -> CheckedFiles {
    let mut checked = CheckedFiles::default();
    for file in files {
        checked.read(file, identity);
    }
    // The configs of all namespaces are checked. A message of its own names those that the orchestrator would not read.
    let config_namespaces = checked.configs.iter().map(|found| found.config.name.namespace.clone()).collect();
    let everywhere = Identity { config_namespaces, ..identity.clone() };
    let configs = checked.configs.iter().map(|found| &found.config);
    let table = classes(&everywhere, configs, &checked.objects, &BTreeMap::new(), &ExternalProvisioners::none());
    checked.judge(&table, identity);
    let nothing = checked.configs.is_empty() && !checked.messages.iter().any(|message| message.severity == "error");
    if nothing && let Some(file) = files.first() {
        let message = "no provisioner ConfigMap was found, so nothing is checked; such a ConfigMap has the labels `type: provisioner-config` and `storage-class: CLASS`";
        checked.report(&file.name, 1, "error", message);
    } else if files.is_empty() {
        checked.report(
            "",
            0,
            "error",
            "no file was found in these directories; names of YAML files end with .yaml or .yml",
        );
    }
    checked.messages.sort_by(|a, b| (&a.file, a.line, a.severity).cmp(&(&b.file, b.line, b.severity)));
    checked
}

impl CheckedFiles {
    fn report(&mut self, file: &str, line: u64, severity: &'static str, message: impl Into<String>) {
        self.messages.push(Message { file: file.to_owned(), line, severity, message: message.into() });
    }

    fn read(&mut self, file: &File, identity: &Identity) {
        let before = (self.configs.len(), self.objects.len(), self.messages.len());
        let Documents { read: documents, unreadable } = document::read(&file.text);
        for error in unreadable {
            self.report(&file.name, error.line, "error", error.problem.to_string());
        }
        let mut accounts = Vec::new();
        for document in documents {
            match document {
                Document::Config(map, lines) => self.config(file, &map, lines, identity),
                Document::Class(class, lines) => {
                    let object = ClassObject::from(&*class);
                    let place = FileLine { file: file.name.clone(), line: lines.of("") };
                    self.classes.insert(object.name.clone(), place);
                    self.objects.push(object);
                }
                Document::Account(name) => accounts.push(name),
                Document::Other(kind, line) => self.other(file, &kind, line),
                Document::Claim(_) => {}
            }
        }
        for found in &self.configs[before.0..] {
            if let Some(message) = account(&found.config, &accounts) {
                const KEY: &str = keys::SERVICE_ACCOUNT_NAME.name;
                let (line, severity) = (found.lines.of(KEY), "warning");
                let message = format!("{KEY}: {message}");
                self.messages.push(Message { file: file.name.clone(), line, severity, message });
            }
        }
        if file.named && before == (self.configs.len(), self.objects.len(), self.messages.len()) {
            let message = "has no provisioner ConfigMap and no StorageClass, so nothing in this file is checked";
            self.report(&file.name, 1, "warning", message);
        }
    }

    fn config(&mut self, file: &File, map: &ConfigMap, lines: Lines, identity: &Identity) {
        let mut config = Config::from(map);
        let (ours, name) = (labels::is_marked(&map.metadata), config.name.name.clone());
        if !ours {
            let Some(why) = labels::unmarked(map) else { return };
            let message = format!(
                "ConfigMap {name} {why}, and the provisioner does not see it; write the label `type: provisioner-config`"
            );
            self.report(&file.name, lines.of(""), "warning", message);
        }
        let namespaces = &identity.config_namespaces;
        let usual = namespaces.first().cloned().unwrap_or_default();
        if config.name.namespace.is_empty() {
            let message = format!(
                "ConfigMap {name} names no namespace, so it gets the namespace of kubectl's context; write `namespace: {usual}`"
            );
            self.report(&file.name, lines.of(""), "warning", message);
            config.name.namespace = usual;
        } else if !namespaces.contains(&config.name.namespace) {
            let (own, known) = (&config.name.namespace, namespaces.join(", "));
            let message = format!(
                "ConfigMap {name} is in the namespace {own}, where the provisioner does not look; write `namespace: {usual}`. If the orchestrator has `--config-namespace {own}`, give it to `validate`, too; looked for in {known}"
            );
            self.report(&file.name, lines.of(""), "warning", message);
        }
        if let Some(at) = self.configs.iter().position(|found| found.config.name == config.name) {
            let (here, Found { file: other, lines, .. }) = (lines.of(""), self.configs.remove(at));
            let message = format!(
                "ConfigMap {} is in {}:{}, too, and the ConfigMap that is applied last counts; give one of them another name",
                config.name, file.name, here
            );
            self.report(&other, lines.of(""), "warning", message);
        }
        self.script(file, &lines, &config.data);
        // In a file, the earlier config counts as the older one.
        config.created = format!("{:09}", self.configs.len());
        self.configs.push(Found { config, file: file.name.clone(), lines });
    }

    fn other(&mut self, file: &File, kind: &str, line: u64) {
        if kind == "List" {
            let message = "is a List, and `validate` does not look into Lists; write its items as documents of their own, with `---` between them";
            return self.report(&file.name, line, "error", message);
        }
        let meant = ["ConfigMap", "StorageClass"].into_iter().find(|known| spelling::reads_like(kind, known));
        if let Some(meant) = meant {
            self.report(
                &file.name,
                line,
                "error",
                format!("`{kind}` is not a kind of object; did you mean `{meant}`?"),
            );
        }
    }

    /// Adds the messages that follow from the table of classes.
    fn judge(&mut self, table: &Classes, identity: &Identity) {
        let mut messages = Vec::new();
        for Found { config, file, lines } in &self.configs {
            let Some(verdict) = table.verdicts.get(&config.name) else {
                let near =
                    common_mistakes::near_plugin(&config.data, &identity.plugin).map(|problem| problem.to_string());
                let message = near.unwrap_or_else(|| {
                    format!(
                        "ConfigMap {} is meant for another plugin than {}, so it is ignored",
                        config.name, identity.plugin
                    )
                });
                messages.push(Message {
                    file: file.clone(),
                    line: lines.of(keys::PLUGIN_NAME.name),
                    severity: "warning",
                    message,
                });
                continue;
            };
            let problems = verdict.problems.iter().map(|problem| ("error", problem));
            for (severity, problem) in problems.chain(verdict.warnings.iter().map(|warning| ("warning", warning))) {
                let message = problem.to_string();
                messages.push(Message { file: file.clone(), line: lines.of(&problem.key), severity, message });
            }
        }
        for class in table.iter().filter(|class| class.has_object) {
            if let (Err(why), Some(FileLine { file, line })) = (&class.recipe, self.classes.get(&class.name)) {
                let message = format!("StorageClass {}: {why}", class.name);
                messages.push(Message { file: file.clone(), line: *line, severity: "error", message });
            }
        }
        self.messages.extend(messages);
    }

    /// Adds what a shell says of the script in a config.
    fn script(&mut self, file: &File, lines: &Lines, data: &BTreeMap<String, String>) {
        const KEY: &str = keys::SCRIPT.name;
        let text = data.get(KEY).filter(|text| script::mistake(text).is_none());
        for Remark { line, is_error, message } in text.map(|text| shell::remarks(text)).unwrap_or_default() {
            let severity = if is_error { "error" } else { "warning" };
            match lines.within(KEY, &file.text, line) {
                Some(line) => self.report(&file.name, line, severity, format!("{KEY}: {message}")),
                None => {
                    let message = format!("{KEY}: line {line} of the script: {message}");
                    self.report(&file.name, lines.of(KEY), severity, message);
                }
            }
        }
    }
}

/// Returns the message if a config names a ServiceAccount that is not among those in the files. Without any
/// ServiceAccount in the files, the accounts are elsewhere.
fn account(config: &Config, accounts: &[ObjectName]) -> Option<String> {
    let named =
        config.data.get(keys::SERVICE_ACCOUNT_NAME.name).map(|name| name.trim()).filter(|name| !name.is_empty())?;
    let here = |account: &&ObjectName| account.namespace == config.name.namespace || account.namespace.is_empty();
    if accounts.is_empty() || accounts.iter().filter(here).any(|account| account.name == named) {
        return None;
    }
    let escaped = |account: &ObjectName| match account.namespace.as_str() {
        "" => account.name.clone(),
        _ => account.to_string(),
    };
    let others = accounts.iter().map(escaped).collect::<Vec<_>>().join(", ");
    let message = format!(
        "no ServiceAccount `{named}` of the namespace {} is in this file, which has {others}; without it, Kubernetes creates no pod",
        config.name.namespace
    );
    Some(message)
}

fn print(messages: &[Message], configs: usize, output: Output) -> anyhow::Result<()> {
    let errors = messages.iter().filter(|message| message.severity == "error").count();
    let document = || {
        let list: Vec<_> = messages
            .iter()
            .map(|f| json!({ "file": f.file, "line": f.line, "severity": f.severity, "message": f.message }))
            .collect();
        json!({ "configs": configs, "errors": errors, "findings": list })
    };
    match output.document(document)? {
        Some(document) => say!("{document}"),
        None => {
            for Message { file, line, severity, message } in messages {
                say!("{file}:{line}: {severity}: {message}");
            }
            say!("{configs} provisioner configs checked: {errors} errors, {} warnings", messages.len() - errors);
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;

//! `validate`: the check of `run`, on files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::{Names, Namespaces, Output, expand, read, shown};
use crate::config::classes::{ClassObject, Config, classes};
use crate::config::document::{self, Document, Lines};
use crate::config::sidecar::Sidecars;
use crate::object::ObjectName;

#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// Files or directories with provisioner ConfigMaps, and the StorageClasses that use them; `-` for standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The form of the answer.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    names: Names,
}

/// Something to say about a place in a file.
struct Finding {
    file: String,
    line: u64,
    severity: &'static str,
    message: String,
}

pub(super) fn validate(args: ValidateArgs) -> anyhow::Result<ExitCode> {
    let ValidateArgs { files, output, names } = args;
    let mut findings = Vec::new();
    let mut configs: Vec<(Config, String, Lines)> = Vec::new();
    let mut objects = Vec::new();
    for path in expand(&files)? {
        let file = shown(&path);
        let (documents, unreadable) = document::read(&read(&path)?);
        findings.extend(unreadable.into_iter().map(|error| Finding {
            file: file.clone(),
            line: error.line,
            severity: "error",
            message: error.problem.to_string(),
        }));
        for document in documents {
            match document {
                Document::Config(map, lines) => {
                    let mut config = Config::from(&*map);
                    let is_ours = map.metadata.labels.as_ref().is_some_and(|labels| {
                        labels
                            .get(contract::names::LABEL_TYPE)
                            .is_some_and(|value| value == contract::names::LABEL_TYPE_CONFIG)
                    });
                    if !is_ours {
                        findings.push(Finding {
                            file: file.clone(),
                            line: lines.of(""),
                            severity: "warning",
                            message: format!(
                                "ConfigMap {} lacks the label `type: provisioner-config` and would be ignored",
                                config.name.name
                            ),
                        });
                    }
                    if config.name.namespace.is_empty() {
                        config.name.namespace = "default".into();
                    }
                    // In a file the earlier one is the older.
                    config.created = format!("{:09}", configs.len());
                    configs.push((config, file.clone(), lines));
                }
                Document::Class(class) => objects.push(ClassObject::from(&*class)),
                Document::Claim(_) | Document::Other(_) => {}
            }
        }
    }
    let namespaces = Namespaces {
        namespace: "flex-provisioner".into(),
        config_namespaces: configs.iter().map(|(config, ..)| config.name.namespace.clone()).collect(),
    };
    let identity = names.identity(&namespaces);
    let all = configs.iter().map(|(config, ..)| config);
    let table = classes(&identity, all, &objects, &BTreeMap::new(), &Sidecars::none());
    let places: BTreeMap<&ObjectName, (&String, &Lines)> =
        configs.iter().map(|(config, file, lines)| (&config.name, (file, lines))).collect();
    for (name, verdict) in &table.verdicts {
        let Some((file, lines)) = places.get(name) else { continue };
        let problems = verdict.problems.iter().map(|problem| ("error", problem));
        for (severity, problem) in problems.chain(verdict.warnings.iter().map(|warning| ("warning", warning))) {
            findings.push(Finding {
                file: (*file).clone(),
                line: lines.of(&problem.key),
                severity,
                message: problem.to_string(),
            });
        }
    }
    for (config, file, lines) in configs.iter().filter(|(config, ..)| !table.verdicts.contains_key(&config.name)) {
        findings.push(Finding {
            file: file.clone(),
            line: lines.of("plugin-name"),
            severity: "warning",
            message: format!(
                "ConfigMap {} is meant for another plugin than {} and is left alone",
                config.name, identity.plugin
            ),
        });
    }
    for class in table.iter() {
        if let Err(why) = &class.recipe
            && class.has_object
        {
            findings.push(Finding {
                file: "StorageClass".into(),
                line: 0,
                severity: "error",
                message: format!("{}: {why}", class.name),
            });
        }
    }
    findings.sort_by(|a, b| (&a.file, a.line, a.severity).cmp(&(&b.file, b.line, b.severity)));
    print(&findings, configs.len(), output);
    let failed = findings.iter().any(|finding| finding.severity == "error");
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(findings: &[Finding], configs: usize, output: Output) {
    let errors = findings.iter().filter(|finding| finding.severity == "error").count();
    match output {
        Output::Json => {
            let list: Vec<_> = findings
                .iter()
                .map(|f| json!({ "file": f.file, "line": f.line, "severity": f.severity, "message": f.message }))
                .collect();
            println!("{}", json!({ "configs": configs, "errors": errors, "findings": list }));
        }
        Output::Table => {
            for Finding { file, line, severity, message } in findings {
                println!("{file}:{line}: {severity}: {message}");
            }
            println!("{configs} provisioner configs checked: {errors} errors, {} warnings", findings.len() - errors);
        }
    }
}

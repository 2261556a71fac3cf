//! The checks of a cluster before and after the installation: pure judgements on facts that a command has read.

pub mod pods;
pub mod rights;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::config::classes::{Classes, Identity};
use crate::findings::Finding;
use crate::policies::{CheckedPolicy, INSTALL, PolicyKind};

/// The oldest Kubernetes that the orchestrator works with: major and minor version.
pub const OLDEST: (u32, u32) = (1, 33);

/// The command that installs or repairs the objects of the orchestrator.
const APPLY: &str = "kubectl apply -k deploy/kustomize, or helm upgrade";

/// The result of a check, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Mark {
    /// Nothing is to be done.
    Ok,
    /// The orchestrator works, but something is off or not known.
    Warning,
    /// The orchestrator, or one of its classes, does not work.
    Failed,
}

impl Mark {
    /// Returns the symbol of the mark, for people.
    pub fn symbol(self) -> char {
        match self {
            Mark::Ok => '✓',
            Mark::Warning => '‼',
            Mark::Failed => '✗',
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The result.
    pub mark: Mark,
    /// The subject of the check, such as `policies`.
    pub check: &'static str,
    /// A sentence about the state of the subject.
    pub found: String,
    /// The way to mend it; `None` if there is nothing to mend.
    pub remedy: Option<String>,
}

impl Line {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Line { mark: Mark::Ok, check, found: found.into(), remedy: None }
    }

    fn warning(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Line { mark: Mark::Warning, check, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn failed(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Line { mark: Mark::Failed, check, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// Says that a check could not be made. `why` is the answer of the API server.
    pub fn unknown(check: &'static str, why: &str) -> Self {
        let remedy = "run the command as somebody who may read this, such as a cluster admin";
        Line::warning(check, format!("this could not be checked: {why}"), remedy)
    }
}

/// Judges the version of the API server, such as `1` and `36+`. `error` says why the API server does not answer.
pub fn server(version: Result<(&str, &str), &str>) -> Line {
    const CHECK: &str = "kubernetes";
    let (major, minor) = match version {
        Ok(version) => version,
        Err(error) => {
            let remedy = "see that KUBECONFIG names a cluster that answers: kubectl version";
            return Line::failed(CHECK, format!("the API server does not answer: {error}"), remedy);
        }
    };
    let number = |text: &str| text.trim_end_matches('+').parse::<u32>().ok();
    let (oldest, newer) = (format!("{}.{}", OLDEST.0, OLDEST.1), format!("Kubernetes {major}.{minor}"));
    match number(major).zip(number(minor)) {
        Some(version) if version >= OLDEST => Line::ok(CHECK, newer),
        Some(_) => Line::failed(
            CHECK,
            format!("{newer} is too old"),
            format!("upgrade the cluster to Kubernetes {oldest} or newer"),
        ),
        None => Line::warning(
            CHECK,
            format!("{newer} is no version that this command knows"),
            format!("see that it is compatible with Kubernetes {oldest}"),
        ),
    }
}

/// Judges the rights of the person who installs. `missing` names the objects that this person may not create.
pub fn rights_to_install(missing: &[String]) -> Line {
    const CHECK: &str = "rights";
    match missing {
        [] => Line::ok(CHECK, "you may create all objects of the installation"),
        missing => Line::failed(
            CHECK,
            format!("you may not create: {}", missing.join(", ")),
            "install as a cluster admin, or ask one",
        ),
    }
}

/// Judges the rights of the orchestrator's account. `missing` names the requests that RBAC does not allow it.
pub fn rights_of_account(account: &str, missing: &[String]) -> Line {
    const CHECK: &str = "rights";
    match missing {
        [] => Line::ok(CHECK, format!("ServiceAccount {account} has all rights of the orchestrator")),
        missing => Line::failed(CHECK, format!("ServiceAccount {account} may not: {}", missing.join(", ")), APPLY),
    }
}

/// Judges whether the API server serves the kinds of admission policies. `served` says whether it serves a kind.
pub fn policy_kinds(served: impl Fn(PolicyKind) -> bool) -> Line {
    const CHECK: &str = "policies";
    let missing: Vec<_> = [PolicyKind::Mutating, PolicyKind::Validating]
        .into_iter()
        .filter(|kind| !served(*kind))
        .map(PolicyKind::policy)
        .collect();
    match missing[..] {
        [] => Line::ok(CHECK, "the API server serves both kinds of admission policies"),
        _ => Line::warning(
            CHECK,
            format!("the API server does not serve: {}", missing.join(", ")),
            "the provisioner works without these policies; docs/operations.md says what is off, and how a cluster before Kubernetes 1.36 serves them",
        ),
    }
}

/// Judges the installed policies: a line for each that has no effect, or one for all.
pub fn policies(states: &[CheckedPolicy]) -> Vec<Line> {
    const CHECK: &str = "policies";
    let off = states.iter().filter(|checked| !checked.state.is_installed());
    let lines: Vec<_> = off
        .map(|CheckedPolicy { policy, state }| {
            Line::warning(CHECK, format!("{} is {}: {}", policy.name, state.describe(), policy.without), INSTALL)
        })
        .collect();
    if lines.is_empty() { vec![Line::ok(CHECK, "all admission policies are installed")] } else { lines }
}

/// Judges whether the API server serves VolumeSnapshots.
pub fn snapshot_kinds(served: bool) -> Line {
    const CHECK: &str = "snapshots";
    match served {
        true => Line::ok(CHECK, "the API server serves VolumeSnapshots"),
        false => Line::warning(
            CHECK,
            "the API server does not serve VolumeSnapshots: classes can have no snapshots",
            "install the CRDs and the snapshot controller of kubernetes-csi/external-snapshotter, or do without snapshots",
        ),
    }
}

/// Objects with a name that the orchestrator would use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenNames {
    /// A CSIDriver has the provisioner's name, and another program made it.
    pub foreign_driver: bool,
    /// Namespaces with the Lease of an orchestrator that has the same instance id.
    pub other_namespaces: Vec<String>,
}

/// Judges whether somebody else uses the names of the orchestrator.
pub fn taken_names(identity: &Identity, taken: &TakenNames) -> Vec<Line> {
    const CHECK: &str = "names";
    let mut lines = Vec::new();
    if taken.foreign_driver {
        lines.push(Line::failed(
            CHECK,
            format!("another program has registered the CSI driver {}", identity.provisioner),
            "give the orchestrator another name with --provisioner-name",
        ));
    }
    if !taken.other_namespaces.is_empty() {
        lines.push(Line::failed(
            CHECK,
            format!(
                "an orchestrator with the instance id {} is installed in namespace {} already",
                identity.instance,
                taken.other_namespaces.join(", ")
            ),
            "give one of them another id with --instance, and another name with --provisioner-name",
        ));
    }
    if lines.is_empty() {
        let found = format!("nobody else uses the names {} and {}", identity.provisioner, identity.instance);
        lines.push(Line::ok(CHECK, found));
    }
    lines
}

/// Judges the default StorageClasses of the cluster.
pub fn default_classes(names: &[String]) -> Line {
    const CHECK: &str = "default class";
    match names {
        [] => Line::ok(CHECK, "no StorageClass is the default: each claim names its class"),
        [name] => Line::ok(CHECK, format!("StorageClass {name} is the default")),
        names => Line::warning(
            CHECK,
            format!("{} StorageClasses are the default: {}", names.len(), names.join(", ")),
            "kubectl annotate storageclass NAME storageclass.kubernetes.io/is-default-class- for all but one; Kubernetes takes the newest",
        ),
    }
}

/// Judges the leader by the finding that nobody leads, if there is one.
pub fn leader(missing: Option<&Finding>, holder: Option<&str>) -> Line {
    const CHECK: &str = "leader";
    match missing {
        Some(finding) => Line::failed(CHECK, finding.detail.clone(), finding.remedy.clone()),
        None => Line::ok(CHECK, format!("{} leads", holder.unwrap_or("an orchestrator"))),
    }
}

/// Judges the provisioner configs: a line for each that is refused or has warnings, and one for all that are valid.
pub fn configs(identity: &Identity, classes: &Classes) -> Vec<Line> {
    const CHECK: &str = "configs";
    if classes.verdicts.is_empty() {
        let namespaces = identity.config_namespaces.join(", ");
        return vec![Line::warning(
            CHECK,
            format!("no provisioner config is in namespace {namespaces}: no class is served"),
            "kubectl apply -f one of configmaps/*.yaml, or see docs/config.md",
        )];
    }
    let mut lines = Vec::new();
    let mut valid = Vec::new();
    for (name, verdict) in &classes.verdicts {
        let words = |problems: &[crate::config::Problem]| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        if !verdict.problems.is_empty() {
            let remedy = format!("correct it: kubectl -n {} edit configmap {}", name.namespace, name.name);
            lines.push(Line::failed(CHECK, format!("{name} is refused: {}", words(&verdict.problems)), remedy));
        } else if !verdict.warnings.is_empty() {
            let remedy = format!("look at it: kubectl -n {} get configmap {} -o yaml", name.namespace, name.name);
            lines.push(Line::warning(CHECK, format!("{name} is accepted, but: {}", words(&verdict.warnings)), remedy));
        } else {
            valid.push(name.to_string());
        }
    }
    if !valid.is_empty() {
        lines.insert(0, Line::ok(CHECK, format!("{} valid: {}", valid.len(), valid.join(", "))));
    }
    lines
}

/// The nodes that have an image, and the answers of the kubelets that could not pull it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageState {
    /// The number of nodes that list the image.
    pub nodes: usize,
    /// The message of a pod that waits for the image.
    pub error: Option<String>,
}

/// Judges the images of the configs and of the orchestrator, by name.
pub fn images(images: &BTreeMap<String, ImageState>) -> Vec<Line> {
    const CHECK: &str = "images";
    let of_one = |(image, state): (&String, &ImageState)| match state {
        ImageState { error: Some(error), .. } => Line::failed(
            CHECK,
            format!("a node cannot pull {image}: {error}"),
            "correct `image` in the config, push the image, or see that the nodes may pull it (`image-pull-secrets`)",
        ),
        ImageState { nodes: 0, .. } => Line::warning(
            CHECK,
            format!("no node lists {image}: the first claim will show whether nodes can pull it"),
            "run the command with --pull, which pulls the image on a node",
        ),
        ImageState { nodes, .. } => Line::ok(CHECK, format!("{image} is on {nodes} of the nodes")),
    };
    images.iter().map(of_one).collect()
}

#[cfg(test)]
mod tests;

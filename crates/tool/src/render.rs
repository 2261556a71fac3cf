//! `render`: prints the Job that a claim would get, without a cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use flex_contract::operation::Operation;
use flex_core::claim::admit::admit;
use flex_core::claim::request::{Attempt, request};
use flex_core::config::classes::{ClassLookup, ClassObject, Classes, Config, Identity, classes};
use flex_core::config::document::{self, Document, Documents};
use flex_core::config::external_provisioner::ExternalProvisioners;
use flex_core::config::keys;
use flex_core::config::topology::Topologies;
use flex_core::model::claim::Claim;
use flex_core::run::job::{RunTarget, job};
use flex_core::run::script::{Texts, complete};
use flex_manifest::to_yaml;
use flex_provisioner::flags::{Names, Namespaces};
use k8s_openapi::api::batch::v1::Job;

use crate::files::{expand, read, shown};
use crate::flags::{self, FlexNamespaces, Output};
use crate::out::{remark, say};

#[derive(Debug, Args)]
pub(super) struct RenderArgs {
    /// Files or directories with a claim, its provisioner ConfigMap and its StorageClass, if there is one.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The node that the scheduler would select.
    #[arg(long)]
    node: Option<String>,
    /// The form of the output: YAML, or JSON.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    namespaces: FlexNamespaces,
}

/// The UID in the output. A claim in a file has none yet.
const UID: &str = flex_contract::names::NO_CLAIM_UID;

pub(super) fn render(args: RenderArgs) -> anyhow::Result<ExitCode> {
    let RenderArgs { files, node, output, names, namespaces } = args;
    let Given { configs, objects, claims } = Given::read(&files)?;
    if claims.is_empty() {
        bail!(
            "no PersistentVolumeClaim in {}; add the file with the claim",
            files.iter().map(|f| shown(f)).collect::<Vec<_>>().join(", ")
        );
    }
    let mut namespaces = Namespaces::from(namespaces);
    if namespaces.config_namespaces.is_empty() {
        namespaces.config_namespaces = configs.iter().map(|config| config.name.namespace.clone()).collect();
    }
    for config in configs.iter().filter(|config| !namespaces.config_namespaces.contains(&config.name.namespace)) {
        let name = &config.name.name;
        remark!("ConfigMap {name} is in none of the namespaces of --config-namespace, so the orchestrator ignores it");
    }
    let identity = flags::identity(&names, &namespaces);
    let table = classes(&identity, &configs, &objects, &BTreeMap::new(), &ExternalProvisioners::none());
    for mut claim in claims {
        if claim.uid.is_empty() {
            claim.uid = UID.into();
        }
        if claim.name.namespace.is_empty() {
            claim.name.namespace = "default".into();
        }
        let job = job_of(&claim, &identity, &table, &configs, node.as_deref().filter(|node| !node.is_empty()))
            .map_err(|why| anyhow::anyhow!("claim {}: {why}", claim.name.name))?;
        match output {
            Output::Json => say!("{}", serde_json::to_string_pretty(&job)?),
            Output::Table | Output::Yaml => say!("---\n{}", to_yaml(&job).map_err(anyhow::Error::msg)?),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The objects in the files.
#[derive(Default)]
pub(super) struct Given {
    configs: Vec<Config>,
    objects: Vec<ClassObject>,
    pub(super) claims: Vec<Claim>,
}

impl Given {
    /// Reads files and directories.
    ///
    /// # Errors
    /// If a file cannot be read, or is not YAML. The message has the line.
    pub(super) fn read(files: &[PathBuf]) -> anyhow::Result<Self> {
        let mut given = Given::default();
        for path in expand(files)? {
            let Documents { read: documents, unreadable } = document::read(&read(&path)?);
            if let Some(error) = unreadable.first() {
                bail!("{}:{}: {}", shown(&path), error.line, error.problem);
            }
            for document in documents {
                match document {
                    Document::Config(map, _) => given.configs.push(Config::from(&*map)),
                    Document::Class(class, _) => given.objects.push(ClassObject::from(&*class)),
                    Document::Claim(claim) => given.claims.push(Claim::from(&*claim)),
                    Document::Account(_) | Document::Other(..) => {}
                }
            }
        }
        Ok(given)
    }
}

/// Builds the Job of a claim's first run.
fn job_of(
    claim: &Claim,
    identity: &Identity,
    table: &Classes,
    configs: &[Config],
    node: Option<&str>,
) -> anyhow::Result<Job> {
    let name = claim.class.as_deref().unwrap_or_default();
    let class = match table.lookup(name) {
        ClassLookup::Ours(class) => class,
        ClassLookup::Foreign => bail!("class `{name}` belongs to another provisioner than {}", identity.provisioner),
        ClassLookup::Unknown => {
            bail!("no provisioner ConfigMap or StorageClass for class `{name}` among the files")
        }
    };
    let recipe = class.recipe.as_ref().map_err(|why| {
        let verdicts: Vec<_> =
            table.verdicts.values().map(|verdict| flex_core::config::joined(&verdict.problems)).collect();
        anyhow::anyhow!("{why} {}", verdicts.join("; "))
    })?;
    admit(claim, recipe, claim.is_pool_request(&identity.namespace)).map_err(anyhow::Error::msg)?;
    let attempt = Attempt {
        number: 1,
        ts: "1970-01-01T00:00:00Z".to_owned(),
        node: node.map(str::to_owned),
        class_topologies: class.allowed.json(),
        ..Attempt::default()
    };
    let request = request(Operation::Provision, claim, recipe, identity, "https://kubernetes.default.svc", attempt);
    let pinned = recipe.required_node(node).map(str::to_owned);
    let allowed = if recipe.is_local() { class.allowed.clone() } else { Topologies::default() };
    let target =
        RunTarget { namespace: recipe.config.namespace.clone(), node: pinned, allowed, ..RunTarget::default() };
    let mut job = job(recipe, &request, &target);
    let config = configs.iter().find(|config| config.name == recipe.config);
    let script = config.and_then(|config| config.data.get(keys::SCRIPT.name)).map(String::as_str);
    complete(&mut job, recipe, Texts { script, shell_image: identity.shell_image.as_deref() })
        .map_err(anyhow::Error::msg)?;
    Ok(job)
}

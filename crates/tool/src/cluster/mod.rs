//! The flags of commands that talk to a cluster, and what follows from them: a client, and the names of an orchestrator.

mod deployment;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use clap_complete::ArgValueCompleter;
use flex_core::config::classes::Identity;
use flex_core::object::ObjectName;
use flex_provisioner::api::client::{self, Access, Connection};
use flex_provisioner::api::reviews::has_right;
use flex_provisioner::api::{cluster_uid, pages};
use flex_provisioner::clock::Clock;
use flex_provisioner::flags::{Names, Namespaces, instance_id, provisioner_name};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::api::ListParams;
use kube::{Api, Client};

use self::deployment::{Orchestrator, account, orchestrator};
use crate::archive::{self, About};
use crate::contexts::contexts;
use crate::flags;
use crate::out::remark;
use crate::recording::Recording;

/// The labels of the orchestrator's Deployments: that of any installation, and that of the Helm chart with another name.
pub(super) const SELECTORS: [&str; 2] =
    ["app.kubernetes.io/name=flex-provisioner", "app.kubernetes.io/part-of=flex-provisioner"];

/// The cluster and the user of a command.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Login {
    /// The kubeconfig [default: the files of KUBECONFIG, or ~/.kube/config].
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current context].
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), help_heading = "Cluster", add = ArgValueCompleter::new(contexts))]
    context: Option<String>,
    /// The user to act as, such as `system:serviceaccount:NAMESPACE:NAME`.
    #[arg(long = "as", value_name = "USER", value_parser = NonEmptyStringValueParser::new(), help_heading = "Cluster")]
    as_user: Option<String>,
    /// A group to act as, beside the user of `--as`. May be given several times.
    #[arg(long = "as-group", value_name = "GROUP", requires = "as_user", help_heading = "Cluster")]
    as_groups: Vec<String>,
}

impl Login {
    /// Connects to the cluster.
    ///
    /// # Errors
    /// If the kubeconfig or its context does not exist, or cannot be used.
    pub(super) async fn connect(&self) -> anyhow::Result<Connection> {
        let access = Access {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            user: self.as_user.clone(),
            groups: self.as_groups.clone(),
        };
        client::connect_as(&access).await
    }
}

/// The cluster, the user and the orchestrator of a command.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Cluster {
    #[command(flatten)]
    login: Login,
    /// Read from this support bundle, and from no cluster.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context", "as_user"], help_heading = "Cluster")]
    bundle: Option<PathBuf>,
    /// The orchestrator's own namespace, with its Lease and the versions of configs [default: that of its Deployment].
    #[arg(long, env = "POD_NAMESPACE", help_heading = "Orchestrator")]
    flex_namespace: Option<String>,
    /// The id of the orchestrator on all its objects [default: as its Deployment says].
    #[arg(long, env = "FLEX_INSTANCE", value_parser = instance_id, help_heading = "Orchestrator")]
    instance: Option<String>,
    /// The `provisioner` of the orchestrator's StorageClasses [default: as its Deployment says].
    #[arg(long, env = "FLEX_PROVISIONER_NAME", value_parser = provisioner_name, help_heading = "Orchestrator")]
    provisioner_name: Option<String>,
    /// The `plugin-name` of the orchestrator's configs [default: as its Deployment says].
    #[arg(long, env = "FLEX_PLUGIN_NAME", help_heading = "Orchestrator")]
    plugin_name: Option<String>,
    /// Namespaces of the orchestrator's configs, comma-separated [default: as its Deployment says].
    #[arg(
        long = "config-namespace",
        env = "FLEX_CONFIG_NAMESPACES",
        value_delimiter = ',',
        help_heading = "Orchestrator"
    )]
    config_namespaces: Vec<String>,
    /// The image for configs with a `script` and no `image` [default: as its Deployment says].
    #[arg(long, env = "FLEX_SHELL_IMAGE", value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new(), help_heading = "Orchestrator")]
    shell_image: Option<String>,
}

impl Cluster {
    /// Returns the flags of a command that names the orchestrator's installation by its instance alone.
    pub(super) fn of_instance(instance: Option<String>) -> Self {
        Cluster { instance, ..Cluster::default() }
    }

    /// Returns the support bundle from which the command reads.
    pub(super) fn bundle(&self) -> Option<&PathBuf> {
        self.bundle.as_ref()
    }

    /// Returns the kubeconfig that a flag names.
    pub(super) fn kubeconfig(&self) -> Option<&PathBuf> {
        self.login.kubeconfig.as_ref()
    }

    /// Connects to the cluster.
    ///
    /// # Errors
    /// If the kubeconfig or its context does not exist, or cannot be used.
    pub(super) async fn connect(&self) -> anyhow::Result<Connection> {
        if let Some(file) = &self.bundle {
            let (About { recorded, address, namespace, .. }, answers) = archive::read(file)?;
            let client = Recording::of(answers).replaying(&namespace);
            let clock = Clock::recorded(recorded);
            return Ok(Connection { client, address, namespace, has_context: false, clock });
        }
        self.login.connect().await
    }

    /// Connects to the cluster, and finds the orchestrator.
    ///
    /// # Errors
    /// If the cluster does not answer, or if several orchestrators run and the flags name none of them.
    pub(super) async fn open(&self) -> anyhow::Result<(Connection, Identity)> {
        let connection = self.connect().await?;
        let identity = self.identity(&connection.client).await?;
        Ok((connection, identity))
    }

    /// Returns the names of the orchestrator: those of the flags, then those in its Deployment, then the usual ones.
    ///
    /// # Errors
    /// If the Deployments or the rights of their accounts cannot be read for another reason than a missing right, or if several fit the flags.
    pub(super) async fn identity(&self, client: &Client) -> anyhow::Result<Identity> {
        if let Some(file) = &self.bundle {
            return Ok(archive::read(file)?.0.identity);
        }
        let identity = self.orchestrator(client).await?;
        let cluster = cluster_uid::read(client).await.context("the UID of the cluster cannot be read")?;
        Ok(Identity { cluster, ..identity })
    }

    /// Returns the names of the orchestrator, without the UID of the cluster.
    async fn orchestrator(&self, client: &Client) -> anyhow::Result<Identity> {
        match orchestrators(client, self.flex_namespace.as_deref()).await {
            Ok(found) => self.chosen(found),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                let identity = self.chosen(Vec::new())?;
                if self.flex_namespace.is_none() && self.instance.is_none() {
                    remark!(
                        "You may not list Deployments and ask for the rights of their accounts, so the command takes instance {} in namespace {}: name another with --instance and --flex-namespace.",
                        identity.instance,
                        identity.namespace
                    );
                }
                Ok(identity)
            }
            Err(error) => Err(error).context("the orchestrator's Deployment cannot be looked for"),
        }
    }

    /// Returns the names of an orchestrator that is not installed yet: those of the flags, and the usual ones.
    pub(super) fn identity_before_install(&self) -> Identity {
        self.names(None)
    }

    /// Chooses the orchestrator that fits the flags. Without any, the usual names apply.
    fn chosen(&self, mut found: Vec<Orchestrator>) -> anyhow::Result<Identity> {
        found.retain(|one| self.flex_namespace.as_ref().is_none_or(|namespace| *namespace == one.namespace));
        found.retain(|one| self.instance.as_ref().is_none_or(|instance| *instance == one.instance));
        found.sort_by(|a, b| (&a.namespace, &a.instance).cmp(&(&b.namespace, &b.instance)));
        // Two Deployments may be one orchestrator, as while one replaces the other.
        found.dedup_by(|a, b| a.namespace == b.namespace && a.instance == b.instance);
        if found.len() > 1 {
            let lines = found.iter().map(|one| {
                let Orchestrator { namespace, instance, provisioner, .. } = one;
                format!("\n  --flex-namespace {namespace} --instance {instance}    (provisioner {provisioner})")
            });
            bail!("several orchestrators are installed: name one of them{}", lines.collect::<String>());
        }
        Ok(self.names(found.pop()))
    }

    /// Returns the names of the flags, then those of a Deployment, then the usual ones.
    fn names(&self, found: Option<Orchestrator>) -> Identity {
        let found = found.unwrap_or_default();
        let flags = self.clone();
        let names = Names {
            provisioner_name: flags.provisioner_name.unwrap_or(found.provisioner),
            plugin_name: flags.plugin_name.unwrap_or(found.plugin),
            instance: flags.instance.unwrap_or(found.instance),
            shell_image: flags.shell_image.or(found.shell_image),
        };
        let is_given = !self.config_namespaces.is_empty();
        let namespaces = Namespaces {
            namespace: flags.flex_namespace.unwrap_or(found.namespace),
            config_namespaces: if is_given { flags.config_namespaces } else { found.config_namespaces },
        };
        flags::identity(&names, &namespaces)
    }
}

/// Returns the orchestrators of the cluster, or of a namespace.
///
/// Every user can give a Deployment these labels, and lead an admin's command to other objects by its names. So a
/// Deployment that was found in all namespaces counts only if its account has the right by which the admission policies
/// know the orchestrator.
async fn orchestrators(client: &Client, namespace: Option<&str>) -> kube::Result<Vec<Orchestrator>> {
    let api: Api<Deployment> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut labelled = Vec::new();
    for selector in SELECTORS {
        labelled.extend(pages::all(&api, ListParams::default().labels(selector), |deployment| deployment).await?);
    }
    // A Deployment may have both labels.
    labelled.sort_by_key(|deployment| ObjectName::of(&deployment.metadata));
    labelled.dedup_by_key(|deployment| ObjectName::of(&deployment.metadata));
    let mut found = Vec::new();
    for deployment in &labelled {
        let Some(orchestrator) = orchestrator(deployment) else { continue };
        if namespace.is_some() || has_right(client, &account(deployment), manage_claims()).await? {
            found.push(orchestrator);
        }
    }
    Ok(found)
}

/// Returns the right that only the orchestrator and admins have.
fn manage_claims() -> ResourceAttributes {
    ResourceAttributes {
        group: Some("flex-provisioner.io".to_owned()),
        resource: Some("claims".to_owned()),
        verb: Some("manage".to_owned()),
        ..ResourceAttributes::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orchestrator(namespace: &str, instance: &str) -> Orchestrator {
        Orchestrator {
            namespace: namespace.into(),
            instance: instance.into(),
            provisioner: format!("{instance}.example.com"),
            config_namespaces: vec![format!("configs-of-{instance}")],
            ..Orchestrator::default()
        }
    }

    fn flags(namespace: Option<&str>, instance: Option<&str>) -> Cluster {
        let (flex_namespace, instance) = (namespace.map(str::to_owned), instance.map(str::to_owned));
        Cluster { flex_namespace, instance, ..Cluster::default() }
    }

    #[test]
    fn the_orchestrator_that_fits_the_flags_is_chosen() {
        let (one, two, other) = (orchestrator("a", "x"), orchestrator("a", "y"), orchestrator("b", "x"));
        for (what, given, found, expected) in [
            ("nobody is installed", (None, None), vec![], Ok(("flex-provisioner", "default", "flex-provisioner"))),
            ("nobody fits", (Some("c"), None), vec![&one], Ok(("c", "default", "c"))),
            ("one is installed", (None, None), vec![&one], Ok(("a", "x", "configs-of-x"))),
            ("two Deployments are one orchestrator", (None, None), vec![&one, &one], Ok(("a", "x", "configs-of-x"))),
            ("two are installed", (None, None), vec![&other, &one], Err("a --instance x|b --instance x")),
            ("the namespace decides", (Some("b"), None), vec![&one, &other], Ok(("b", "x", "configs-of-x"))),
            ("two are in the namespace", (Some("a"), None), vec![&one, &two], Err("a --instance x|a --instance y")),
            ("the instance decides", (None, Some("y")), vec![&one, &two, &other], Ok(("a", "y", "configs-of-y"))),
            ("both decide", (Some("a"), Some("y")), vec![&one, &two, &other], Ok(("a", "y", "configs-of-y"))),
        ] {
            let chosen = flags(given.0, given.1).chosen(found.into_iter().cloned().collect());
            let chosen = chosen.as_ref().map_err(ToString::to_string);
            match (chosen, expected) {
                (Ok(identity), Ok(expected)) => {
                    let configs = identity.config_namespaces.join(",");
                    let is = (identity.namespace.as_str(), identity.instance.as_str(), configs.as_str());
                    assert_eq!(is, expected, "{what}");
                }
                (Err(error), Err(expected)) => {
                    let named = error.lines().skip(1).map(|line| line.trim().trim_start_matches("--flex-namespace "));
                    let named: Vec<_> = named.map(|line| line.split("    ").next().unwrap_or_default()).collect();
                    assert_eq!(named.join("|"), expected, "{what}");
                }
                (is, expected) => panic!("{what}: {:?} instead of {expected:?}", is.map(|identity| &identity.instance)),
            }
        }
    }

    #[test]
    fn a_flag_overrides_the_deployment() {
        let cluster = Cluster {
            provisioner_name: Some("mine.example.com".into()),
            config_namespaces: vec!["mine".into()],
            ..Cluster::default()
        };
        let identity = cluster.chosen(vec![orchestrator("a", "x")]).unwrap();
        assert_eq!((identity.provisioner.as_str(), identity.instance.as_str()), ("mine.example.com", "x"));
        assert_eq!(identity.config_namespaces, ["mine"]);
    }
}

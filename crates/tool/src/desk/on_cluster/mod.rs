//! `conformance --cluster`: the cases as Jobs on a cluster.

mod args;
mod left;
mod mount;
mod place;
mod pod;
mod requests;
mod rights;
mod source;

use std::rc::Rc;

use anyhow::bail;
use flex_contract::names;
use flex_core::config::classes::Identity;
use flex_desk::conformance::{Case, Done, mount_on_cluster, run_on_cluster};
use flex_desk::setting::{Inputs, Setting};
use flex_provisioner::flags::Names;
use k8s_openapi::api::authorization::v1::ResourceAttributes;

pub(super) use self::args::OnClusterArgs;
use self::mount::MountPods;
use self::place::OnCluster;
use super::args::Subject;
use super::call::{Signals, random_id};
use crate::cluster::Cluster;
use crate::out::remark;

/// The prefix of the instance id of a call. All objects of the call have this instance on their label.
const INSTANCE: &str = "conformance-";

/// The result of a call.
pub(super) struct Proof {
    /// The cases that have ended.
    pub done: anyhow::Result<Vec<Done>>,
    /// The objects and volumes that the command could not remove.
    pub left: Vec<String>,
}

/// Runs cases on a cluster, calls a function after each, and removes everything that they made.
///
/// # Errors
/// If the cases cannot begin. Nothing was created then.
pub(super) async fn prove(
    args: &OnClusterArgs,
    subject: &Subject,
    cases: &[Case],
    after: impl FnMut(&Done),
) -> anyhow::Result<Proof> {
    if subject.config.is_none() && args.cluster_config.is_none() {
        bail!(
            "nothing says what to run: name a file with the config (--config), or a config on the cluster (--cluster-config)"
        );
    }
    let connection = args.login.connect().await?;
    let client = connection.client;
    let cluster = Cluster::of_instance(chosen_instance(&subject.names));
    let found = cluster.identity(&client).await?;
    let id = random_id();
    let identity = Identity { instance: format!("{INSTANCE}{id}"), ..over(&subject.names, found) };
    let mut setting = setting(args, subject, &identity, &client, cases).await?;
    let pods = mount_pods(args, &setting, cases);
    setting.site = source::site(&client, &setting, args.node.as_deref()).await?;
    let mut signals = Signals::new()?;
    let place = Rc::new(OnCluster::new(client, connection.address, setting.clone(), id.clone(), pods));
    let on = if setting.node().is_some() { format!(" on node {}", setting.site.node) } else { String::new() };
    remark!(
        "the runs are Jobs in namespace {}{on}; all objects have the label {}",
        setting.recipe.config.namespace,
        place.selector()
    );
    let done = tokio::select! {
        done = run_on_cluster(&setting, &place, &id, cases, after) => done.map_err(anyhow::Error::from),
        () = signals.received() => Err(anyhow::anyhow!("stopped by a signal")),
    };
    if done.is_err() {
        remark!("removing what the runs have made; a second signal stops that, too");
    }
    let left = tokio::select! {
        left = place.clean() => left,
        () = signals.received() => vec![format!(
            "a second signal stopped the removal: look for Jobs and PersistentVolumes with the label {}",
            place.selector()
        )],
    };
    Ok(Proof { done, left })
}

/// Returns the instance of the flags, if it is not the usual one.
fn chosen_instance(flags: &Names) -> Option<String> {
    Some(flags.instance.clone()).filter(|instance| instance != names::DEFAULT_INSTANCE)
}

/// Returns the names of an installed orchestrator. Flags that are not the usual names win.
fn over(flags: &Names, found: Identity) -> Identity {
    let chosen = |flag: &str, usual: &str, found: String| if flag == usual { found } else { flag.to_owned() };
    Identity {
        provisioner: chosen(&flags.provisioner_name, names::DEFAULT_PROVISIONER, found.provisioner),
        plugin: chosen(&flags.plugin_name, names::DEFAULT_PLUGIN, found.plugin),
        shell_image: flags.shell_image.clone().or(found.shell_image),
        ..found
    }
}

/// Reads the config, from a file or from the cluster, after the check of the rights.
async fn setting(
    args: &OnClusterArgs,
    subject: &Subject,
    identity: &Identity,
    client: &kube::Client,
    cases: &[Case],
) -> anyhow::Result<Setting> {
    let mut inputs = Inputs { namespace: args.namespace.clone(), ..subject.inputs()? };
    if let Some(image) = &args.image {
        inputs.changes.push(("image".into(), image.clone()));
    }
    if let Some(name) = &args.cluster_config {
        let namespace = args.namespace.as_ref().unwrap_or(&name.namespace);
        rights::verify(client, [rights::of_runs(namespace), rights::of_config(&name.namespace)].concat()).await?;
        inputs.config = Some(source::config(client, name).await?);
        let setting = Setting::read(identity, inputs)?;
        // Only the config says whether its runs need a node, and whether pods mount its volumes.
        rights::verify(client, [of_site(args, &setting), of_mounts(args, &setting, cases)].concat()).await?;
        return Ok(setting);
    }
    let setting = Setting::read(identity, inputs)?;
    let of_runs = rights::of_runs(&setting.recipe.config.namespace);
    rights::verify(client, [of_runs, of_site(args, &setting), of_mounts(args, &setting, cases)].concat()).await?;
    Ok(setting)
}

/// Returns the rights to choose the node of the runs; none if no run needs a node.
fn of_site(args: &OnClusterArgs, setting: &Setting) -> Vec<ResourceAttributes> {
    match source::needs_node(setting, args.node.as_deref()) {
        true => rights::of_nodes(),
        false => Vec::new(),
    }
}

/// Returns the rights for the pods that mount volumes; none if there are no such pods.
fn of_mounts(args: &OnClusterArgs, setting: &Setting, cases: &[Case]) -> Vec<ResourceAttributes> {
    match mount_pods(args, setting, cases) {
        Some(_) => rights::of_mounts(&setting.recipe.config.namespace),
        None => Vec::new(),
    }
}

/// Returns the pods that mount volumes; `None` if no case needs such pods, or if they have no image.
fn mount_pods(args: &OnClusterArgs, setting: &Setting, cases: &[Case]) -> Option<MountPods> {
    let image = args.mount_image.clone().or_else(|| setting.identity.shell_image.clone());
    let image = image.filter(|_| mount_on_cluster(setting, cases))?;
    Some(MountPods::new(setting, image, args.mount_user, args.mount_timeout.as_secs()))
}

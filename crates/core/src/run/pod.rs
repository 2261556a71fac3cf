//! The pod of a run, as the orchestrator generates it: a pure function of the recipe and the run's properties.

use std::collections::BTreeMap;
use std::time::Duration;

use flex_contract::names::CONTAINER;
use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::request::Property;
use flex_contract::{names, storage, variable};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, ConfigMapKeySelector, ConfigMapProjection, Container, DownwardAPIProjection,
    DownwardAPIVolumeFile, EmptyDirVolumeSource, EnvFromSource, EnvVar, EnvVarSource, KeyToPath, LocalObjectReference,
    NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectFieldSelector, PodSecurityContext,
    PodSpec, PodTemplateSpec, ProjectedVolumeSource, ResourceRequirements, SeccompProfile, SecretEnvSource,
    SecretVolumeSource, SecurityContext, ServiceAccountTokenProjection, Toleration, Volume, VolumeMount,
    VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::mounts::Sight;
use crate::config::keys;
use crate::config::modify::Attributes;
use crate::config::topology::Topologies;
use crate::config::{Recipe, RunAsUser};

/// The variable with the config's `service-token`.
pub(super) const SERVICE_TOKEN: &str = variable::SERVICE_TOKEN.name;
/// The time that a pod has to stop after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

/// The name of the volume with the account's token. Clients look for the token in its usual directory.
pub(super) const TOKEN_VOLUME: &str = "flex-token";
pub(super) const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The lifetime of a token, in seconds: the shortest that Kubernetes allows.
const TOKEN_SECONDS: i64 = 600;
/// The taints of a node that a run which frees storage of the node tolerates.
const FREED: &[&str] = &["node.kubernetes.io/disk-pressure", "node.kubernetes.io/unschedulable"];

/// The volume of the only directory where a program may write by default.
pub(super) const TMP_VOLUME: &str = "flex-tmp";
pub(super) const TMP_DIR: &str = "/tmp";

/// The target of a run: where its Job and its pod are, and the object that it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTarget {
    /// The namespace of the Job.
    pub namespace: String,
    /// The node that the pod must run on.
    pub node: Option<String>,
    /// The topologies of the class, in which the pod may run.
    pub allowed: Topologies,
    /// A text that distinguishes the Job from others of the same operation and volume.
    pub scope: String,
    /// The volume of a delete, expand or modify run, where there is one.
    pub volume: Option<String>,
    /// The VolumeSnapshotContent of a run for a snapshot.
    pub content: Option<ContentRef>,
    /// The attributes that the run must give its volume.
    pub attributes: Option<Attributes>,
    /// Leaves out what may be gone with the config: ServiceAccount, tokens, pull secrets.
    pub without_account: bool,
    /// The Job is certainly the first of its attempt.
    pub is_first: bool,
}

/// The VolumeSnapshotContent that a run is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRef {
    /// The name of the content.
    pub name: String,
    /// The id by which the Jobs of the content are found.
    pub id: String,
    /// The deletion policy of the content; `None` if the content is gone.
    pub policy: Option<ReclaimPolicy>,
}

/// A property that is only a file.
pub(crate) struct PropertyFile {
    /// The variable that has the path of the file.
    pub variable: &'static str,
    /// The property.
    pub property: Property,
}

/// The data that a pod gets.
pub(crate) struct PodInput {
    /// The operation of the run.
    pub operation: Operation,
    /// The properties that are both environment variables and files.
    pub properties: Vec<Property>,
    /// A property that is only a file.
    pub file: Option<PropertyFile>,
    /// The part of a storage that the pod sees, where the storage has a directory for each volume.
    pub sight: Sight,
}

pub(super) fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// Builds the pod of a run with these labels and annotations.
pub(super) fn pod(
    recipe: &Recipe,
    input: &PodInput,
    target: &RunTarget,
    labels: BTreeMap<String, String>,
    mut annotations: BTreeMap<String, String>,
) -> PodTemplateSpec {
    let references = References::of(recipe, input.operation, target);
    annotations.extend(files(input).enumerate().map(|(n, property)| (annotation(n), property.value.clone())));
    annotations.extend(left_alone(recipe));
    let (volumes, mounts) = mounted(recipe, input, &references).into_iter().unzip();
    let container = container(recipe, input, &references, mounts);
    PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: Some(labels), annotations: Some(annotations), ..ObjectMeta::default() }),
        spec: Some(PodSpec {
            containers: vec![container],
            volumes: Some(volumes),
            restart_policy: Some("Never".into()),
            automount_service_account_token: Some(false),
            service_account_name: references.account.cloned(),
            image_pull_secrets: pull_secrets(recipe, target),
            node_selector: node_selector(recipe),
            affinity: nodes(target),
            tolerations: tolerations(recipe, input.operation, target),
            priority_class_name: recipe.priority_class.clone(),
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(seconds(GRACE)),
            security_context: Some(PodSecurityContext {
                seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None }),
                ..PodSecurityContext::default()
            }),
            ..PodSpec::default()
        }),
    }
}

/// Returns the annotations by which autoscalers leave the node alone, without those that the admin's template has.
fn left_alone(recipe: &Recipe) -> impl Iterator<Item = (String, String)> {
    let metadata = recipe.pod_template.as_ref().and_then(|template| template.metadata.as_ref());
    let theirs = metadata.and_then(|metadata| metadata.annotations.as_ref());
    let ours = names::LEFT_ALONE.into_iter();
    let ours = ours.filter(move |(key, _)| theirs.is_none_or(|theirs| !theirs.contains_key(*key)));
    ours.map(|(key, value)| (key.to_owned(), value.to_owned()))
}

/// Returns the labels of the nodes that may take the pod: those of the config, and its system.
fn node_selector(recipe: &Recipe) -> Option<BTreeMap<String, String>> {
    let mut labels = recipe.node_selector.clone();
    if let Some(system) = recipe.system() {
        labels.insert(names::OS.to_owned(), system.to_owned());
    }
    (!labels.is_empty()).then_some(labels)
}

/// Returns the taints that the pod tolerates. A full node, or one that is being emptied, must let in the run that frees
/// its storage: no other node can.
fn tolerations(recipe: &Recipe, operation: Operation, target: &RunTarget) -> Option<Vec<Toleration>> {
    let mut all = recipe.tolerations.clone();
    if matches!(operation, Operation::Delete | Operation::DeleteSnapshot) && target.node.is_some() {
        let exists = |taint: &str| Toleration {
            key: Some(taint.into()),
            operator: Some("Exists".into()),
            effect: Some("NoSchedule".into()),
            ..Toleration::default()
        };
        all.extend(FREED.iter().copied().map(exists));
    }
    (!all.is_empty()).then_some(all)
}

/// The objects of an admin that a pod refers to, and how.
struct References<'a> {
    /// The ServiceAccount of the pod.
    account: Option<&'a String>,
    /// The pod gets the config's `service-token`.
    token: bool,
    /// The pod starts even if a Secret or the config is gone.
    optional: bool,
}

impl<'a> References<'a> {
    fn of(recipe: &'a Recipe, operation: Operation, target: &RunTarget) -> Self {
        Self {
            account: recipe.service_account.as_ref().filter(|_| !target.without_account),
            token: recipe.service_token && !target.without_account,
            optional: matches!(operation, Operation::Delete | Operation::DeleteSnapshot),
        }
    }
}

/// Returns the properties that are files.
fn files(input: &PodInput) -> impl Iterator<Item = &Property> {
    input.properties.iter().chain(input.file.as_ref().map(|file| &file.property))
}

/// Builds the volumes of the pod, each with the place where the container sees it.
fn mounted(recipe: &Recipe, input: &PodInput, references: &References<'_>) -> Vec<(Volume, VolumeMount)> {
    let properties = property_volume(recipe, files(input), references);
    let mut mounted = vec![(properties, mount("flex-properties", names::PROPERTY_DIR))];
    for (n, secret) in recipe.secret_volume.iter().enumerate() {
        let name = format!("flex-secret-{n}");
        let mount = mount(&name, &format!("{}/{secret}", names::SECRET_DIR));
        mounted.push((secret_volume(name, secret, references.optional), mount));
    }
    if references.account.is_some() {
        mounted.push((token_volume(), mount(TOKEN_VOLUME, TOKEN_DIR)));
    }
    let writable =
        Volume { name: TMP_VOLUME.into(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() };
    mounted.push((writable, VolumeMount { read_only: None, ..mount(TMP_VOLUME, TMP_DIR) }));
    mounted
}

/// Builds the container that runs the image.
fn container(recipe: &Recipe, input: &PodInput, references: &References<'_>, mounts: Vec<VolumeMount>) -> Container {
    let literals = |words: &[String]| (!words.is_empty()).then(|| words.iter().map(|word| literal(word)).collect());
    Container {
        name: CONTAINER.into(),
        image: Some(recipe.image.clone()),
        image_pull_policy: recipe.pull_policy.clone(),
        command: literals(&recipe.command),
        args: literals(&recipe.args),
        env: Some(environment(recipe, input, references)),
        env_from: (!recipe.secret_env.is_empty())
            .then(|| recipe.secret_env.iter().map(|secret| secret_env(secret, references.optional)).collect()),
        resources: Some(recipe.resources.clone().unwrap_or_else(usual_resources)),
        volume_mounts: Some(mounts),
        security_context: Some(security(recipe.run_as_user)),
        ..Container::default()
    }
}

/// Returns what the container may do: as little as a program without rights of its own.
fn security(user: Option<RunAsUser>) -> SecurityContext {
    let user = match user {
        Some(RunAsUser::Any) => None,
        Some(RunAsUser::Id(user)) => Some(user),
        None => Some(names::DEFAULT_USER),
    };
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: None }),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(user != Some(0)),
        run_as_user: user,
        ..SecurityContext::default()
    }
}

fn pull_secrets(recipe: &Recipe, target: &RunTarget) -> Option<Vec<LocalObjectReference>> {
    let secrets = recipe.pull_secrets.iter().filter(|_| !target.without_account);
    let secrets: Vec<_> = secrets.map(|name| LocalObjectReference { name: name.clone() }).collect();
    Some(secrets).filter(|secrets| !secrets.is_empty())
}

fn secret_volume(name: String, secret: &str, optional: bool) -> Volume {
    Volume {
        name,
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            optional: optional.then_some(true),
            default_mode: Some(0o444),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// Returns the resources that a small program needs. If memory is short, Kubernetes evicts pods without requests first.
pub(super) fn usual_resources() -> ResourceRequirements {
    let requests = [("cpu", "5m"), ("memory", "16Mi")].map(|(what, much)| (what.to_owned(), Quantity(much.into())));
    ResourceRequirements { requests: Some(requests.into()), ..ResourceRequirements::default() }
}

/// Returns the token volume that Kubernetes would mount for the account, with a short lifetime. The kubelet renews the
/// token during the run.
fn token_volume() -> Volume {
    let token = ServiceAccountTokenProjection {
        path: "token".into(),
        expiration_seconds: Some(TOKEN_SECONDS),
        ..ServiceAccountTokenProjection::default()
    };
    let authority = ConfigMapProjection {
        name: "kube-root-ca.crt".into(),
        items: Some(vec![KeyToPath { key: "ca.crt".into(), path: "ca.crt".into(), mode: None }]),
        ..ConfigMapProjection::default()
    };
    let namespace = DownwardAPIVolumeFile {
        path: "namespace".into(),
        field_ref: Some(ObjectFieldSelector {
            field_path: "metadata.namespace".into(),
            ..ObjectFieldSelector::default()
        }),
        ..DownwardAPIVolumeFile::default()
    };
    let sources = vec![
        VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() },
        VolumeProjection { config_map: Some(authority), ..VolumeProjection::default() },
        VolumeProjection {
            downward_api: Some(DownwardAPIProjection { items: Some(vec![namespace]) }),
            ..VolumeProjection::default()
        },
    ];
    Volume {
        name: TOKEN_VOLUME.into(),
        projected: Some(ProjectedVolumeSource { sources: Some(sources), default_mode: Some(0o444) }),
        ..Volume::default()
    }
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.into(), mount_path: path.into(), read_only: Some(true), ..VolumeMount::default() }
}

fn annotation(number: usize) -> String {
    format!("{}{number}", names::PROPERTY_PREFIX)
}

/// Escapes a text for an environment variable or a command. Kubernetes expands `$(NAME)` in both, and reads `$$` as a
/// dollar.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

fn environment(recipe: &Recipe, input: &PodInput, references: &References<'_>) -> Vec<EnvVar> {
    let field = |name: &str, path: &str| EnvVar {
        name: name.into(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { field_path: path.into(), ..ObjectFieldSelector::default() }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    let text = |name: String, value: &str| EnvVar { name, value: Some(literal(value)), ..EnvVar::default() };
    let mut env: Vec<EnvVar> = input.properties.iter().map(|property| text(property.env(), &property.value)).collect();
    if let Some(PropertyFile { variable, property }) = &input.file {
        env.push(text((*variable).to_owned(), &format!("{}/{}", names::PROPERTY_DIR, property.name)));
    }
    if !recipe.storage_mounts.is_empty() {
        env.push(text(storage::VARIABLE.to_owned(), &recipe.storage_mounts.join(",")));
    }
    env.push(field(variable::POD_NAME.name, "metadata.name"));
    env.push(field(variable::POD_NAMESPACE.name, "metadata.namespace"));
    env.push(field(variable::POD_NODE.name, "spec.nodeName"));
    if references.token {
        env.push(EnvVar {
            name: SERVICE_TOKEN.into(),
            value_from: Some(EnvVarSource {
                config_map_key_ref: Some(ConfigMapKeySelector {
                    name: recipe.config.name.clone(),
                    key: keys::SERVICE_TOKEN.name.into(),
                    optional: Some(references.optional),
                }),
                ..EnvVarSource::default()
            }),
            ..EnvVar::default()
        });
    }
    env
}

fn secret_env(secret: &str, optional: bool) -> EnvFromSource {
    EnvFromSource {
        secret_ref: Some(SecretEnvSource { name: secret.into(), optional: optional.then_some(true) }),
        ..EnvFromSource::default()
    }
}

/// Builds the volume with one file for each property, from the numbered annotations.
fn property_volume<'a>(
    recipe: &Recipe,
    properties: impl Iterator<Item = &'a Property>,
    references: &References<'_>,
) -> Volume {
    let items = properties
        .enumerate()
        .map(|(n, property)| DownwardAPIVolumeFile {
            path: property.name.clone(),
            field_ref: Some(ObjectFieldSelector {
                field_path: format!("metadata.annotations['{}']", annotation(n)),
                ..ObjectFieldSelector::default()
            }),
            ..DownwardAPIVolumeFile::default()
        })
        .collect();
    let mut sources = vec![VolumeProjection {
        downward_api: Some(DownwardAPIProjection { items: Some(items) }),
        ..VolumeProjection::default()
    }];
    if references.token {
        sources.push(VolumeProjection {
            config_map: Some(ConfigMapProjection {
                name: recipe.config.name.clone(),
                items: Some(vec![KeyToPath {
                    key: keys::SERVICE_TOKEN.name.into(),
                    path: "service-token".into(),
                    mode: None,
                }]),
                optional: Some(references.optional),
            }),
            ..VolumeProjection::default()
        });
    }
    Volume {
        name: "flex-properties".into(),
        projected: Some(ProjectedVolumeSource { sources: Some(sources), default_mode: Some(0o444) }),
        ..Volume::default()
    }
}

/// Binds a pod to a node, or to the allowed nodes, by affinity. The scheduler still places the pod, so that taints and
/// resources count.
fn nodes(target: &RunTarget) -> Option<Affinity> {
    let field = |node: &String| NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.clone()]),
    };
    let mut terms = target.allowed.node_terms();
    if let Some(node) = &target.node {
        if terms.is_empty() {
            terms.push(NodeSelectorTerm::default());
        }
        terms.iter_mut().for_each(|term| term.match_fields = Some(vec![field(node)]));
    }
    let selector = NodeSelector { node_selector_terms: terms };
    (!selector.node_selector_terms.is_empty()).then(|| Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(selector),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    })
}

/// Returns the node to which a pod of this template is bound.
pub(super) fn required_node(template: &PodTemplateSpec) -> Option<&String> {
    let affinity = template.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    match terms.first()?.match_fields.as_deref()?.first()?.values.as_deref()? {
        [node] => Some(node),
        _ => None,
    }
}

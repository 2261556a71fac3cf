//! The container that a kubelet makes from the Job of a run: a pure function.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use flex_contract::names::CONTAINER;
use flex_core::config::file_names::{key_problem, volume_problem};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    Container as ContainerSpec, DownwardAPIVolumeFile, EnvVar, ObjectFieldSelector, PodTemplateSpec, SecurityContext,
    Volume, VolumeMount, VolumeProjection,
};

/// The capabilities that a runtime gives to a container that says nothing of them.
const USUAL_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// The time that a kubelet waits between SIGTERM and SIGKILL, unless the pod says otherwise.
const GRACE: Duration = Duration::from_secs(30);

/// The token of a ServiceAccount. The API of the desk takes any.
const TOKEN: &str = "desk";
/// The ConfigMap with the certificate of the API, which each namespace has.
const ROOT_CA: &str = "kube-root-ca.crt";

/// The facts about the pod that the Job does not have.
#[derive(Clone, Copy, Debug)]
pub struct PodFacts<'a> {
    /// The name of the pod.
    pub name: &'a str,
    /// The node of the pod.
    pub node: &'a str,
    /// The data of the Secrets, by name.
    pub secrets: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// The data of the ConfigMaps, by name.
    pub configs: &'a BTreeMap<String, BTreeMap<String, String>>,
}

/// The content of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// These files, by path.
    Files(BTreeMap<String, String>),
    /// An empty directory, which the run may write.
    Empty,
    /// A path on the node.
    OnNode {
        /// The path.
        path: String,
        /// The directory must exist before the run.
        must_exist: bool,
        /// The directory within, which the kubelet makes if it is missing; may be empty.
        sub_path: String,
    },
    /// Storage that the cluster reaches and the desk does not, by the name of its volume.
    Remote {
        /// The name of the volume.
        volume: String,
        /// The directory within; may be empty.
        sub_path: String,
    },
    /// A directory of the desk itself.
    OfDesk(PathBuf),
}

/// A mount of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The path in the container.
    pub path: String,
    /// The content.
    pub content: Content,
    /// The run may not write.
    pub read_only: bool,
}

/// The capabilities of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capabilities {
    /// All of them: the container is privileged.
    All,
    /// These, without the prefix `CAP_`.
    Only(Vec<String>),
}

/// A container, as the kubelet asks the runtime for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Command and arguments; empty for the entry point of the image.
    pub command: Vec<String>,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// The variables with values of Secrets.
    pub secret_env: BTreeSet<String>,
    /// The mounts.
    pub mounts: Vec<Mount>,
    /// The user; `None` for any.
    pub user: Option<u32>,
    /// The capabilities.
    pub capabilities: Capabilities,
    /// A program may get more rights than its caller.
    pub may_escalate: bool,
    /// The root file system cannot be written.
    pub read_only_root: bool,
    /// The end of the log is the termination message of a failed run that wrote none.
    pub message_from_log: bool,
    /// The time after which the run is stopped.
    pub limit: Option<Duration>,
    /// The time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Directories of this machine with programs that come before all others.
    pub programs: Vec<PathBuf>,
}

/// Makes the container of a Job.
///
/// # Errors
/// If the kubelet would not start it. The text says all that is missing.
pub fn container(job: &Job, facts: PodFacts<'_>) -> Result<Container, Vec<String>> {
    let spec = job.spec.as_ref();
    let template = spec.map(|spec| spec.template.clone()).unwrap_or_default();
    let pod = template.spec.clone().unwrap_or_default();
    let Some(main) = pod.containers.iter().find(|container| container.name == CONTAINER) else {
        return Err(vec![format!("the Job has no container `{CONTAINER}`")]);
    };
    let mut kubelet = Kubelet { job, template: &template, facts, secret_env: BTreeSet::new(), missing: Vec::new() };
    let env = kubelet.environment(main);
    let volumes = pod.volumes.clone().unwrap_or_default();
    let mounts: Vec<Mount> =
        main.volume_mounts.iter().flatten().filter_map(|mount| kubelet.mount(mount, &volumes)).collect();
    if pod.init_containers.iter().flatten().next().is_some() {
        kubelet.missing.push("the pod-template has init containers, which the desk does not run".into());
    }
    let Kubelet { missing, secret_env, .. } = kubelet;
    if !missing.is_empty() {
        return Err(missing);
    }
    let security = main.security_context.clone().unwrap_or_default();
    let user = security.run_as_user.or(pod.security_context.as_ref().and_then(|context| context.run_as_user));
    let words = main.command.iter().chain(&main.args).flatten();
    Ok(Container {
        command: words.map(|word| expanded(word, &env)).collect(),
        env,
        secret_env,
        mounts,
        user: user.and_then(|user| u32::try_from(user).ok()),
        capabilities: capabilities(&security),
        may_escalate: security.allow_privilege_escalation != Some(false),
        read_only_root: security.read_only_root_filesystem == Some(true),
        message_from_log: main.termination_message_policy.as_deref() == Some("FallbackToLogsOnError"),
        limit: spec.and_then(|spec| spec.active_deadline_seconds).and_then(seconds),
        grace: pod.termination_grace_period_seconds.and_then(seconds).unwrap_or(GRACE),
        programs: Vec::new(),
    })
}

fn seconds(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_secs)
}

fn capabilities(security: &SecurityContext) -> Capabilities {
    if security.privileged == Some(true) {
        return Capabilities::All;
    }
    let lists = security.capabilities.clone().unwrap_or_default();
    let (drop, add) = (lists.drop.unwrap_or_default(), lists.add.unwrap_or_default());
    if add.iter().any(|name| name == "ALL") {
        return Capabilities::All;
    }
    let usual = USUAL_CAPABILITIES.iter().map(|name| (*name).to_owned());
    let kept = usual.filter(|name| !drop.iter().any(|dropped| dropped == "ALL" || dropped == name));
    Capabilities::Only(kept.chain(add).collect())
}

/// Expands `$(NAME)` and `$$`, as Kubernetes does in variables and commands.
fn expanded(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let reference = rest.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        match (rest.strip_prefix('$'), reference.and_then(|(name, after)| Some((env.get(name)?, after)))) {
            (Some(after), _) => {
                result.push('$');
                rest = after;
            }
            (None, Some((value, after))) => {
                result.push_str(value);
                rest = after;
            }
            (None, None) => result.push('$'),
        }
    }
    result + rest
}

/// The part of the kubelet that reads a pod, with the names of objects that are missing.
struct Kubelet<'a> {
    job: &'a Job,
    template: &'a PodTemplateSpec,
    facts: PodFacts<'a>,
    secret_env: BTreeSet<String>,
    missing: Vec<String>,
}

type Texts = BTreeMap<String, String>;

impl Kubelet<'_> {
    fn environment(&mut self, main: &ContainerSpec) -> Texts {
        let mut env = Texts::new();
        for source in main.env_from.iter().flatten() {
            let prefix = source.prefix.clone().unwrap_or_default();
            let (from, name, optional) = match (&source.secret_ref, &source.config_map_ref) {
                (Some(secret), _) => (self.facts.secrets, &secret.name, secret.optional),
                (None, Some(map)) => (self.facts.configs, &map.name, map.optional),
                (None, None) => continue,
            };
            let data = self.object(from, name, optional);
            for (key, value) in data {
                self.set(&mut env, format!("{prefix}{key}"), value, source.secret_ref.is_some());
            }
        }
        for variable in main.env.iter().flatten() {
            if let Some(value) = self.value(variable, &env) {
                let is_secret = self.is_secret(variable);
                self.set(&mut env, variable.name.clone(), value, is_secret);
            }
        }
        env
    }

    /// Sets a variable, whose earlier value is gone.
    fn set(&mut self, env: &mut Texts, name: String, value: String, is_secret: bool) {
        match is_secret {
            true => self.secret_env.insert(name.clone()),
            false => self.secret_env.remove(&name),
        };
        env.insert(name, value);
    }

    /// Checks whether a variable has the value of a Secret, or a text with such a variable.
    fn is_secret(&self, variable: &EnvVar) -> bool {
        let text = variable.value.as_deref().unwrap_or_default();
        variable.value_from.as_ref().is_some_and(|from| from.secret_key_ref.is_some())
            || self.secret_env.iter().any(|name| text.contains(&format!("$({name})")))
    }

    fn value(&mut self, variable: &EnvVar, env: &Texts) -> Option<String> {
        let Some(from) = &variable.value_from else {
            return Some(expanded(variable.value.as_deref().unwrap_or_default(), env));
        };
        if let Some(field) = &from.field_ref {
            return Some(self.field(field));
        }
        let (objects, name, key, optional) = match (&from.secret_key_ref, &from.config_map_key_ref) {
            (Some(secret), _) => (self.facts.secrets, &secret.name, &secret.key, secret.optional),
            (None, Some(map)) => (self.facts.configs, &map.name, &map.key, map.optional),
            (None, None) => return None,
        };
        let value = objects.get(name).and_then(|data| data.get(key)).cloned();
        if value.is_none() && optional != Some(true) {
            self.missing.push(format!("the key {key} of {name}, which the variable {} needs", variable.name));
        }
        value
    }

    /// Returns a field of the pod, as the downward API does.
    fn field(&self, field: &ObjectFieldSelector) -> String {
        let annotation = |key: &str| self.template.metadata.as_ref()?.annotations.as_ref()?.get(key).cloned();
        match field.field_path.as_str() {
            "metadata.name" => self.facts.name.to_owned(),
            "metadata.namespace" => self.job.metadata.namespace.clone().unwrap_or_default(),
            "spec.nodeName" => self.facts.node.to_owned(),
            path => {
                let key = path.strip_prefix("metadata.annotations['").and_then(|rest| rest.strip_suffix("']"));
                key.and_then(annotation).unwrap_or_default()
            }
        }
    }

    fn object(&mut self, objects: &BTreeMap<String, Texts>, name: &str, optional: Option<bool>) -> Texts {
        let data = objects.get(name).cloned();
        if data.is_none() && optional != Some(true) && name != ROOT_CA {
            self.missing.push(format!("the Secret or ConfigMap {name}: add it to the file of the config"));
        }
        let data = data.unwrap_or_default();
        let wrong = data.keys().filter_map(|key| Some(format!("the key {key} of {name} {}", key_problem(key)?)));
        self.missing.extend(wrong);
        data
    }

    fn mount(&mut self, mount: &VolumeMount, volumes: &[Volume]) -> Option<Mount> {
        let Some(volume) = volumes.iter().find(|volume| volume.name == mount.name) else {
            self.missing.push(format!("the volume {} of the mount {}", mount.name, mount.mount_path));
            return None;
        };
        let sub_path = mount.sub_path.clone().unwrap_or_default();
        self.check_path(&sub_path);
        let content = self.content(volume, sub_path);
        let read_only = mount.read_only == Some(true) || matches!(content, Content::Files(_));
        Some(Mount { path: mount.mount_path.clone(), content, read_only })
    }

    /// Refuses a path that leads out of its directory, as the API server does.
    fn check_path(&mut self, path: &str) {
        if path.split('/').any(|part| part == "..") {
            self.missing.push(format!("a path without `..`: the pod has {path}"));
        }
    }

    fn content(&mut self, volume: &Volume, sub_path: String) -> Content {
        self.missing.extend(volume_problem(volume).map(|why| format!("the pod-template: {why}")));
        if let Some(projected) = &volume.projected {
            let sources = projected.sources.iter().flatten();
            return Content::Files(sources.flat_map(|source| self.projected(source)).collect());
        }
        if let Some(downward) = &volume.downward_api {
            return Content::Files(self.downward(downward.items.iter().flatten()));
        }
        if let Some(secret) = &volume.secret {
            let name = secret.secret_name.clone().unwrap_or_default();
            return Content::Files(self.object(self.facts.secrets, &name, secret.optional));
        }
        if let Some(map) = &volume.config_map {
            return Content::Files(self.object(self.facts.configs, &map.name, map.optional));
        }
        if let Some(on_node) = &volume.host_path {
            let must_exist = on_node.type_.as_deref() == Some("Directory");
            self.check_path(&on_node.path);
            return Content::OnNode { path: on_node.path.clone(), must_exist, sub_path };
        }
        match volume.empty_dir {
            Some(_) => Content::Empty,
            None => Content::Remote { volume: volume.name.clone(), sub_path },
        }
    }

    fn projected(&mut self, source: &VolumeProjection) -> Texts {
        if let Some(downward) = &source.downward_api {
            return self.downward(downward.items.iter().flatten());
        }
        let (objects, name, items, optional) = match (&source.secret, &source.config_map) {
            (Some(secret), _) => (self.facts.secrets, &secret.name, &secret.items, secret.optional),
            (None, Some(map)) => (self.facts.configs, &map.name, &map.items, map.optional),
            (None, None) => {
                let token = source.service_account_token.iter();
                return token.map(|token| (token.path.clone(), TOKEN.to_owned())).collect();
            }
        };
        let data = self.object(objects, name, optional);
        match items {
            None => data,
            Some(items) => {
                items.iter().filter_map(|item| Some((item.path.clone(), data.get(&item.key)?.clone()))).collect()
            }
        }
    }

    fn downward<'b>(&self, items: impl Iterator<Item = &'b DownwardAPIVolumeFile>) -> Texts {
        items.filter_map(|item| Some((item.path.clone(), self.field(item.field_ref.as_ref()?)))).collect()
    }
}

#[cfg(test)]
#[path = "container_tests.rs"]
mod tests;

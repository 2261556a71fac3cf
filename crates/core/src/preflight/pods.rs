//! The pods that an installation starts, for dry runs before it, and the judgement on the answers of the API server.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodTemplateSpec};
use serde::de::DeserializeOwned;

use super::Line;
use crate::config::classes::Identity;
use crate::config::effective_config::EffectiveConfig;
use crate::config::values::yaml;
use crate::object::ObjectName;
use crate::run::list::list;

const DEPLOYMENT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kustomize/deployment.yaml"));
const HOSTPATH: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configmaps/hostpath.yaml"));
/// The keys of the shipped config that name objects which do not exist yet.
const OF_OTHERS: [&str; 1] = ["service-account-name"];

/// A pod of the installation, or of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct ShippedPod {
    /// The name of the pod for people, such as `the orchestrator's pod`.
    pub what: &'static str,
    /// Nothing works without the pod. Otherwise only classes with a directory of a node need it.
    pub is_needed: bool,
    /// The pod, without a namespace. It has the account `default`, because the own one does not exist yet.
    pub pod: Pod,
}

/// Returns the pods of the installation: the orchestrator's, that of a run, and those of the class `hostpath`. `image`
/// replaces their images.
pub fn shipped(identity: &Identity, image: Option<&str>) -> Vec<ShippedPod> {
    let deployment: Deployment = document(DEPLOYMENT, "Deployment");
    let keeper: DaemonSet = document(HOSTPATH, "DaemonSet");
    let config: ConfigMap = document(HOSTPATH, "ConfigMap");
    let plain = [("image".to_owned(), "localhost/image".to_owned())];
    let on_node = config.data.into_iter().flatten().filter(|(key, _)| !OF_OTHERS.contains(&key.as_str()));
    let template = |spec: Option<PodTemplateSpec>| spec.unwrap_or_default();
    let all = [
        ("the orchestrator's pod", true, template(deployment.spec.map(|spec| spec.template))),
        ("the pod of a run", true, run(identity, plain)),
        ("the pod of a run with a directory of its node", false, run(identity, on_node)),
        ("the pod of hostpath's DaemonSet", false, template(keeper.spec.map(|spec| spec.template))),
    ];
    all.map(|(what, is_needed, template)| ShippedPod { what, is_needed, pod: pod(template, image) }).into()
}

/// Reads the first object of a kind in a shipped file.
fn document<T: DeserializeOwned>(file: &str, kind: &str) -> T {
    let line = format!("kind: {kind}");
    let found = file.split("\n---\n").find(|document| document.lines().any(|text| text == line));
    yaml(found.unwrap_or_default()).expect("the shipped file is YAML: a test sees to it")
}

/// Returns the pod of a run of a config with this data. A list run is for no claim, and needs no gate.
fn run(identity: &Identity, data: impl IntoIterator<Item = (String, String)>) -> PodTemplateSpec {
    let config = ObjectName::new(&identity.namespace, "check");
    let data = data.into_iter().collect();
    let config = EffectiveConfig { config, class: "check".into(), data, ..EffectiveConfig::default() };
    let recipe = config.recipe().expect("the shipped config is valid: a test sees to it");
    list(&recipe, None, identity, "https://kubernetes.default", "").spec.unwrap_or_default().template
}

/// Makes a pod for a dry run of a template.
fn pod(template: PodTemplateSpec, image: Option<&str>) -> Pod {
    let (mut metadata, mut spec) = (template.metadata.unwrap_or_default(), template.spec.unwrap_or_default());
    metadata.generate_name = Some("flex-provisioner-check-".to_owned());
    spec.service_account_name = None;
    spec.automount_service_account_token = Some(false);
    for container in &mut spec.containers {
        container.image = image.map(str::to_owned).or(container.image.take());
    }
    Pod { metadata, spec: Some(spec), status: None }
}

/// The answer of the API server to a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The cluster refuses the pod: by Pod Security, a quota, a policy engine, or for its priority.
    Refuses,
    /// The namespace is so new that it has no account yet.
    TooEarly,
    /// The answer says nothing about the pod.
    Unknown,
}

/// Reads the answer of the API server, by the code of HTTP and the message of an error.
pub fn answer(code: u16, message: &str) -> Answer {
    match code {
        _ if message.contains("error looking up service account") => Answer::TooEarly,
        _ if message.contains(" cannot create resource ") => Answer::Unknown,
        // A webhook with side effects answers no dry run.
        _ if message.contains("does not support dry run") => Answer::Unknown,
        401 | 404 | 409 | 429 | 502..=504 => Answer::Unknown,
        _ => Answer::Refuses,
    }
}

/// The place of the dry runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The namespace of the installation.
    pub namespace: &'a str,
    /// The namespace does not exist yet: the dry runs are in `default`.
    pub is_missing: bool,
}

impl<'a> Place<'a> {
    /// Returns the namespace of the dry runs.
    pub fn of_runs(self) -> &'a str {
        if self.is_missing { "default" } else { self.namespace }
    }
}

/// Judges a pod by the words with which the API server refused it; `None` if it took the pod.
pub fn judge(shipped: &ShippedPod, place: Place<'_>, refusal: Option<&str>) -> Line {
    const CHECK: &str = "pods";
    let note = match place.is_missing {
        true => format!(" (where {} does not exist yet)", place.namespace),
        false => String::new(),
    };
    let where_to = format!("namespace {}{note}", place.of_runs());
    match refusal {
        None => Line::ok(CHECK, format!("{where_to} takes {}", shipped.what)),
        Some(why) if shipped.is_needed => {
            Line::failed(CHECK, format!("{where_to} refuses {}: {why}", shipped.what), remedy(place.namespace, why))
        }
        Some(why) => Line::warning(
            CHECK,
            format!("{where_to} refuses {}, so hostpath and classes like it do not work: {why}", shipped.what),
            remedy(place.namespace, why),
        ),
    }
}

/// Says what to do about a refusal, by its words.
fn remedy(namespace: &str, why: &str) -> String {
    let is_priority = why.contains("insufficient quota to match these scopes") || why.contains("PriorityClass");
    match why {
        _ if why.contains("violates PodSecurity") => {
            format!("kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=privileged --overwrite")
        }
        _ if is_priority => format!(
            "name another PriorityClass, or none (`priority-class` of the config, priorityClassName of the chart), or create a ResourceQuota for it in namespace {namespace}"
        ),
        _ if why.contains("quota") => format!("raise the ResourceQuota of namespace {namespace}"),
        _ => format!(
            "let the policies of the cluster, whose words these are, except namespace {namespace}: docs/how-to/platforms.md"
        ),
    }
}

#[cfg(test)]
mod tests {
    use flex_contract::names;

    use super::*;
    use crate::preflight::Mark;

    fn pods(image: Option<&str>) -> Vec<ShippedPod> {
        shipped(&Identity::of_tests(), image)
    }

    #[test]
    fn each_shipped_pod_is_on_linux_and_needs_no_object_that_does_not_exist_yet() {
        let pods = pods(None);
        assert_eq!(pods.iter().map(|one| one.is_needed).collect::<Vec<_>>(), [true, true, false, false]);
        for ShippedPod { what, pod, .. } in &pods {
            let spec = pod.spec.as_ref().unwrap();
            let system = spec.node_selector.as_ref().and_then(|labels| labels.get(names::OS));
            assert_eq!(system.map(String::as_str), Some(names::OS_LINUX), "{what}");
            assert_eq!((&spec.service_account_name, &pod.metadata.namespace), (&None, &None), "{what}");
            assert!(spec.containers.iter().all(|container| container.image.is_some()), "{what}");
            let gates = spec.scheduling_gates.as_ref().map_or(0, Vec::len);
            assert_eq!(gates, 0, "{what}: the policy runs lets list runs alone in without a gate");
        }
        let on_node = |one: &ShippedPod| {
            let volumes = one.pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
            volumes.is_some_and(|volumes| volumes.iter().any(|volume| volume.host_path.is_some()))
        };
        assert_eq!(pods.iter().map(on_node).collect::<Vec<_>>(), [false, false, true, true]);
        let priority = |one: &ShippedPod| one.pod.spec.as_ref().unwrap().priority_class_name.clone();
        assert_eq!(priority(&pods[0]), None, "some platforms allow the critical one in kube-system alone");
        assert_eq!(priority(&pods[2]).as_deref(), Some("system-node-critical"), "the dry run asks for it, too");
    }

    #[test]
    fn an_image_of_the_user_is_in_each_pod() {
        for ShippedPod { what, pod, .. } in pods(Some("registry.example/a:1")) {
            let image = pod.spec.unwrap().containers.remove(0).image;
            assert_eq!(image.as_deref(), Some("registry.example/a:1"), "{what}");
        }
    }

    #[test]
    fn only_answers_about_the_pod_are_refusals() {
        for (code, message, expected) in [
            (403, "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": x", Answer::Refuses),
            (403, "pods \"a\" is forbidden: exceeded quota: q", Answer::Refuses),
            (400, "admission webhook \"validate.kyverno.svc-fail\" denied the request", Answer::Refuses),
            (500, "failed calling webhook \"validation.gatekeeper.sh\"", Answer::Refuses),
            (403, "pods is forbidden: User \"a\" cannot create resource \"pods\" in API group \"\"", Answer::Unknown),
            (404, "namespaces \"a\" not found", Answer::Unknown),
            (429, "", Answer::Unknown),
            (403, "error looking up service account a/default: serviceaccount \"default\" not found", Answer::TooEarly),
        ] {
            assert_eq!(answer(code, message), expected, "{code} {message}");
        }
    }

    #[test]
    fn a_refused_pod_is_judged_by_who_needs_it_and_the_remedy_by_the_words() {
        let pods = pods(None);
        let place = Place { namespace: "storage", is_missing: false };
        let mark = |one: usize, refusal| judge(&pods[one], place, refusal).mark;
        assert_eq!((mark(0, None), mark(0, Some("x"))), (Mark::Ok, Mark::Failed));
        assert_eq!((mark(3, None), mark(3, Some("x"))), (Mark::Ok, Mark::Warning));
        for (why, part) in [
            ("violates PodSecurity \"restricted:latest\"", "kubectl label namespace storage"),
            ("exceeded quota: q, requested: pods=1", "raise the ResourceQuota of namespace storage"),
            ("insufficient quota to match these scopes: [{PriorityClass In [a]}]", "priorityClassName"),
            ("no PriorityClass with name high was found", "priorityClassName"),
            ("admission webhook denied the request", "except namespace storage"),
        ] {
            let line = judge(&pods[0], place, Some(why));
            let remedy = line.remedy.unwrap();
            assert!(remedy.contains(part) && line.found.ends_with(why), "{why}: {remedy}");
        }
        let missing = Place { is_missing: true, ..place };
        assert_eq!(missing.of_runs(), "default");
        let line = judge(&pods[0], missing, None);
        assert_eq!(line.found, "namespace default (where storage does not exist yet) takes the orchestrator's pod");
    }
}

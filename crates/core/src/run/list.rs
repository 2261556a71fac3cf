//! The Job of a list run. It is for no volume, and the caller that needs the list starts it.

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use k8s_openapi::api::batch::v1::Job;

use super::job::{RunTarget, job};
use super::request::{AttemptStart, of_class};
use crate::config::Recipe;
use crate::config::classes::Identity;
use crate::object::hash;

/// The time to live of a finished Job, in seconds, if its creator does not delete it.
pub(super) const LIST_JOB_TTL: i32 = 600;

/// Builds the Job of a list run on a node, or on any node. `ts`, RFC 3339, is the time of its creation.
pub fn list(recipe: &Recipe, node: Option<&str>, identity: &Identity, kube_api: &str, ts: &str) -> Job {
    let start = AttemptStart { attempt: 1, ts: ts.to_owned() };
    let request = RunRequest {
        node_name: node.unwrap_or_default().to_owned(),
        ..of_class(Operation::List, recipe, identity, kube_api, start)
    };
    let target =
        RunTarget { namespace: recipe.config.namespace.clone(), node: node.map(str::to_owned), ..RunTarget::default() };
    let mut job = job(recipe, &request, &target);
    let which = format!("{}\0{}\0{ts}", recipe.version(), node.unwrap_or_default());
    job.metadata.name = Some(format!("{}-{}", Operation::List, hash(which.as_bytes())));
    job.spec.get_or_insert_default().ttl_seconds_after_finished = Some(LIST_JOB_TTL);
    of_no_claim(&mut job);
    job
}

/// Removes the claim's name from a Job that is for no claim.
pub(crate) fn of_no_claim(job: &mut Job) {
    let template = job.spec.as_mut().and_then(|spec| spec.template.metadata.as_mut());
    for metadata in template.into_iter().chain([&mut job.metadata]) {
        metadata.annotations.get_or_insert_default().remove(names::JOB_CLAIM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::effective_config::EffectiveConfig;
    use crate::object::ObjectName;

    #[test]
    fn a_list_run_names_no_volume_and_runs_on_the_requested_node() {
        let data = [("image", "x"), ("zone", "west"), ("capabilities", "list")];
        let data = data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let effective_config = EffectiveConfig {
            config: ObjectName::new("admin", "c"),
            class: "c".into(),
            data,
            ..EffectiveConfig::default()
        };
        let identity = Identity {
            provisioner: names::DEFAULT_PROVISIONER.into(),
            plugin: names::DEFAULT_PLUGIN.into(),
            instance: "default".into(),
            config_namespaces: vec![],
            namespace: "own".into(),
            shell_image: None,
            cluster: String::new(),
        };
        let recipe = effective_config.recipe().unwrap();
        let made = |node, ts| list(&recipe, node, &identity, "https://api", ts);
        let job = made(Some("a"), "1");
        let spec = job.spec.clone().unwrap().template.spec.unwrap();
        let env = spec.containers[0].env.clone().unwrap();
        let value = |name: &str| env.iter().find(|v| v.name == name).and_then(|v| v.value.clone());
        assert_eq!((value("OPERATION").as_deref(), value("ZONE").as_deref()), (Some("list"), Some("west")));
        assert_eq!((value("CLAIM_UUID").as_deref(), value("NODE_NAME").as_deref()), (Some(""), Some("a")));
        assert!(spec.affinity.is_some() && made(None, "1").spec.unwrap().template.spec.unwrap().affinity.is_none());
        assert_eq!(job.metadata.namespace.as_deref(), Some("admin"));
        let read = crate::run::view::Job::from(&job);
        assert_eq!((read.claim, read.run_labels.operation.as_str(), read.run_labels.id.as_str()), (None, "list", ""));
        let name = |job: Job| job.metadata.name.unwrap();
        assert_ne!(name(made(Some("a"), "1")), name(made(Some("b"), "1")));
        assert_ne!(name(made(Some("a"), "1")), name(made(Some("a"), "2")), "a new name each time");
    }
}

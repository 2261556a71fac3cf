//! The variables and mounts of a run, in its Job.

use flex_contract::names::{CONTAINER, PROPERTY_PREFIX};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, Volume};

/// Gives a variable of a run, and its file, another value.
pub fn with_variable(job: &mut Job, name: &str, value: &str) {
    let Some(template) = job.spec.as_mut().map(|spec| &mut spec.template) else { return };
    let Some(spec) = template.spec.as_mut() else { return };
    for container in spec.containers.iter_mut().filter(|container| container.name == CONTAINER) {
        let env = container.env.get_or_insert_default();
        env.retain(|variable| variable.name != name);
        env.push(EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None });
    }
    let file = name.to_ascii_lowercase().replace('_', "-");
    let annotation = spec.volumes.iter().flatten().find_map(|volume| annotation(volume, &file));
    let annotations = template.metadata.as_mut().and_then(|metadata| metadata.annotations.as_mut());
    if let Some((annotations, annotation)) = annotations.zip(annotation) {
        annotations.insert(annotation, value.to_owned());
    }
}

/// Returns the annotation of the pod that a volume shows as a file.
fn annotation(volume: &Volume, file: &str) -> Option<String> {
    let sources = volume.projected.as_ref()?.sources.iter().flatten();
    let items = sources.filter_map(|source| source.downward_api.as_ref()?.items.as_ref()).flatten();
    let paths = items.filter(|item| item.path == file).filter_map(|item| item.field_ref.as_ref());
    let keys = paths.filter_map(|field| field.field_path.strip_prefix("metadata.annotations['")?.strip_suffix("']"));
    keys.map(str::to_owned).find(|key| key.starts_with(PROPERTY_PREFIX))
}

/// Returns the directory of a run with the storage, or one that it can write.
pub fn storage_root(job: &Job) -> String {
    let spec = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let containers = || spec.iter().flat_map(|spec| &spec.containers).filter(|one: &&Container| one.name == CONTAINER);
    let is_storage = |volume: &&Volume| {
        let own = volume.empty_dir.is_some() || volume.secret.is_some() || volume.projected.is_some();
        !own && volume.config_map.is_none() && volume.downward_api.is_none()
    };
    let volumes: Vec<&str> = spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten())
        .filter(is_storage)
        .map(|volume| volume.name.as_str())
        .collect();
    let mounts = containers().flat_map(|container| container.volume_mounts.iter().flatten());
    let mut found = mounts.filter(|mount| volumes.contains(&mount.name.as_str()));
    found.next().map_or_else(|| "/tmp".into(), |mount| mount.mount_path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::place::Ids;
    use crate::order::{Content, Order};
    use crate::setting::tests::{config, read};

    #[test]
    fn a_variable_and_its_file_get_another_value() {
        let setting = read(&config("a", "image: i, service-account-name: s"), None).unwrap();
        let order = Order::Provision { claim: setting.claim_with_id(&Ids::of_desk().first()), content: Content::Empty };
        let mut job = setting.job(&order, 1, "https://api").unwrap();
        let values = |job: &Job| {
            let template = &job.spec.as_ref().unwrap().template;
            let pod = template.spec.as_ref().unwrap();
            let env = pod.containers[0].env.as_ref().unwrap();
            let named: Vec<_> = env.iter().filter(|one| one.name == "OPERATION").map(|one| one.value.clone()).collect();
            let key = pod.volumes.iter().flatten().find_map(|volume| annotation(volume, "operation")).unwrap();
            (named, template.metadata.as_ref().unwrap().annotations.as_ref().unwrap()[&key].clone())
        };
        assert_eq!(values(&job), (vec![Some("provision".into())], "provision".into()));
        with_variable(&mut job, "OPERATION", "other");
        assert_eq!(values(&job), (vec![Some("other".into())], "other".into()));
    }
}

//! The script of a run: the pod has the text in an annotation, and the kubelet writes it into a file.

use flex_contract::names::{self, CONTAINER};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, DownwardAPIVolumeSource, ObjectFieldSelector, PodTemplateSpec, Volume,
    VolumeMount,
};

use crate::config::Recipe;
use crate::config::script::kept_prefix;

/// The volume with the file.
const VOLUME: &str = "flex-script";
/// The name of the file in the directory of the volume.
const FILE: &str = "script";

/// Makes a pod run the script of its recipe, if it has one. [`complete`] adds the text.
pub(super) fn attach(template: &mut PodTemplateSpec, recipe: &Recipe) {
    if recipe.script.is_none() {
        return;
    }
    let Some(spec) = &mut template.spec else { return };
    let file = DownwardAPIVolumeFile {
        path: FILE.into(),
        field_ref: Some(ObjectFieldSelector {
            field_path: format!("metadata.annotations['{}']", names::SCRIPT),
            ..ObjectFieldSelector::default()
        }),
        ..DownwardAPIVolumeFile::default()
    };
    let volumes = spec.volumes.get_or_insert_default();
    volumes.retain(|volume| volume.name != VOLUME);
    volumes.push(Volume {
        name: VOLUME.into(),
        downward_api: Some(DownwardAPIVolumeSource { items: Some(vec![file]), default_mode: Some(0o444) }),
        ..Volume::default()
    });
    let Some(container) = main(template) else { return };
    container.command = Some(vec!["/bin/sh".into(), format!("{}/{FILE}", names::SCRIPT_DIR)]);
    container.args = None;
    container.image = container.image.take().filter(|image| !image.is_empty());
    let mounts = container.volume_mounts.get_or_insert_default();
    mounts.retain(|mount| mount.mount_path != names::SCRIPT_DIR);
    mounts.push(VolumeMount {
        name: VOLUME.into(),
        mount_path: names::SCRIPT_DIR.into(),
        read_only: Some(true),
        ..VolumeMount::default()
    });
}

/// The texts that a Job gets beyond its recipe.
#[derive(Clone, Copy, Debug, Default)]
pub struct Texts<'a> {
    /// The text of the script that the recipe names, if it is known.
    pub script: Option<&'a str>,
    /// The image for scripts whose config names none.
    pub shell_image: Option<&'a str>,
}

/// Adds the text of the script to a Job, and the image if the config names none. A Job without a script stays as it is.
///
/// # Errors
/// If one of the texts is not known, with what to do about it.
pub fn complete(job: &mut Job, recipe: &Recipe, texts: Texts<'_>) -> Result<(), String> {
    let Some(hash) = &recipe.script else { return Ok(()) };
    let Some(text) = texts.script else {
        return Err(format!(
            "the script of this version of the config {} is lost: somebody has deleted the ControllerRevision {}; restore that object from a backup, or let the config serve the class {} again, with a script that can do this",
            recipe.config,
            kept_prefix(hash),
            recipe.class,
        ));
    };
    let template = &mut job.spec.get_or_insert_default().template;
    let Some(container) = main(template) else { return Ok(()) };
    if container.image.is_none() {
        let Some(image) = texts.shell_image else {
            return Err("the config names no image for its script, and the provisioner was started without a shell image; start it with --shell-image (FLEX_SHELL_IMAGE), or write `image` into the config".into());
        };
        container.image = Some(image.to_owned());
    }
    let annotations = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
    annotations.insert(names::SCRIPT.into(), text.to_owned());
    Ok(())
}

fn main(template: &mut PodTemplateSpec) -> Option<&mut Container> {
    template.spec.as_mut()?.containers.iter_mut().find(|container| container.name == CONTAINER)
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;

//! The config of a later run: that of the volume, with the program that its class has now.
//!
//! Deletions, expansions, modifications, snapshots and late runs use it. So an admin can correct the image or the script
//! of a class, and the correction also applies to older volumes.

use std::sync::Arc;

use super::Recipe;
use super::effective_config::EffectiveConfig;
use super::keys::{self, STORAGE_MOUNTS};
use super::values::list;

/// Returns the config of a later run: that of the volume, with the program of its class. If another ConfigMap serves the
/// class now, the class does not count, because its image belongs to another vendor.
pub fn with_current_program(provenance: &EffectiveConfig, class: Option<&EffectiveConfig>) -> EffectiveConfig {
    let mut config = provenance.clone();
    if let Some(class) = class.filter(|class| class.config == provenance.config && class.class == provenance.class) {
        for key in keys::ALL.iter().filter(|key| key.follows_class) {
            config.data.remove(key.name);
            config.data.extend(class.data.get(key.name).map(|value| (key.name.to_owned(), value.clone())));
        }
        config.script.clone_from(&class.script);
        restrict_storage_mounts(&mut config, class);
    }
    config
}

/// Takes from the class the part of the storage that a run sees. The volume must be in the storage that the class
/// names.
fn restrict_storage_mounts(config: &mut EffectiveConfig, class: &EffectiveConfig) {
    let Some(of_class) = class.data.get(STORAGE_MOUNTS.name) else {
        config.data.remove(STORAGE_MOUNTS.name);
        return;
    };
    let own = config.data.remove(STORAGE_MOUNTS.name);
    let with = |paths: String| {
        let mut config = config.clone();
        config.data.insert(STORAGE_MOUNTS.name.into(), paths);
        config
    };
    // The class may have got further storage since.
    let paths = list(of_class).unwrap_or_default().into_iter().filter(|path| with(path.clone()).checked().is_ok());
    let paths = paths.collect::<Vec<_>>().join(", ");
    let restricted = if paths.is_empty() { own } else { Some(paths) };
    config.data.extend(restricted.map(|paths| (STORAGE_MOUNTS.name.to_owned(), paths)));
}

/// Returns a recipe with the program of its class, as [`with_current_program`] does.
pub fn recipe_with_current_program(recipe: Arc<Recipe>, class: Option<&EffectiveConfig>) -> Arc<Recipe> {
    let merged = with_current_program(&recipe.effective_config, class);
    if merged == recipe.effective_config { recipe } else { merged.checked().unwrap_or(recipe) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectName;

    #[test]
    fn a_run_uses_the_image_of_the_class_and_the_parameters_of_the_volume() {
        let data = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let config = ObjectName::new("admin", "c");
        let made = [("image", "v1"), ("command", "[old]"), ("server", "nas-1"), ("secret-env", "s1")];
        let now = [("image", "v2"), ("capabilities", "expand"), ("server", "nas-2"), ("secret-env", "s2")];
        let made = EffectiveConfig {
            config: config.clone(),
            class: "c".into(),
            data: data(&made),
            ..EffectiveConfig::default()
        };
        let now = EffectiveConfig { data: data(&now), ..made.clone() };
        let merged = [("image", "v2"), ("capabilities", "expand"), ("server", "nas-1"), ("secret-env", "s1")];
        assert_eq!(with_current_program(&made, Some(&now)).data, data(&merged));
        assert_eq!(with_current_program(&made, None), made);
        // Another vendor serves the class now.
        let foreign = EffectiveConfig { config: ObjectName::new("admin", "d"), ..now };
        assert_eq!(with_current_program(&made, Some(&foreign)), made);
    }

    #[test]
    fn the_storage_mounts_of_a_class_apply_to_older_volumes() {
        let template = |at: &str| {
            format!(
                "spec: {{containers: [{{name: provisioner, volumeMounts: [{{name: a, mountPath: {at}}}]}}], volumes: [{{name: a, hostPath: {{path: {at}}}}}]}}"
            )
        };
        let of = |mounted: &str, mounts: Option<&str>| {
            let data =
                [("image", "v1"), ("pod-template", &template(mounted))].map(|(k, v)| (k.to_owned(), v.to_owned()));
            let mounts = mounts.map(|mounts| ("storage-mounts".to_owned(), mounts.to_owned()));
            let data = data.into_iter().chain(mounts).collect();
            EffectiveConfig {
                config: ObjectName::new("admin", "c"),
                class: "c".into(),
                data,
                ..EffectiveConfig::default()
            }
        };
        let merged = |made: &EffectiveConfig, now: &EffectiveConfig| {
            with_current_program(made, Some(now)).data.get("storage-mounts").cloned()
        };
        let (before, now) = (of("/a", None), of("/a", Some("/a")));
        assert_eq!(merged(&before, &now).as_deref(), Some("/a"));
        assert_eq!(merged(&now, &now).as_deref(), Some("/a"));
        // The class's rule for another directory does not concern this volume.
        assert_eq!(merged(&now, &of("/b", Some("/b"))).as_deref(), Some("/a"));
        assert_eq!(merged(&before, &of("/b", Some("/b"))), None);
        // The class has got further storage since, which the volume's runs do not have.
        let more = EffectiveConfig { data: of("/a", Some("/b, /a")).data, ..of("/a", None) };
        assert_eq!(merged(&before, &more).as_deref(), Some("/a"));
        // An image that does not know the key deletes as before.
        assert_eq!(merged(&now, &before), None);
    }
}

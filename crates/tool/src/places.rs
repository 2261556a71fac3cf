//! The places of all volumes, and the facts that a command has about the config that is to serve them.

use anyhow::{Context as _, bail};
use flex_core::config::Recipe;
use flex_core::config::classes::{ClassLookup, Classes};
use flex_core::object::ObjectName;
use flex_core::volume::move_in::CAPABILITY;
use flex_core::volume::place::{Place, Places};
use flex_provisioner::api::pages;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::json;

/// Reads the places of all volumes.
pub(crate) async fn places(client: &Client) -> anyhow::Result<Places> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let place = |volume: PersistentVolume| Some((volume.metadata.name?, Place::of(&volume.spec?)?));
    let places = pages::all(&volumes, ListParams::default(), place).await;
    Ok(places.context("persistentvolumes cannot be listed")?.into_iter().flatten().collect())
}

/// Returns the source of a volume as JSON, as runs get it, and its resourceVersion.
pub(crate) async fn source(client: &Client, volume: &str) -> anyhow::Result<String> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let found = volumes.get(volume).await.with_context(|| format!("PersistentVolume {volume}"))?;
    let spec = found.spec.unwrap_or_default();
    let kind = flex_contract::volume::volume_source_kind(&spec);
    Ok(kind.map(|kind| json!({ kind: json!(spec)[kind] }).to_string()).unwrap_or_default())
}

/// Returns the recipe by which a config serves a class, if it does.
pub(crate) fn recipe<'a>(classes: &'a Classes, config: &ObjectName, class: &str) -> Option<&'a Recipe> {
    let ClassLookup::Ours(class) = classes.lookup(class) else { return None };
    class.recipe.as_deref().ok().filter(|recipe| recipe.config == *config)
}

/// Checks that a config serves classes, and that its image serves storage that others made.
pub(crate) fn check_config(classes: &Classes, config: &ObjectName) -> anyhow::Result<()> {
    let Some(verdict) = classes.verdicts.get(config) else {
        bail!("the ConfigMap {config} is no provisioner config of this orchestrator: see --config-namespace");
    };
    let left: Vec<_> = verdict.warnings.iter().map(ToString::to_string).collect();
    let served: Vec<&Recipe> = classes.iter().filter_map(|class| class.recipe.as_deref().ok()).collect();
    let served: Vec<&Recipe> = served.into_iter().filter(|recipe| recipe.config == *config).collect();
    if served.is_empty() {
        let why = verdict.problems.iter().map(ToString::to_string).chain(left).collect::<Vec<_>>().join("; ");
        let why = if why.is_empty() { "no StorageClass names it".to_owned() } else { why };
        bail!("the config {config} serves no class now: {why}");
    }
    match served.iter().find(|recipe| !recipe.can(CAPABILITY)) {
        Some(recipe) => bail!(
            "the config {config} does not say that its image serves storage of others (class {}): add `{CAPABILITY}` to its `capabilities` if the image does",
            recipe.class
        ),
        None => Ok(()),
    }
}

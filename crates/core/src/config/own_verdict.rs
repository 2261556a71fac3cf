//! The verdict on a ConfigMap by itself, without StorageClasses and other configs.

use flex_contract::volume::migrated_to;

use super::class::Verdict;
use super::identity::Identity;
use super::input::{Config, effective_config_of};
use super::{Problem, SourceRule, common_mistakes, keys, script};

/// Returns the problem of a rule for a kind that Kubernetes hands to a CSI driver. Such a rule allows nothing, and the
/// records of volumes may have it.
fn migrated_kinds(config: &Config) -> Option<Problem> {
    let text = config.data.get(keys::VOLUME_SOURCES.name)?;
    let mut kinds = text.split(',').map(str::trim);
    let (kind, driver) = kinds.find_map(|kind| migrated_to(kind).map(|driver| (kind, driver)))?;
    let why =
        format!("allows no volume by `{kind}`: Kubernetes hands such volumes to a CSI driver; write `csi:{driver}`");
    Some(Problem::new(keys::VOLUME_SOURCES.name, why))
}

/// Checks a ConfigMap by itself.
pub(super) fn own_verdict(identity: &Identity, config: &Config) -> Verdict {
    let mut verdict = Verdict::default();
    if !config.data.contains_key(keys::PLUGIN_NAME.name) {
        verdict.problems.push(Problem::new(
            keys::PLUGIN_NAME.name,
            format!("is missing; write `plugin-name: {}`", identity.plugin),
        ));
    }
    verdict.problems.extend(script::problems(&config.data, identity));
    match effective_config_of(config, config.class.as_deref().unwrap_or_default()).checked() {
        Err(problems) => verdict.problems.extend(problems),
        Ok(recipe) => {
            verdict.problems.extend(script::problem_of_template(&recipe));
            let any = |rule: &&SourceRule| {
                rule.driver.is_none()
                    && (rule.kind == "flexVolume" || rule.kind == "csi" && config.replaces().is_none())
            };
            verdict.warnings.extend(recipe.volume_sources.iter().find(any).map(|rule| {
                let kind = &rule.kind;
                Problem::new(keys::VOLUME_SOURCES.name, format!(
                    "allows volumes of every {kind} driver of the cluster, with whatever the image tells it; name the driver, such as `{kind}:driver.example`"
                ))
            }));
        }
    }
    verdict.problems.extend(migrated_kinds(config));
    if config.replaces() == Some(identity.provisioner.as_str()) {
        let why = "is this provisioner's own name; name the CSI driver whose external provisioner it replaces";
        verdict.problems.push(Problem::new(keys::REPLACES_PROVISIONER.name, why));
    }
    if config.data.contains_key(keys::SERVICE_TOKEN.name) {
        verdict.warnings.push(Problem::new(keys::SERVICE_TOKEN.name, format!(
            "stands in a ConfigMap, where many can read it; better: `kubectl -n {} create secret generic {}-token --from-literal=SERVICE_TOKEN=…`, then `secret-env: {}-token` in place of this key",
            config.name.namespace, config.name.name, config.name.name
        )));
    }
    verdict.warnings.extend(common_mistakes::without_account(&config.data));
    verdict.warnings.extend(config.label_mistakes.iter().cloned());
    verdict.warnings.extend(common_mistakes::in_data(&config.data));
    verdict
}

//! The check whether a class allows the volume source of a volume.

use flex_contract::volume::migrated_to;

use crate::config::SourceRule;
use crate::config::values::is_clean_absolute;
use crate::model::volume::Volume;

/// The only kind that needs no rule: a server of the network decides what a node may mount.
const WITHOUT_RULE: &str = "nfs";

/// Checks whether the rules of a class allow a volume source. Without a rule only `nfs` is allowed. An image that could
/// name any path or disk could expose the node itself. A driver would do with its own rights whatever the image says. A
/// class that replaces a driver may use that driver. Kubernetes hands volumes of some in-tree kinds to a CSI driver: such
/// a kind counts as its driver.
pub(super) fn verify_source(volume: &Volume, rules: &[SourceRule], replaces: &str) -> Result<(), String> {
    let Some(kind) = volume.source_kind else { return Err("it has no volume source, or several".into()) };
    match kind {
        "hostPath" | "local" => on_node(kind, volume.path.as_deref().unwrap_or_default(), rules),
        "csi" | "flexVolume" => by_driver(kind, &driver_of(volume), rules, replaces),
        "fc" => by_targets(volume, rules),
        _ => match migrated_to(kind) {
            Some(driver) => by_driver("csi", driver, rules, replaces)
                .map_err(|why| format!("Kubernetes hands {kind} volumes to the CSI driver {driver}: {why}")),
            None if rules.is_empty() && kind == WITHOUT_RULE => Ok(()),
            None => by_kind(kind, rules),
        },
    }
}

fn driver_of(volume: &Volume) -> String {
    volume.foreign_metadata.as_ref().and_then(|written| written.driver.clone()).unwrap_or_default()
}

fn on_node(kind: &str, path: &str, rules: &[SourceRule]) -> Result<(), String> {
    if !is_clean_absolute(path) {
        return Err(format!("its path `{path}` is not absolute and clean"));
    }
    let is_below = |prefix: &String| {
        path.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
    };
    let is_allowed = |rule: &SourceRule| rule.kind == kind && rule.prefix.as_ref().is_none_or(is_below);
    match rules.iter().any(is_allowed) {
        true => Ok(()),
        false if rules.is_empty() => Err(format!(
            "a {kind} volume needs `volume-sources: {kind}:/directory` in the provisioner config; its path is `{path}`"
        )),
        false => Err(format!("`volume-sources` of the provisioner config does not allow {kind} at `{path}`")),
    }
}

fn by_driver(kind: &str, driver: &str, rules: &[SourceRule], replaces: &str) -> Result<(), String> {
    let is_replaced = kind == "csi" && !replaces.is_empty() && driver == replaces;
    let is_any = |rule: &SourceRule| rule.driver.is_none() && (kind != "csi" || replaces.is_empty());
    let of_kind: Vec<&SourceRule> = rules.iter().filter(|rule| rule.kind == kind).collect();
    let is_allowed = |rule: &&SourceRule| is_any(rule) || is_replaced || rule.driver.as_deref() == Some(driver);
    match of_kind.as_slice() {
        [] if rules.is_empty() && is_replaced => Ok(()),
        [] if rules.is_empty() => Err(format!(
            "a {kind} volume needs `volume-sources: {kind}:DRIVER` in the provisioner config; its driver is `{driver}`"
        )),
        [] => Err(format!(
            "`volume-sources` of the provisioner config does not allow {kind}; `{kind}:{driver}` would allow this driver"
        )),
        of_kind if of_kind.iter().any(is_allowed) => Ok(()),
        _ => Err(format!(
            "`volume-sources` of the provisioner config does not allow the driver `{driver}`; `{kind}:{driver}` would"
        )),
    }
}

/// Checks the targets of an `fc` volume. A disk that a WWID names may be one of the node itself.
fn by_targets(volume: &Volume, rules: &[SourceRule]) -> Result<(), String> {
    by_kind("fc", rules)?;
    let written = volume.foreign_metadata.as_deref();
    let Some(written) = written.filter(|written| !written.names_disks && !written.wwns.is_empty()) else {
        return Err(
            "its source must name disks by `targetWWNs` and `lun`: by `wwids` it could name a disk of the node".into(),
        );
    };
    if let Some(wwn) = written.wwns.iter().find(|wwn| !is_wwn(wwn)) {
        return Err(format!("its target WWN `{wwn}` has not 16 hexadecimal digits"));
    }
    let is_allowed = |wwn: &&String| {
        let mut rules = rules.iter().filter(|rule| rule.kind == "fc");
        rules.any(|rule| rule.driver.as_ref().is_none_or(|allowed| allowed.eq_ignore_ascii_case(wwn)))
    };
    match written.wwns.iter().find(|wwn| !is_allowed(wwn)) {
        None => Ok(()),
        Some(wwn) => Err(format!(
            "`volume-sources` of the provisioner config does not allow the target WWN `{wwn}`; `fc:{wwn}` would"
        )),
    }
}

fn by_kind(kind: &str, rules: &[SourceRule]) -> Result<(), String> {
    match rules.iter().any(|rule| rule.kind == kind) {
        true => Ok(()),
        false if rules.is_empty() => {
            Err(format!("a volume of the kind {kind} needs `volume-sources: {kind}` in the provisioner config"))
        }
        false => Err(format!("`volume-sources` of the provisioner config does not allow {kind}")),
    }
}

/// Checks whether a text is a WWN as Kubernetes looks it up.
fn is_wwn(text: &str) -> bool {
    text.len() == 16 && text.chars().all(|c| c.is_ascii_hexdigit())
}

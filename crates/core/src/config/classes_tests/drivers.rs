//! Tests of configs that replace the external provisioner of a driver.

use k8s_openapi::api::core::v1::PersistentVolume;

use super::*;
use crate::config::effective_config::EffectiveConfig;
use crate::config::external_provisioner::LeaseCheck;
use crate::model::volume::Volume;

/// Returns a StorageClass that was written for a driver's own provisioner.
fn of_driver(name: &str, parameters: &[(&str, &str)]) -> ClassObject {
    ClassObject { provisioner: "csi.example.com".into(), ..object(name, parameters) }
}

#[test]
fn a_config_that_replaces_a_driver_s_provisioner_serves_its_classes() {
    let general = config("general", None, &[("replaces-provisioner", "csi.example.com")]);
    let named =
        config("named", Some("named"), &[("replaces-provisioner", "csi.example.com"), ("zone", "west"), ("type", "x")]);
    // All parameters belong to the driver, also those with the names of keys, or similar ones.
    let gold = of_driver("gold", &[("pool", "rbd"), ("fsType", "xfs"), ("csi.storage.k8s.io/fstype", "ext4")]);
    let (named_object, own) = (of_driver("named", &[("type", "y"), ("image", "vm.qcow2")]), object("own", &[]));
    let own_config = config("own", Some("own"), &[]);
    let table = table(&[&general, &named, &own_config], &[&gold, &named_object, &own]);
    let gold = recipe(&table, "gold");
    assert_eq!(gold.config.name, "general");
    assert_eq!(gold.parameters, map(&[("pool", "rbd"), ("fsType", "xfs"), ("csi.storage.k8s.io/fstype", "ext4")]));
    assert_eq!(gold.effective_config.provisioner("ours"), "csi.example.com");
    assert!(!class(&table, "gold").is_for_other_provisioner(Some("csi.example.com")));
    assert!(class(&table, "gold").is_for_other_provisioner(Some(names::DEFAULT_PROVISIONER)));
    let named = recipe(&table, "named");
    assert_eq!((named.config.name.as_str(), named.image.as_str()), ("named", "custom/provision"));
    assert_eq!(named.parameters, map(&[("zone", "west"), ("type", "y"), ("image", "vm.qcow2")]));
    assert_eq!(recipe(&table, "own").effective_config.provisioner("ours"), "ours");
    for name in ["general", "named", "own"] {
        assert_eq!((problems(&table, name).as_str(), verdict(&table, name).warnings.len()), ("", 0), "{name}");
    }
    assert_eq!(verdict(&table, "general").classes, ["gold"]);
    // The stored config gives the same recipe.
    let kept: EffectiveConfig = serde_json::from_value(serde_json::json!(gold.effective_config)).unwrap();
    assert_eq!(&kept.recipe().unwrap(), gold);
}

/// The watch of StorageClasses is late: only the label of the config names the class.
#[test]
fn a_label_alone_serves_no_class_of_a_provisioner_that_may_still_run() {
    let keys = [("replaces-provisioner", "csi.example.com"), ("capabilities", "expand")];
    let replacing = config("stands", Some("gold"), &keys);
    for (found, is_served) in [
        (ExternalProvisioner::Unknown(None), false),
        (ExternalProvisioner::Unknown(Some("Leases may not be listed".into())), false),
        (ExternalProvisioner::Gone, true),
    ] {
        let known = ExternalProvisioners::new([("csi.example.com".to_owned(), found.into())]);
        let table = beside(&known, &[&replacing], &[]);
        assert_eq!(matches!(table.lookup("gold"), ClassLookup::Ours(_)), is_served);
        assert_eq!(matches!(table.lookup("gold"), ClassLookup::Foreign), !is_served);
        let advice = crate::config::joined(&verdict(&table, "stands").warnings);
        assert_eq!(advice.contains("provisioner: csi.example.com"), is_served, "{advice}");
    }
    // Nothing is known yet.
    let table = beside(&ExternalProvisioners::default(), &[&replacing], &[]);
    assert!(matches!(table.lookup("gold"), ClassLookup::Foreign));
}

#[test]
fn no_class_of_a_driver_is_served_while_its_external_provisioner_runs() {
    let replacing = config("stands", None, &[("replaces-provisioner", "csi.example.com")]);
    let objects = [of_driver("gold", &[]), of_driver("silver", &[])];
    let objects = [&objects[0], &objects[1]];
    let live =
        ExternalProvisioner::Live { lease: ObjectName::new("kube-system", "csi-example-com"), holder: "pod-1".into() };
    for (sidecar, says) in [
        (live, vec!["gold, silver", "pod-1 holds the Lease kube-system/csi-example-com"]),
        (
            ExternalProvisioner::Unknown(Some("Leases may not be listed".into())),
            vec!["gold, silver", "may not be listed"],
        ),
        (ExternalProvisioner::Unknown(None), vec![]),
    ] {
        let table = beside(
            &ExternalProvisioners::new([("csi.example.com".to_owned(), sidecar.into())]),
            &[&replacing],
            &objects,
        );
        assert!(
            matches!(table.lookup("gold"), ClassLookup::Foreign)
                && matches!(table.lookup("silver"), ClassLookup::Foreign)
        );
        let message = verdict(&table, "stands");
        let left = table.left_to_external_provisioner("gold").unwrap_or_default();
        assert!(left.is_empty() == says.is_empty() && says.iter().all(|texts| left.contains(texts)), "{left}");
        assert!(message.problems.is_empty(), "{message:?}");
        let warnings = crate::config::joined(&message.warnings);
        assert!(
            says.iter().all(|texts| warnings.contains(texts)) && warnings.is_empty() == says.is_empty(),
            "{warnings}"
        );
    }
    // A Lease that does not count leads to a warning, and all classes are served.
    let found =
        LeaseCheck { elsewhere: Some(ObjectName::new("team", "csi-example-com")), ..ExternalProvisioner::Gone.into() };
    let table = beside(&ExternalProvisioners::new([("csi.example.com".to_owned(), found)]), &[&replacing], &objects);
    let warned = crate::config::joined(&verdict(&table, "stands").warnings);
    assert!(
        warned.contains("Lease team/csi-example-com") && warned.contains("replaces-provisioner-namespace: team"),
        "{warned}"
    );
    assert_eq!((recipe(&table, "gold").class.as_str(), table.left_to_external_provisioner("gold")), ("gold", None));
    // So does a Deployment that does not exist.
    let missing = [ObjectName::new("old", "gone")].into();
    let found = LeaseCheck { missing, ..ExternalProvisioner::Gone.into() };
    let table = beside(&ExternalProvisioners::new([("csi.example.com".to_owned(), found)]), &[&replacing], &objects);
    let warned = crate::config::joined(&verdict(&table, "stands").warnings);
    assert!(warned.contains("no Deployment of csi.example.com was found (old/gone)"), "{warned}");
    assert_eq!(recipe(&table, "gold").class, "gold");
    // Neither knowledge about another driver nor missing knowledge about this one has an effect.
    let other = ExternalProvisioners::new([("other.example.com".to_owned(), ExternalProvisioner::Gone.into())]);
    assert!(matches!(beside(&other, &[&replacing], &objects).lookup("gold"), ClassLookup::Foreign));
    let gone = ExternalProvisioners::new([("csi.example.com".to_owned(), ExternalProvisioner::Gone.into())]);
    assert_eq!(recipe(&beside(&gone, &[&replacing], &objects), "gold").class, "gold");
}

#[test]
fn only_one_config_replaces_a_driver_s_provisioner_and_none_replaces_this_one() {
    let later = |config: Config| Config { created: "2026-02-01T00:00:00Z".into(), ..config };
    let older = config("older", None, &[("replaces-provisioner", "csi.example.com")]);
    let newer = later(config("newer", None, &[("replaces-provisioner", "csi.example.com")]));
    let other = config("other", Some("gold"), &[]);
    let own = config("own", None, &[("replaces-provisioner", names::DEFAULT_PROVISIONER)]);
    let gold = of_driver("gold", &[("path", "x")]);
    let silver = of_driver("silver", &[]);
    let table = table(&[&newer, &older, &other, &own], &[&gold, &silver]);
    assert_eq!(recipe(&table, "silver").config.name, "older");
    assert!(
        problems(&table, "newer")
            .contains("the ConfigMap admin/older replaces the provisioner of csi.example.com already")
    );
    assert!(problems(&table, "own").contains("replaces-provisioner: is this provisioner's own name"));
    // A label alone does not make the orchestrator serve a driver's class.
    assert!(problems(&table, "other").contains("belongs to the provisioner csi.example.com"));
    assert!(why_not(&table, "gold").contains("environment variable PATH"), "{}", why_not(&table, "gold"));
    assert_eq!(problems(&table, "older"), "");
}

#[test]
fn parameters_of_other_provisioners_are_no_misspelt_keys() {
    let config = config("a", None, &[("replaces-provisioner", "csi.example.com")]);
    let class = of_driver("theirs", &[("pools", "rbd"), ("timout", "1")]);
    let external_provisioners =
        ExternalProvisioners::new([("csi.example.com".to_owned(), LeaseCheck::from(ExternalProvisioner::Gone))]);
    let table = beside(&external_provisioners, &[&config], &[&class]);
    assert!(matches!(table.lookup("theirs"), ClassLookup::Ours(_)), "{table:?}");
    assert_eq!(table.verdicts[&config.name].warnings, []);
}

/// Velero takes a volume for one of CSI if its spec says so, or if its provisioner is the name of a CSIDriver. The
/// orchestrator creates a CSIDriver of its own name for the capacity.
#[test]
fn backup_tools_take_exactly_the_volumes_of_csi_for_such() {
    let own = names::DEFAULT_PROVISIONER;
    let blank = Volume::from(&PersistentVolume::default());
    for (own, replaces, drivers) in [
        (own, "", vec![own]),
        (own, "rancher.io/local-path", vec![own]),
        (own, "csi.example.com", vec![own, "csi.example.com"]),
        ("example.com", "", vec!["example.com"]),
    ] {
        let config = EffectiveConfig { replaces: replaces.into(), ..EffectiveConfig::default() };
        // A config that replaces a CSI driver makes volumes of that driver.
        let of_driver = replaces == "csi.example.com";
        let kinds = flex_contract::volume::VOLUME_SOURCE_KINDS.iter().filter(|kind| !of_driver || **kind == "csi");
        for kind in kinds {
            let by = config.provisioned_by(own, Some(kind));
            let taken_for_csi = *kind == "csi" || drivers.contains(&by.as_str());
            assert_eq!(taken_for_csi, *kind == "csi", "{kind} of {own:?}, in place of {replaces:?}: {by}");
            assert!(!by.starts_with("kubernetes.io/"), "{by}: Kubernetes would delete the volume itself");
            let volume = Volume { provisioned_by: Some(by.clone()), source_kind: Some(kind), ..blank.clone() };
            let name = config.provisioner(own);
            assert!(volume.is_provisioned_by(name) && !volume.is_provisioned_by("x.io"), "{by}");
            let before = Volume { provisioned_by: Some(name.to_owned()), ..volume };
            assert!(before.is_provisioned_by(name), "a volume of an earlier version");
        }
    }
}

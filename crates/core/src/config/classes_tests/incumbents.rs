//! Tests of which config serves a class for which several ask.

use std::collections::BTreeSet;

use super::*;

/// Returns two configs for the class `silver`, the older one first.
fn rivals() -> (Config, Config) {
    let older = Config { created: "2026-01-01T00:00:00Z".into(), ..config("a", Some("silver"), &[("who", "older")]) };
    let younger =
        Config { created: "2026-02-01T00:00:00Z".into(), ..config("z", Some("silver"), &[("who", "younger")]) };
    (older, younger)
}

/// Decides with these revisions. The classes in `over` may be taken over.
fn decided(configs: &[&Config], objects: &[&ClassObject], revisions: &[(String, Revision)], over: &[&str]) -> Classes {
    let (configs, objects) = (configs.iter().copied(), objects.iter().copied());
    let over: BTreeSet<String> = over.iter().map(|class| (*class).to_owned()).collect();
    let revisions = revisions.iter().cloned().collect();
    let gone = ExternalProvisioners::none();
    classes_with(&identity(), configs, objects, &revisions, &gone, Takeovers::Of(&over))
}

#[test]
fn a_config_keeps_its_class_whatever_the_age_of_another() {
    let (older, younger) = rivals();
    for (incumbent, other) in [(&older, &younger), (&younger, &older)] {
        // An earlier config of the class may have more versions.
        let revisions = [revision(other, "silver", 6), revision(incumbent, "silver", 7), revision(other, "gold", 9)];
        for configs in [[incumbent, other], [other, incumbent]] {
            let table = decided(&configs, &[], &revisions, &[]);
            assert_eq!(recipe(&table, "silver").config, incumbent.name);
            assert_eq!((problems(&table, &incumbent.name.name).as_str(), table.withheld.len()), ("", 0));
            let words = format!("the ConfigMap {} has class `silver` already and stays in use", incumbent.name);
            assert!(problems(&table, &other.name.name).contains(&words), "{}", problems(&table, &other.name.name));
            assert!(table.revisions_to_write.is_empty(), "nobody takes the class over");
        }
    }
}

#[test]
fn a_class_waits_for_a_config_that_was_deleted_or_lost_its_label() {
    let (older, younger) = rivals();
    let revisions = [revision(&older, "silver", 3)];
    let unlabelled = Config { class: None, ..older.clone() };
    let cases = [(&[&younger][..], "was deleted"), (&[&younger, &unlabelled], "does not name it")];
    for (configs, what) in cases {
        let table = decided(configs, &[], &revisions, &[]);
        let why = why_not(&table, "silver");
        assert!(why.starts_with(&format!("the ConfigMap admin/a, which served class `silver`, {what}")), "{why}");
        assert_eq!((table.withheld.contains("silver"), verdict(&table, "z").warnings.len()), (true, 1));
        assert!(table.revisions_to_write.is_empty());
        // The config does not return.
        let table = decided(configs, &[], &revisions, &["silver"]);
        assert_eq!((recipe(&table, "silver").config.name.as_str(), table.withheld.len()), ("z", 0));
        let written: Vec<_> =
            table.revisions_to_write.iter().map(|new| (&new.effective_config.config, new.number)).collect();
        assert_eq!(written, [(&younger.name, 4)], "from now on the class is its own");
    }
    // The config returns, younger than the other and with another UID.
    let again = Config { created: "2026-03-01T00:00:00Z".into(), uid: "new".into(), ..older };
    let table = decided(&[&younger, &again], &[], &revisions, &[]);
    assert_eq!((recipe(&table, "silver").config.name.as_str(), table.absent_incumbents.len()), ("a", 0));
}

#[test]
fn an_absent_incumbent_is_known_before_another_config_asks() {
    let (older, _) = rivals();
    let table = decided(&[], &[], &[revision(&older, "silver", 3)], &[]);
    assert_eq!(table.absent_incumbents, BTreeMap::from([("silver".to_owned(), older.name)]));
    assert!(table.withheld.is_empty() && matches!(table.lookup("silver"), ClassLookup::Unknown));
}

#[test]
fn a_config_that_takes_a_class_with_its_last_good_version_is_the_new_incumbent() {
    let (older, younger) = rivals();
    let revisions = [revision(&younger, "silver", 1), revision(&older, "silver", 2)];
    let bad = Config { data: config("z", None, &[("retries", "many")]).data, ..younger };
    let table = decided(&[&bad], &[], &revisions, &["silver"]);
    assert!(class(&table, "silver").last_good);
    let written = &table.revisions_to_write[0];
    assert_eq!((written.effective_config.config.name.as_str(), written.number), ("z", 3));
}

/// Returns a StorageClass of a driver, and two configs that replace the driver, the older one first.
fn replacing() -> (ClassObject, Config, Config) {
    let object = ClassObject { provisioner: "csi.example".into(), ..object("gold", &[]) };
    let (older, younger) = rivals();
    let keys = [("replaces-provisioner", "csi.example"), ("volume-sources", "csi")];
    let general = |rival: Config| {
        let data = config(&rival.name.name, None, &keys).data;
        Config { class: None, data, ..rival }
    };
    (object, general(older), general(younger))
}

fn replaced(config: &Config, object: &ClassObject, number: i64) -> (String, Revision) {
    let effective_config = effective_config_with(config, object).unwrap();
    (effective_config.hash(), Revision { number, effective_config, created: 0 })
}

#[test]
fn the_config_that_has_served_a_driver_keeps_its_classes() {
    let (object, older, younger) = replacing();
    let revisions = [replaced(&younger, &object, 1)];
    let table = decided(&[&older, &younger], &[&object], &revisions, &[]);
    assert_eq!(recipe(&table, "gold").config, younger.name);
    assert!(problems(&table, "a").contains("the ConfigMap admin/z replaces the provisioner of csi.example already"));
    let table = decided(&[&older], &[&object], &revisions, &[]);
    assert!(table.withheld.contains("gold"), "the younger one may be created again");
}

#[test]
fn a_label_takes_a_class_from_a_config_for_all_classes_of_a_driver() {
    let (object, general, other) = replacing();
    let labelled = Config { class: Some("gold".into()), ..other };
    let table = decided(&[&general, &labelled], &[&object], &[replaced(&general, &object, 1)], &[]);
    assert_eq!(
        (recipe(&table, "gold").config.clone(), table.withheld.len()),
        (labelled.name, 0),
        "an admin has chosen"
    );
}

#[test]
fn a_storage_class_that_names_its_config_waits_for_no_other() {
    let (older, younger) = rivals();
    let unlabelled = Config { class: None, ..younger };
    let object = object("silver", &[(CONFIG_PARAMETER, "admin/z")]);
    let table = decided(&[&unlabelled], &[&object], &[revision(&older, "silver", 3)], &[]);
    assert_eq!((recipe(&table, "silver").config.name.as_str(), table.withheld.len()), ("z", 0));
    assert_eq!(table.revisions_to_write[0].number, 4);
}

#[test]
fn a_config_with_an_error_keeps_its_class() {
    let (older, younger) = rivals();
    let revisions = [revision(&younger, "silver", 2)];
    let bad = Config { data: config("z", None, &[("retries", "many")]).data, ..younger };
    let table = decided(&[&older, &bad], &[], &revisions, &[]);
    assert!(class(&table, "silver").last_good);
    assert_eq!(recipe(&table, "silver").parameters["who"], "younger");
}

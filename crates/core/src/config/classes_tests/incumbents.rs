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
            assert_eq!((problems(&table, &incumbent.name.name).as_str(), table.takeovers.len()), ("", 0));
            let words = format!("the ConfigMap {} serves class `silver` already and stays in use", incumbent.name);
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
    for configs in [&[&younger][..], &[&younger, &unlabelled]] {
        let table = decided(configs, &[], &revisions, &[]);
        let why = why_not(&table, "silver");
        assert!(why.starts_with("the ConfigMap admin/a, which served class `silver`, was deleted"), "{why}");
        assert_eq!((table.takeovers["silver"], verdict(&table, "z").warnings.len()), (Takeover::Withheld, 1));
        assert!(table.revisions_to_write.is_empty());
        // It does not return.
        let table = decided(configs, &[], &revisions, &["silver"]);
        assert_eq!((recipe(&table, "silver").config.name.as_str(), table.takeovers["silver"]), ("z", Takeover::Done));
        let written: Vec<_> =
            table.revisions_to_write.iter().map(|new| (&new.effective_config.config, new.number)).collect();
        assert_eq!(written, [(&younger.name, 4)], "from now on the class is its own");
    }
    // It returns, younger than the other and with another UID.
    let again = Config { created: "2026-03-01T00:00:00Z".into(), uid: "new".into(), ..older };
    let table = decided(&[&younger, &again], &[], &revisions, &[]);
    assert_eq!((recipe(&table, "silver").config.name.as_str(), table.takeovers.len()), ("a", 0));
}

#[test]
fn a_storage_class_that_names_its_config_waits_for_no_other() {
    let (older, younger) = rivals();
    let unlabelled = Config { class: None, ..younger };
    let object = object("silver", &[(CONFIG_PARAMETER, "admin/z")]);
    let table = decided(&[&unlabelled], &[&object], &[revision(&older, "silver", 3)], &[]);
    assert_eq!((recipe(&table, "silver").config.name.as_str(), table.takeovers.len()), ("z", 0));
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

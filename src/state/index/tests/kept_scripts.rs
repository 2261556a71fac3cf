//! Tests of the kept scripts: which of them are stored, and who names them.

use std::sync::Arc;

use flex_core::config::classes::{KeptScript, effective_config_of};
use flex_core::config::script::{hash, kept_prefix};
use flex_core::model::volume::adoption_mark;

use super::*;

const TEXT: &str = "exec flex-pv create --local /srv/a";

fn config(script: &str) -> Config {
    let keys = [("plugin-name", "p"), ("image", "x"), ("script", script)];
    let data = keys.iter().filter(|(_, value)| !value.is_empty());
    Config {
        name: ObjectName::new("own", CLASS),
        class: Some(CLASS.into()),
        data: data.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..Config::default()
    }
}

fn kept(text: &str) -> Stored {
    Stored::Script(KeptScript { hash: hash(text), text: text.into(), uid: "u".into(), created: 5 })
}

/// Returns whether a config and whether storage names the only kept script.
fn named(index: &Index) -> (bool, bool) {
    let all = index.observe_scripts();
    let [ObservedScript { script, observed }] = &all[..] else { panic!("{all:?}") };
    assert_eq!((script.hash.as_str(), observed.created), (hash(TEXT).as_str(), 5));
    (observed.is_named_by_config, observed.is_named_by_storage)
}

fn object(hash: &str) -> ObjectName {
    ObjectName::new("own", kept_prefix(hash))
}

#[test]
fn a_script_is_stored_until_the_watch_shows_it() {
    let mut index = index();
    index.change_config(WatchChange::Apply(config(TEXT)));
    let due = vec![UsedScript { config: ObjectName::new("own", CLASS), text: Arc::from(TEXT) }];
    assert_eq!(index.scripts_to_store(), due);
    assert_eq!(index.script(&hash(TEXT)).as_deref(), Some(TEXT), "the config has the text");
    index.change_stored(WatchChange::Apply(kept(TEXT)));
    assert_eq!(index.scripts_to_store(), []);
    // Somebody deletes the object.
    assert_eq!(index.change_stored(WatchChange::Delete(object(&hash(TEXT)))), [WorkItem::Configs]);
    assert_eq!(index.scripts_to_store(), due);
    // The same, while the watch is interrupted.
    index.change_stored(WatchChange::Apply(kept(TEXT)));
    index.change_stored(WatchChange::Retain([object(&hash("other"))].into_iter().collect()));
    assert_eq!(index.scripts_to_store(), due);
}

#[test]
fn a_class_without_a_script_stores_none() {
    let mut index = index();
    index.change_config(WatchChange::Apply(config("")));
    assert_eq!(index.scripts_to_store(), []);
    index.change_config(WatchChange::Apply(Config {
        data: [("script".to_owned(), TEXT.to_owned())].into(),
        ..config("")
    }));
    assert_eq!(index.scripts_to_store(), [], "a refused config serves nothing");
}

#[test]
fn a_script_is_named_by_configs_their_versions_and_storage() {
    let mut index = index();
    index.change_stored(WatchChange::Apply(kept(TEXT)));
    assert_eq!(named(&index), (false, false));

    index.change_config(WatchChange::Apply(config(TEXT)));
    assert_eq!(named(&index), (true, false));
    index.change_config(WatchChange::Apply(config("exit 0")));
    assert_eq!(named(&index), (false, false));

    let effective_config = effective_config_of(&config(TEXT), CLASS);
    let revision = Revision { number: 1, effective_config: effective_config.clone(), created: 0 };
    index.change_stored(WatchChange::Apply(Stored::Recipe(effective_config.hash(), revision)));
    assert_eq!(named(&index), (true, false));
    // A revision that is being deleted may stay.
    index.begin_revision_deletion(&effective_config.hash());
    assert_eq!(named(&index), (true, false));
    index
        .change_stored(WatchChange::Delete(ObjectName::new("own", format!("flex-config-{}", effective_config.hash()))));
    assert_eq!(named(&index), (false, false));

    let provenance = serde_json::json!(flex_core::model::volume::Provenance {
        effective_config,
        origin_node: None,
        moved_in: None,
        cluster: None,
        others: Vec::new()
    })
    .to_string();
    let annotations = serde_json::json!({ names::PROVENANCE: provenance });
    let volume = serde_json::json!({ "metadata": { "name": "pv", "annotations": annotations }, "spec": {},
        "status": { "reason": adoption_mark(&provenance, "") } });
    let volume: k8s_openapi::api::core::v1::PersistentVolume = serde_json::from_value(volume).unwrap();
    index.change_volume(WatchChange::Apply(Volume::from(&volume)));
    assert_eq!(named(&index), (false, true));
    index.change_volume(WatchChange::Delete(ObjectName::new("", "pv")));
    assert_eq!(named(&index), (false, false));

    let content = serde_json::json!({ "metadata": { "name": "content", "annotations": annotations },
        "spec": { "deletionPolicy": "Delete", "driver": "p", "source": {}, "volumeSnapshotRef": {} } });
    let content: flex_core::model::snapshot::api::VolumeSnapshotContent = serde_json::from_value(content).unwrap();
    index.change_content(WatchChange::Apply((&content).into()));
    assert_eq!(named(&index), (false, true));
}

#[test]
fn the_time_without_a_name_is_forgotten_with_the_object() {
    let since = |index: &Index| index.observe_scripts()[0].observed.unnamed_since;
    let mut index = index();
    index.change_stored(WatchChange::Apply(kept(TEXT)));
    index.note_unnamed_script(&hash(TEXT), Some(7));
    assert_eq!(since(&index), Some(7));
    index.note_unnamed_script(&hash(TEXT), None);
    assert_eq!(since(&index), None);
    index.note_unnamed_script(&hash(TEXT), Some(9));
    index.change_stored(WatchChange::Delete(object(&hash(TEXT))));
    index.change_stored(WatchChange::Apply(kept(TEXT)));
    assert_eq!(since(&index), None);
}

#[path = "classes_tests/drivers.rs"]
mod drivers;
#[path = "classes_tests/incumbents.rs"]
mod incumbents;

use flex_contract::names;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::storage::v1::StorageClass;

use super::*;
use crate::config::Recipe;

fn identity() -> Identity {
    Identity {
        provisioner: names::DEFAULT_PROVISIONER.into(),
        plugin: names::DEFAULT_PLUGIN.into(),
        instance: names::DEFAULT_INSTANCE.into(),
        config_namespaces: vec!["admin".into(), "storage".into()],
        namespace: "flex-provisioner".into(),
        shell_image: None,
        cluster: String::new(),
    }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Returns a valid config in `admin`, overridden by these keys.
fn config(name: &str, class: Option<&str>, keys: &[(&str, &str)]) -> Config {
    let mut data = map(&[("plugin-name", names::DEFAULT_PLUGIN), ("image", "custom/provision")]);
    data.insert("service-account-name".into(), "maker".into());
    data.extend(map(keys));
    Config {
        name: ObjectName::new("admin", name),
        uid: format!("uid-{name}"),
        created: "2026-01-01T00:00:00Z".into(),
        class: class.map(str::to_owned),
        data,
        ..Config::default()
    }
}

/// Returns a StorageClass of the orchestrator.
fn object(name: &str, parameters: &[(&str, &str)]) -> ClassObject {
    ClassObject {
        name: name.into(),
        provisioner: names::DEFAULT_PROVISIONER.into(),
        parameters: map(parameters),
        reclaim_policy: "Delete".into(),
        mount_options: vec![],
        binding: BindingMode::WaitForFirstConsumer,
        uid: format!("uid-{name}"),
        allow_expansion: false,
        allowed: Default::default(),
    }
}

fn table(configs: &[&Config], objects: &[&ClassObject]) -> Classes {
    beside(&ExternalProvisioners::none(), configs, objects)
}

fn beside(external_provisioners: &ExternalProvisioners, configs: &[&Config], objects: &[&ClassObject]) -> Classes {
    let (configs, objects) = (configs.iter().copied(), objects.iter().copied());
    classes(&identity(), configs, objects, &BTreeMap::new(), external_provisioners)
}

fn class<'a>(table: &'a Classes, name: &str) -> &'a Class {
    match table.lookup(name) {
        ClassLookup::Ours(class) => class,
        other => panic!("class {name} is {other:?}"),
    }
}

fn recipe<'a>(table: &'a Classes, name: &str) -> &'a Recipe {
    class(table, name).recipe.as_ref().unwrap_or_else(|why| panic!("class {name}: {why}"))
}

#[track_caller]
fn why_not(table: &Classes, name: &str) -> String {
    class(table, name).recipe.as_ref().expect_err("the class must have no recipe").clone()
}

fn verdict<'a>(table: &'a Classes, name: &str) -> &'a Verdict {
    &table.verdicts[&ObjectName::new("admin", name)]
}

/// Returns the problems of a config in one text.
fn problems(table: &Classes, name: &str) -> String {
    crate::config::joined(&verdict(table, name).problems)
}

/// Returns a stored revision of a config for a class.
fn revision(config: &Config, class: &str, number: i64) -> (String, Revision) {
    let effective_config = effective_config_of(config, class);
    (effective_config.hash(), Revision { number, effective_config, created: 0 })
}

#[test]
fn a_label_alone_makes_a_class() {
    let table = table(&[&config("a", Some("silver"), &[("zone", "west")])], &[]);
    let silver = class(&table, "silver");
    assert_eq!((silver.has_object, silver.binding, silver.last_good), (false, BindingMode::Immediate, false));
    assert_eq!(recipe(&table, "silver").parameters["zone"], "west");
    assert_eq!(recipe(&table, "silver").class, "silver");
    assert_eq!((problems(&table, "a").as_str(), verdict(&table, "a").classes.join(",")), ("", "silver".into()));
    assert!(matches!(table.lookup("gold"), ClassLookup::Unknown));
}

#[test]
fn the_fields_of_a_storage_class_object_win() {
    let silver = config("a", Some("silver"), &[("reclaim-policy", "Delete"), ("mount-options", "ro")]);
    let object = ClassObject {
        reclaim_policy: "Retain".into(),
        mount_options: vec!["noatime".into(), "a,b".into()],
        ..object("silver", &[])
    };
    let table = table(&[&silver], &[&object]);
    let class = class(&table, "silver");
    assert_eq!((class.has_object, class.binding), (true, BindingMode::WaitForFirstConsumer));
    assert_eq!(recipe(&table, "silver").reclaim_policy.as_str(), "Retain");
    assert_eq!(recipe(&table, "silver").mount_options, ["noatime", "a,b"]);
    assert_eq!(table.iter().count(), 1, "the label makes no second class");
}

#[test]
fn an_object_without_mount_options_has_none() {
    let table = table(&[&config("a", Some("silver"), &[("mount-options", "ro")])], &[&object("silver", &[])]);
    assert!(recipe(&table, "silver").mount_options.is_empty());
}

#[test]
fn many_classes_point_to_one_config() {
    let shared = config("shared", None, &[("zone", "west"), ("max-size", "1Gi")]);
    let fast = object("fast", &[(CONFIG_PARAMETER, "admin/shared"), ("zone", "east"), ("tier", "ssd")]);
    let large = object("large", &[(CONFIG_PARAMETER, "admin/shared"), ("max-size", "1Ti"), ("fs-type", "xfs")]);
    let table = table(&[&shared], &[&fast, &large]);
    assert_eq!(recipe(&table, "fast").parameters, map(&[("zone", "east"), ("tier", "ssd")]), "class over config");
    assert_eq!(recipe(&table, "large").parameters, map(&[("zone", "west")]));
    assert_eq!((recipe(&table, "large").max_size, recipe(&table, "fast").max_size), (Some(1 << 40), Some(1 << 30)));
    assert_eq!(recipe(&table, "large").fs_type, "xfs");
    assert_eq!(verdict(&table, "shared").classes, ["fast", "large"]);
}

#[test]
fn a_pointer_wins_over_a_label() {
    let labelled = config("labelled", Some("silver"), &[("from", "label")]);
    let pointed = config("pointed", None, &[("from", "pointer")]);
    let table = table(&[&labelled, &pointed], &[&object("silver", &[(CONFIG_PARAMETER, "admin/pointed")])]);
    assert_eq!(recipe(&table, "silver").parameters["from"], "pointer");
    assert!(verdict(&table, "labelled").classes.is_empty());
}

#[test]
fn a_pointer_to_a_missing_config_is_reported() {
    let elsewhere = Config { name: ObjectName::new("team", "mine"), ..config("mine", None, &[]) };
    for (pointer, says) in [
        ("team/mine", "points to team/mine, but configs are only read in admin, storage"),
        ("admin/absent", "ConfigMap admin/absent, which the StorageClass names, does not exist"),
        ("mine", "is not of the form namespace/name"),
    ] {
        let table = table(&[&elsewhere], &[&object("silver", &[(CONFIG_PARAMETER, pointer)])]);
        assert!(why_not(&table, "silver").contains(says), "{pointer}: {}", why_not(&table, "silver"));
    }
}

#[test]
fn a_config_outside_the_config_namespaces_is_ignored() {
    let theirs = Config { name: ObjectName::new("team", "mine"), ..config("mine", Some("silver"), &[]) };
    let table = table(&[&theirs], &[]);
    assert!(matches!(table.lookup("silver"), ClassLookup::Unknown) && table.verdicts.is_empty());
}

#[test]
fn an_object_without_a_config_says_what_to_create() {
    let why = why_not(&table(&[], &[&object("silver", &[])]), "silver");
    assert!(why.contains("`storage-class: silver` in the namespace admin or storage"), "{why}");
}

#[test]
fn a_class_of_another_provisioner_is_not_touched() {
    let theirs = ClassObject { provisioner: "ebs.example".into(), ..object("gold", &[]) };
    let table = table(&[&config("a", Some("gold"), &[])], &[&theirs]);
    assert!(matches!(table.lookup("gold"), ClassLookup::Foreign));
    let message = problems(&table, "a");
    assert!(
        message.contains(
            "belongs to the provisioner ebs.example; for ours it must say `provisioner: flex-provisioner.io`"
        ),
        "{message}"
    );
    assert!(verdict(&table, "a").classes.is_empty());
}

#[test]
fn the_order_of_the_objects_does_not_matter() {
    // A config that is refused for its label is also refused for the class that points to it.
    let both = config("both", Some("gold"), &[]);
    let theirs = ClassObject { provisioner: "ebs.example".into(), ..object("gold", &[]) };
    let own_class = object("silver", &[(CONFIG_PARAMETER, "admin/both")]);
    let (first, second) = (table(&[&both], &[&theirs, &own_class]), table(&[&both], &[&own_class, &theirs]));
    assert_eq!(first.verdicts, second.verdicts);
    assert_eq!(why_not(&first, "silver"), why_not(&second, "silver"));
}

#[test]
fn of_two_configs_for_a_class_the_older_stays() {
    let older = Config { created: "2026-01-01T00:00:00Z".into(), ..config("z", Some("silver"), &[("who", "older")]) };
    let newer = Config { created: "2026-01-01T00:00:01Z".into(), ..config("a", Some("silver"), &[("who", "newer")]) };
    for configs in [[&older, &newer], [&newer, &older]] {
        let table = table(&configs, &[]);
        assert_eq!(recipe(&table, "silver").parameters["who"], "older");
        assert_eq!(problems(&table, "z"), "");
        let message = problems(&table, "a");
        assert!(message.contains("the ConfigMap admin/z has class `silver` already"), "{message}");
    }
}

#[test]
fn of_two_configs_of_one_second_the_uid_decides() {
    let first = Config { uid: "1".into(), ..config("z", Some("silver"), &[("who", "first")]) };
    let second = Config { uid: "2".into(), ..config("a", Some("silver"), &[("who", "second")]) };
    let table = table(&[&second, &first], &[]);
    assert_eq!(recipe(&table, "silver").parameters["who"], "first");
    assert_ne!(problems(&table, "a"), "");
}

#[test]
fn a_bad_edit_leaves_the_last_good_version_in_use() {
    let before = config("a", Some("silver"), &[("zone", "west")]);
    let oldest = config("a", Some("silver"), &[("zone", "north")]);
    let revisions = BTreeMap::from([revision(&before, "silver", 2), revision(&oldest, "silver", 1)]);
    let edited = config("a", Some("silver"), &[("zone", "east"), ("retries", "many")]);
    let table = classes(&identity(), [&edited], [], &revisions, &ExternalProvisioners::none());
    assert_eq!(recipe(&table, "silver").parameters["zone"], "west");
    assert!(class(&table, "silver").last_good && verdict(&table, "a").last_good);
    assert_eq!(verdict(&table, "a").classes, ["silver"]);
    assert!(problems(&table, "a").starts_with("retries: "), "{}", problems(&table, "a"));
    assert!(table.revisions_to_write.is_empty(), "a bad version is not recorded");
}

#[test]
fn a_bad_pair_leaves_the_last_good_version_in_use_and_concerns_no_other_class() {
    let before = config("a", Some("silver"), &[]);
    let edited = config("a", Some("silver"), &[("my-zone", "east")]);
    let silver = object("silver", &[("my_zone", "west")]);
    let gold = object("gold", &[(CONFIG_PARAMETER, "admin/a")]);
    let kept = effective_config_with(&before, &silver).unwrap();
    let revision = Revision { number: 1, effective_config: kept.clone(), created: 0 };
    let revisions = BTreeMap::from([(kept.hash(), revision)]);
    let table = classes(&identity(), [&edited], [&silver, &gold], &revisions, &ExternalProvisioners::none());
    assert!(class(&table, "silver").last_good && !class(&table, "gold").last_good);
    assert_eq!(recipe(&table, "silver").parameters.get("my-zone"), None);
    assert_eq!(recipe(&table, "gold").parameters["my-zone"], "east");
    let message = problems(&table, "a");
    assert!(
        message.contains("MY_ZONE") && message.contains("(with the parameters of StorageClass `silver`)"),
        "{message}"
    );
}

#[test]
fn a_class_is_not_served_by_its_label_right_after_its_object_was_deleted() {
    let labelled = config("a", Some("silver"), &[]);
    let mut alone = table(&[&labelled], &[]);
    assert!(class(&alone, "silver").recipe.is_ok());
    alone.defer_class("silver");
    assert!(why_not(&alone, "silver").contains("was deleted a moment ago"));
    let mut replaced = table(&[&labelled], &[&object("silver", &[])]);
    replaced.defer_class("silver");
    assert!(class(&replaced, "silver").recipe.is_ok(), "there is an object again");
}

#[test]
fn a_bad_config_without_a_good_version_serves_nothing() {
    let bad = config("a", Some("silver"), &[("retries", "many")]);
    let another = config("b", None, &[]);
    let revisions = BTreeMap::from([revision(&bad, "gold", 1), revision(&another, "silver", 2)]);
    let table = classes(&identity(), [&bad], [], &revisions, &ExternalProvisioners::none());
    assert!(why_not(&table, "silver").contains("admin/a has errors; its events name them"));
    assert!(verdict(&table, "a").classes.is_empty() && !verdict(&table, "a").last_good);
}

#[test]
fn each_version_in_use_is_recorded_once() {
    let now = config("a", Some("silver"), &[("zone", "west")]);
    let before = config("a", Some("silver"), &[("zone", "east")]);
    let unkept = |revisions: Vec<(String, Revision)>| -> Vec<(String, i64)> {
        let table = classes(&identity(), [&now], [], &revisions.into_iter().collect(), &ExternalProvisioners::none());
        table
            .revisions_to_write
            .into_iter()
            .map(|revision| (revision.effective_config.data["zone"].clone(), revision.number))
            .collect()
    };
    assert_eq!(unkept(vec![]), [("west".to_owned(), 1)]);
    assert_eq!(unkept(vec![revision(&before, "silver", 7)]), [("west".to_owned(), 8)]);
    assert_eq!(unkept(vec![revision(&before, "silver", 7), revision(&now, "silver", 8)]), []);
    let back = vec![revision(&before, "silver", 9), revision(&now, "silver", 8)];
    assert_eq!(unkept(back), [("west".to_owned(), 10)], "a reverted edit is the newest version again");
}

#[test]
fn the_service_token_is_never_recorded() {
    let table = table(&[&config("a", Some("silver"), &[("service-token", "hush")])], &[]);
    assert!(recipe(&table, "silver").service_token);
    assert!(!serde_json::json!(table.revisions_to_write[0].effective_config).to_string().contains("hush"));
    let warned = crate::config::joined(&verdict(&table, "a").warnings);
    assert!(
        warned.contains("kubectl -n admin create secret generic a-token --from-literal=SERVICE_TOKEN=…"),
        "{warned}"
    );
    assert!(problems(&table, "a").is_empty());
}

#[test]
fn keys_that_need_a_storage_class_object_print_it() {
    for key in keys::STORAGE_CLASS_FIELDS {
        let table = table(&[&config("a", Some("silver"), &[(key, "x")])], &[]);
        let message = problems(&table, "a");
        assert!(message.starts_with(&format!("{key}: asks for what only a StorageClass object can do")), "{message}");
        let (_, yaml) = message.split_once("create the object:\n").unwrap();
        let object: StorageClass = crate::config::values::yaml(yaml).unwrap();
        assert_eq!(object.metadata.name.as_deref(), Some("silver"));
        assert_eq!(ClassObject::from(&object).provisioner, names::DEFAULT_PROVISIONER);
        assert_eq!(ClassObject::from(&object).binding, BindingMode::WaitForFirstConsumer);
        assert!(why_not(&table, "silver").contains("has errors"));
    }
}

#[test]
fn a_config_for_another_plugin_is_left_alone() {
    let theirs = config("a", Some("silver"), &[("plugin-name", "example.com/other"), ("retries", "many")]);
    let table = table(&[&theirs], &[]);
    assert!(table.verdicts.is_empty() && matches!(table.lookup("silver"), ClassLookup::Unknown));
}

#[test]
fn a_config_can_name_the_provisioner_as_its_plugin_and_the_class_by_a_label_with_its_prefix() {
    let named = config("a", Some("silver"), &[("plugin-name", names::DEFAULT_PROVISIONER)]);
    let table = table(&[&named], &[]);
    assert_eq!((recipe(&table, "silver").config.name.as_str(), problems(&table, "a").as_str()), ("a", ""));
    for (labels, class) in [
        ("flex-provisioner.io/class: silver", "silver"),
        ("flex-provisioner.io/class: silver, storage-class: gold", "gold"),
        ("flex-provisioner.io/class: silver, storage-class: ''", "silver"),
    ] {
        let text = format!("metadata: {{name: a, namespace: admin, labels: {{{labels}}}}}\n");
        let map: ConfigMap = crate::config::values::yaml(&text).unwrap();
        assert_eq!(Config::from(&map).class.as_deref(), Some(class), "{labels}");
    }
}

#[test]
fn a_config_without_a_plugin_name_is_reported() {
    let mut unnamed = config("a", Some("silver"), &[]);
    unnamed.data.remove("plugin-name");
    let table = table(&[&unnamed], &[]);
    assert_eq!(problems(&table, "a"), "plugin-name: is missing; write `plugin-name: kubernetes.io/flex-provisioner`");
    assert!(class(&table, "silver").recipe.is_err());
}

#[test]
fn forbidden_parameters_of_a_class_are_reported_on_its_claims() {
    let good = config("a", Some("silver"), &[("use-nfs-server", "10.10.2.4")]);
    for (key, value, says) in [
        ("image", "mine", "image: as a parameter of the StorageClass is not allowed"),
        ("service-account-name", "root", "service-account-name: as a parameter of the StorageClass is not allowed"),
        ("service-token", "x", "service-token: as a parameter of the StorageClass is not allowed"),
        ("plugin-name", "x", "plugin-name: as a parameter of the StorageClass is not allowed"),
        ("use_nfs_server", "b", "would both become the environment variable USE_NFS_SERVER"),
        ("max-size", "much", "max-size: `much` is not a size"),
        ("path", "/", "the environment variable PATH"),
    ] {
        let table = table(&[&good], &[&object("silver", &[(key, value)])]);
        let why = why_not(&table, "silver");
        assert!(why.starts_with("the StorageClass does not fit the provisioner config admin/a: "), "{why}");
        assert!(why.contains(says), "{key}: {why}");
        assert_eq!(problems(&table, "a"), "", "the config itself is valid");
    }
    let both = table(&[&good], &[&object("silver", &[("image", "mine"), ("args", "x")])]);
    let why = why_not(&both, "silver");
    assert!(why.contains("args: ") && why.contains("image: "), "both are reported: {why}");
}

#[test]
fn a_config_map_and_a_class_are_read_as_the_api_returns_them() {
    let text = "metadata: {name: a, namespace: admin, uid: u, creationTimestamp: '2026-01-02T03:04:05Z', labels: {storage-class: silver}}\ndata: {image: x}\n";
    let map: ConfigMap = crate::config::values::yaml(text).unwrap();
    let config = Config::from(&map);
    assert_eq!((config.name, config.created), (ObjectName::new("admin", "a"), "2026-01-02T03:04:05Z".into()));
    assert_eq!((config.class.as_deref(), config.uid.as_str()), (Some("silver"), "u"));
    let bare: StorageClass = crate::config::values::yaml("metadata: {name: a}\nprovisioner: x\n").unwrap();
    let class = ClassObject::from(&bare);
    assert_eq!((class.reclaim_policy.as_str(), class.binding), ("Delete", BindingMode::Immediate));
}

#[test]
fn a_class_and_a_config_that_disagree_about_expansion_get_a_warning() {
    let (able, unable) = (config("able", Some("a"), &[("capabilities", "expand")]), config("unable", Some("b"), &[]));
    let allowing = |name| ClassObject { allow_expansion: true, ..object(name, &[]) };
    let good = table(&[&able, &unable], &[&allowing("a"), &object("b", &[])]);
    assert!(good.verdicts.values().all(|verdict| verdict.warnings.is_empty()), "{:?}", good.verdicts);
    let warned = table(&[&able, &unable], &[&allowing("b")]);
    let message = |name: &str| super::super::joined(&warned.verdicts[&ObjectName::new("admin", name)].warnings);
    assert!(message("able").contains("create it:\napiVersion: storage.k8s.io/v1"), "{}", message("able"));
    assert!(message("able").contains("name: a\n") && message("able").contains("allowVolumeExpansion: true"));
    assert!(
        message("unable").contains("capabilities: lacks `expand`, but the StorageClass b allows"),
        "{}",
        message("unable")
    );
    assert!(recipe(&warned, "a").can("expand") && class(&warned, "b").recipe.is_ok(), "both work");
}

#[test]
fn a_class_may_name_its_file_system_as_other_provisioners_do() {
    let config = config("a", None, &[("fs-type", "ext4")]);
    for key in ["fsType", "fstype"] {
        let gold = object("gold", &[(CONFIG_PARAMETER, "admin/a"), (key, "xfs")]);
        let table = table(&[&config], &[&gold]);
        let gold = recipe(&table, "gold");
        assert_eq!((gold.fs_type.as_str(), &gold.parameters), ("xfs", &map(&[(key, "xfs")])));
    }
    for (more, says) in [
        (("fs-type", "ext4"), "fsType: names the file system a second time, beside `fs-type`"),
        (("fstype", "xfs"), "would both become the environment variable FSTYPE"),
        (("fsType", "no such"), "`no such` is not a file system"),
        (("nodeSelector", "a=b"), "reads like `node-selector`"),
    ] {
        let gold = object("gold", &[(CONFIG_PARAMETER, "admin/a"), ("fsType", "xfs"), more]);
        let gold = ClassObject { parameters: gold.parameters.into_iter().collect(), ..gold };
        let why = why_not(&table(&[&config], &[&gold]), "gold");
        assert!(why.contains(says), "{why}");
    }
}

#[test]
fn common_mistakes_are_in_the_verdict_and_refuse_nothing() {
    let label_mistakes = vec![Problem::new("", "its label `storageclass` has no effect")];
    let config = Config { label_mistakes, ..config("a", Some("silver"), &[("timout", "5m"), ("server", "nas ")]) };
    let class = object("silver", &[("fs-typ", "xfs"), ("export", "/a\r"), ("password", "x")]);
    let table = table(&[&config], &[&class]);
    let verdict = &table.verdicts[&config.name];
    assert!(verdict.problems.is_empty() && verdict.classes == ["silver"], "{verdict:?}");
    let message = crate::config::joined(&verdict.warnings);
    for part in [
        "`storageclass`",
        "did you mean `timeout`?",
        "server: ends with white space",
        "`fs-type`?",
        "export: has",
        "password: looks like a secret",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(message.contains("(a parameter of StorageClass `silver`)"), "{message}");
}

#[test]
fn a_misspelt_pointer_to_a_config_is_reported() {
    for name in ["provisionerConfig", "provisioner-configs", "provisoner-config"] {
        let class = object("silver", &[(name, "admin/a")]);
        let why = why_not(&table(&[&config("a", None, &[])], &[&class]), "silver");
        assert!(
            why.contains(&format!("its parameter `{name}` names none; did you mean `provisioner-config`?")),
            "{why}"
        );
    }
}

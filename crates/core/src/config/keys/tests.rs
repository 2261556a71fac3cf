use std::collections::{BTreeMap, BTreeSet};

use flex_contract::names;

use super::*;
use crate::config::classes::{Config, Identity, classes};
use crate::config::effective_config::EffectiveConfig;
use crate::config::external_provisioner::ExternalProvisioners;
use crate::config::{Problem, Recipe, script};
use crate::object::ObjectName;

/// Keys that the choice of a class reads, before its recipe is made.
const OF_THE_CHOICE: &[KeySpec] =
    &[PLUGIN_NAME, REPLACES_PROVISIONER, REPLACES_PROVISIONER_NAMESPACE, REPLACES_DEPLOYMENT, SERVICE_TOKEN];

/// Returns a config in which a key makes sense.
fn around(key: &KeySpec) -> BTreeMap<String, String> {
    let template = "spec: {containers: [{name: provisioner, volumeMounts: [{name: v, mountPath: /var/lib/volumes}]}], volumes: [{name: v, hostPath: {path: /var/lib/volumes}}]}";
    let needs: &[(KeySpec, &str)] = match key.name {
        "replaces-provisioner-namespace" | "replaces-deployment" => {
            &[(REPLACES_PROVISIONER, REPLACES_PROVISIONER.example)]
        }
        "storage-mounts" => &[(POD_TEMPLATE, template)],
        "pool" => &[(CAPABILITIES, "pool")],
        "pool-max-bytes" | "pool-in-flight" => &[(CAPABILITIES, "pool"), (POOL, POOL.example)],
        "min-size" => &[(MAX_SIZE, "1500Mi")],
        _ => &[],
    };
    let image = (IMAGE, "registry.example/other:1.0");
    [image].iter().chain(needs).map(|(key, value)| (key.name.to_owned(), (*value).to_owned())).collect()
}

/// Returns a recipe without its source.
fn recipe(data: BTreeMap<String, String>) -> Result<Recipe, Vec<Problem>> {
    let config = ObjectName::new("admin", "silver");
    let mut data = data;
    if let Some(why) = data.get(SCRIPT.name).and_then(|text| script::mistake(text)) {
        return Err(vec![Problem::new(SCRIPT.name, why)]);
    }
    let script = script::take(&mut data);
    let effective_config =
        EffectiveConfig { config, class: "silver".into(), data, script, ..EffectiveConfig::default() };
    let recipe = effective_config.recipe()?;
    let pool = recipe.pool.map(|pool| crate::config::pool::Pool { hash: String::new(), ..pool });
    Ok(Recipe { effective_config: EffectiveConfig::default(), hash: String::new(), pool, ..recipe })
}

fn with(key: &KeySpec, value: &str) -> Result<Recipe, Vec<Problem>> {
    let mut data = around(key);
    data.insert(key.name.to_owned(), value.to_owned());
    recipe(data)
}

#[test]
fn each_key_exists_once_and_is_documented() {
    let names: BTreeSet<&str> = ALL.iter().map(|key| key.name).collect();
    assert_eq!(names.len(), ALL.len(), "a key exists twice");
    for key in ALL {
        let first = key.doc[0].trim();
        assert!(first.ends_with('.') && first.split(' ').count() <= 22, "{}: {first}", key.name);
        assert!(!key.value.is_empty() && !key.default.is_empty() && !key.example.is_empty(), "{}", key.name);
        assert!(find(key.name).is_some_and(|found| found.name == key.name));
    }
    assert!(STORAGE_CLASS_FIELDS.iter().all(|field| !is_key(field)));
}

#[test]
fn the_example_of_each_key_is_accepted_and_has_its_effect() {
    for key in ALL {
        let with = with(key, key.example).unwrap_or_else(|problems| panic!("{}: {problems:?}", key.name));
        let is_of_the_choice = OF_THE_CHOICE.iter().any(|of_the_choice| of_the_choice.name == key.name);
        assert_eq!(with == recipe(around(key)).unwrap(), is_of_the_choice, "{}", key.name);
        assert!(with.parameters.is_empty(), "{} is no parameter", key.name);
    }
}

#[test]
fn a_written_default_equals_an_absent_key() {
    let mut written = 0;
    for key in ALL {
        let code = key.default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
        let Some(default) = code.filter(|code| !code.contains('`')) else { continue };
        assert_eq!(with(key, default).unwrap(), recipe(around(key)).unwrap(), "{}", key.name);
        written += 1;
    }
    assert!(written >= 10, "{written}");
}

#[test]
fn each_documented_error_is_reported_in_these_words() {
    for key in ALL {
        for (value, texts) in key.errors {
            let problems = match (key.name, with(key, value)) {
                // The error is about both keys together.
                ("max-in-flight-per-node", Ok(_)) => {
                    let mut data = around(key);
                    data.extend([
                        (PLACEMENT.name.to_owned(), "any".to_owned()),
                        (key.name.to_owned(), (*value).into()),
                    ]);
                    recipe(data).unwrap_err()
                }
                // Only the choice of a class decides between the two.
                ("plugin-name", Ok(_)) => {
                    let config = Config { data: around(key), ..Config::default() };
                    let identity = Identity {
                        provisioner: names::DEFAULT_PROVISIONER.into(),
                        plugin: "…".into(),
                        instance: names::DEFAULT_INSTANCE.into(),
                        config_namespaces: vec![config.name.namespace.clone()],
                        namespace: config.name.namespace.clone(),
                        shell_image: None,
                        cluster: String::new(),
                    };
                    let mut table =
                        classes(&identity, [&config], [], &BTreeMap::new(), &ExternalProvisioners::default());
                    table.verdicts.remove(&config.name).unwrap().problems
                }
                (_, checked) => checked.expect_err(key.name),
            };
            let found: Vec<_> = problems.iter().filter(|problem| problem.key == key.name).collect();
            assert!(found.iter().any(|problem| problem.message.contains(texts)), "{}={value}: {problems:?}", key.name);
        }
    }
}

#[test]
fn a_key_taken_from_the_class_changes_the_backend_only_by_its_program() {
    for key in ALL.iter().filter(|key| key.follows_class && key.leads_to_backend) {
        assert!(
            [COMMAND.name, ARGS.name, SCRIPT.name].contains(&key.name),
            "{}: deletions would look elsewhere",
            key.name
        );
    }
}

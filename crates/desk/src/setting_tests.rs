use flex_contract::names;

use super::*;

pub(crate) fn identity() -> Identity {
    Identity {
        provisioner: names::DEFAULT_PROVISIONER.into(),
        plugin: names::DEFAULT_PLUGIN.into(),
        instance: names::DEFAULT_INSTANCE.into(),
        config_namespaces: vec!["flex-provisioner".into()],
        namespace: "flex-provisioner".into(),
        shell_image: Some("shell".into()),
        cluster: String::new(),
    }
}

pub(crate) fn config(name: &str, data: &str) -> String {
    let labels = format!("{{type: provisioner-config, storage-class: {name}}}");
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: admin, labels: {labels}}}\ndata: {{plugin-name: {}, {data}}}\n---\n",
        names::DEFAULT_PLUGIN
    )
}

pub(crate) fn read(text: &str, class: Option<&str>) -> Result<Setting, String> {
    let inputs = Inputs { config: Some(text.into()), class: class.map(str::to_owned), ..Inputs::default() };
    Setting::read(&identity(), inputs).map_err(|error| error.to_string())
}

#[test]
fn the_config_of_the_class_is_chosen() {
    let both = config("a", "script: exit 1") + &config("b", "script: exit 2");
    let why = read(&both, None).unwrap_err();
    assert!(why.contains("choose a class, one of a, b"), "{why}");
    assert_eq!(read(&both, Some("b")).unwrap().script.as_deref(), Some("exit 2"));
    let none = read("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: b}\n", None).unwrap_err();
    assert!(none.contains("no provisioner ConfigMap"), "{none}");
}

#[test]
fn a_claim_that_the_class_serves_is_made() {
    let setting = read(&config("a", "image: i, min-size: 5Gi, access-modes: ReadWriteMany"), None).unwrap();
    assert_eq!((setting.claim.size.clone(), setting.claim.class.as_deref()), (Ok(5 << 30), Some("a")));
    assert_eq!(setting.claim.access_modes, ["ReadWriteMany"]);
    assert_eq!(setting.claim.volume_id(), ID);
}

#[test]
fn mistakes_of_a_config_are_named() {
    let why = read(&config("a", "image: i, timeout: soon"), None).unwrap_err();
    assert!(why.contains("the config admin/a is refused: timeout"), "{why}");
    let why = read("kind: ConfigMap\nmetadata: [", None).unwrap_err();
    assert!(why.contains("of the config"), "{why}");
}

#[test]
fn secrets_are_read_from_the_file() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: eA==}\nstringData: {b: why}\n";
    let setting = read(&(config("a", "image: i, secret-env: s") + secret), None).unwrap();
    let expected = [("a", "x"), ("b", "why")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(setting.secrets["s"], expected.into());
    let planted = setting.with_secret("hidden").unwrap();
    assert_eq!(planted.recipe.secret_env.len(), 2);
    assert!(planted.secrets[PLANTED].values().any(|value| value == "hidden"));
    assert!(planted.recipe.parameters.is_empty(), "the secret is no parameter");
}

#[test]
fn values_of_the_command_line_win() {
    let inputs = Inputs {
        changes: vec![("zone".into(), "west".into()), ("run-as-user".into(), "7".into())],
        storage: vec!["/srv/a".into(), "/srv/b".into()],
        ..Inputs::default()
    };
    let setting = Setting::read(&identity(), inputs).unwrap();
    assert_eq!(setting.recipe.parameters["zone"], "west");
    let spec = setting.recipe.pod_template.clone().unwrap().spec.unwrap();
    let paths: Vec<_> =
        spec.containers[0].volume_mounts.iter().flatten().map(|mount| mount.mount_path.clone()).collect();
    assert_eq!(paths, ["/srv/a", "/srv/b"]);
    assert_eq!(spec.volumes.unwrap().len(), 2);
    let changed = setting.changed(&[("zone", "east")]).unwrap();
    assert_eq!((changed.recipe.parameters["zone"].as_str(), changed.claim), ("east", setting.claim));
}

#[test]
fn directories_are_added_to_a_template() {
    let own = "spec: {containers: [{name: provisioner, volumeMounts: [{name: x, mountPath: /x}]}], volumes: [{name: x, emptyDir: {}}]}";
    let merged: Value = serde_json::from_str(&with_storage(Some(own), &["/srv".into()]).unwrap()).unwrap();
    let mounts = merged["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
    assert_eq!((mounts.len(), &mounts[1]["mountPath"]), (2, &"/srv".into()));
    assert_eq!(merged["spec"]["volumes"].as_array().unwrap().len(), 2);
}

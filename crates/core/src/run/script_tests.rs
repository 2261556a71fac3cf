use super::*;
use crate::config::classes::{Config, Identity, effective_config_of};
use crate::object::ObjectName;
use crate::run::list::list;

/// Returns the recipe of a config with these keys.
fn recipe(keys: &[(&str, &str)]) -> Recipe {
    let data = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let config = Config { name: ObjectName::new("admin", "silver"), data, ..Config::default() };
    effective_config_of(&config, "silver").recipe().unwrap()
}

fn made(recipe: &Recipe) -> Job {
    let identity = Identity {
        provisioner: "p".into(),
        plugin: "q".into(),
        instance: "default".into(),
        config_namespaces: vec!["admin".into()],
        namespace: "admin".into(),
        shell_image: None,
        cluster: String::new(),
    };
    list(recipe, None, &identity, "https://api", "1")
}

fn container(job: &Job) -> Container {
    job.spec.clone().unwrap().template.spec.unwrap().containers.remove(0)
}

#[test]
fn a_shell_runs_the_script_from_a_file_that_the_kubelet_writes() {
    let recipe = recipe(&[("script", "echo $(id) $HOME\n"), ("image", "tools")]);
    let mut job = made(&recipe);
    complete(&mut job, &recipe, Texts { script: Some("echo $(id) $HOME\n"), shell_image: Some("shell") }).unwrap();
    let own = container(&job);
    assert_eq!(own.command, Some(vec!["/bin/sh".to_owned(), "/etc/flex-script/script".to_owned()]));
    assert_eq!((own.args, own.image.as_deref()), (None, Some("tools")));
    let mount = own.volume_mounts.unwrap().into_iter().find(|mount| mount.mount_path == "/etc/flex-script").unwrap();
    assert_eq!(mount.read_only, Some(true));
    let template = job.spec.unwrap().template;
    let volume = template.spec.unwrap().volumes.unwrap().into_iter().find(|volume| volume.name == mount.name).unwrap();
    let file = volume.downward_api.unwrap().items.unwrap().remove(0);
    assert_eq!(file.path, "script");
    assert_eq!(file.field_ref.unwrap().field_path, "metadata.annotations['flex-provisioner.io/script']");
    assert_eq!(
        template.metadata.unwrap().annotations.unwrap()[names::SCRIPT],
        "echo $(id) $HOME\n",
        "as it is written"
    );
}

#[test]
fn a_script_without_an_image_runs_in_the_shell_image() {
    let recipe = recipe(&[("script", "exit 0")]);
    let texts = Texts { script: Some("exit 0"), shell_image: Some("registry.example/shell:1") };
    let mut job = made(&recipe);
    assert_eq!(container(&job).image, None);
    complete(&mut job, &recipe, texts).unwrap();
    assert_eq!(container(&job).image.as_deref(), Some("registry.example/shell:1"));
    let why = complete(&mut made(&recipe), &recipe, Texts { shell_image: None, ..texts }).unwrap_err();
    assert!(why.contains("--shell-image"), "{why}");
}

#[test]
fn a_lost_script_is_reported_with_its_object_and_its_config() {
    let recipe = recipe(&[("script", "exit 0"), ("image", "tools")]);
    let why = complete(&mut made(&recipe), &recipe, Texts::default()).unwrap_err();
    assert!(why.contains(&kept_prefix(recipe.script.as_deref().unwrap())) && why.contains("admin/silver"), "{why}");
}

#[test]
fn a_job_without_a_script_stays_as_it_is() {
    let recipe = recipe(&[("image", "x"), ("command", "/run")]);
    let mut job = made(&recipe);
    let before = job.clone();
    complete(&mut job, &recipe, Texts { script: Some("exit 0"), shell_image: Some("shell") }).unwrap();
    assert_eq!(job, before);
    assert!(!serde_json::to_string(&job).unwrap().contains("flex-script"));
}

#[test]
fn a_template_of_the_admin_cannot_take_the_place_of_the_script() {
    let template = "spec: {containers: [{name: provisioner, volumeMounts: [{name: x, mountPath: /etc/flex-script}]}], volumes: [{name: x, emptyDir: {}}, {name: flex-script, emptyDir: {}}]}";
    let recipe = recipe(&[("script", "exit 0"), ("image", "tools"), ("pod-template", template)]);
    let spec = made(&recipe).spec.unwrap().template.spec.unwrap();
    let at: Vec<_> = spec.containers[0].volume_mounts.as_ref().unwrap().iter().collect();
    let at: Vec<_> =
        at.iter().filter(|mount| mount.mount_path == "/etc/flex-script").map(|mount| &mount.name).collect();
    assert_eq!(at, ["flex-script"]);
    let volumes: Vec<_> = spec.volumes.iter().flatten().filter(|volume| volume.name == "flex-script").collect();
    assert!(volumes.len() == 1 && volumes[0].downward_api.is_some());
}

//! Tests of the files that `make manifests` writes: the images and namespaces in them, and that the orchestrator
//! accepts their configs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

const REGISTRY: &str = "registry.example:5000/team";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Objects of these kinds have no namespace.
const EVERYWHERE: [&str; 8] = [
    "Namespace",
    "StorageClass",
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

fn run(out: &Path, args: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/manifests.sh");
    Command::new(script).arg("--out").arg(out).args(args).output().expect("the script can be started")
}

/// The files for [`REGISTRY`], with further arguments.
fn written(args: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, args);
    folder
}

#[track_caller]
fn write(folder: &TempDir, args: &[&str]) {
    let output = run(folder.path(), &[&["--registry", REGISTRY], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn read(folder: &TempDir, file: &str) -> String {
    fs::read_to_string(folder.path().join(file)).unwrap()
}

fn objects(text: &str) -> Vec<Value> {
    let parts = text.split("\n---\n").skip(1);
    parts.map(|part| serde_saphyr::from_str(part).unwrap_or_else(|error| panic!("{error}: {part}"))).collect()
}

fn kinds(text: &str) -> Vec<String> {
    objects(text).iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
}

/// The images that a text names, as the value of `image:`.
fn images(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|line| line.trim().strip_prefix("image: ")).collect()
}

#[test]
fn each_object_is_in_the_namespace_and_each_image_in_the_registry() {
    let folder = written(&[]);
    for (file, count, names) in [
        ("install.yaml", 25, ["flex-provisioner"].as_slice()),
        ("quickstart.yaml", 30, &["flex-provisioner", "hostpath"]),
    ] {
        let text = read(&folder, file);
        let of_registry: Vec<_> = names.iter().map(|name| format!("{REGISTRY}/{name}:{VERSION}")).collect();
        assert_eq!(images(&text), of_registry.iter().map(String::as_str).collect(), "{file}");
        for object in objects(&text) {
            let expected = (!EVERYWHERE.contains(&object["kind"].as_str().unwrap())).then_some("flex-provisioner");
            assert_eq!(object["metadata"]["namespace"].as_str(), expected, "{file}: {object}");
        }
        assert!(objects(&text).len() >= count, "{file} has {} objects", objects(&text).len());
        let first = text.lines().next().unwrap();
        assert!(first.starts_with('#') && first.contains(VERSION) && first.contains(REGISTRY), "{first}");
        assert!(
            text.contains(&format!("kubectl delete --ignore-not-found -f {file}")),
            "{file} says how it is removed"
        );
    }
    let class = objects(&read(&folder, "quickstart.yaml")).into_iter().find(|object| object["kind"] == "StorageClass");
    let claims = objects(&read(&folder, "claim.yaml"));
    assert_eq!(claims[0]["spec"]["storageClassName"], "flex-local");
    let mounted = &claims[1]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"];
    assert_eq!(*mounted, claims[0]["metadata"]["name"]);
    let metadata = &class.expect("a class")["metadata"];
    assert_eq!(metadata["name"], "flex-local");
    assert_eq!(metadata["annotations"]["storageclass.kubernetes.io/is-default-class"], "false");
}

#[test]
fn what_was_pushed_is_named_by_its_digest_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let [pushed, own] = ["hostpath", "flex-provisioner"].map(|name| format!("{REGISTRY}/{name}:{VERSION}@{digest}"));
    fs::write(folder.path().join("images.txt"), format!("{REGISTRY}/nfs:other@{digest}\n{pushed}\n{own}\n")).unwrap();
    write(&folder, &[]);
    for file in ["quickstart.yaml", "configmaps/hostpath.yaml", "examples/hostpath/writer.yaml"] {
        assert!(images(&read(&folder, file)).contains(pushed.as_str()), "{file}");
    }
    let of_nfs = format!("{REGISTRY}/nfs:{VERSION}");
    assert_eq!(images(&read(&folder, "configmaps/nfs.yaml")), [of_nfs.as_str()].into());
    let values = format!(
        "image:\n  registry: registry.example:5000\n  repository: team/flex-provisioner\n  tag: \"{VERSION}\"\n  digest: {digest}\nshellImage:\n  tag: \"{VERSION}\"\n"
    );
    assert!(read(&folder, "values.yaml").ends_with(&values), "{}", read(&folder, "values.yaml"));
    // The schema that the line for editors names is not among the files.
    assert!(!read(&folder, "configmaps/nfs.yaml").contains("yaml-language-server"));
    write(&folder, &["--version", "next"]);
    assert!(!read(&folder, "quickstart.yaml").contains(&digest), "another version has other digests");
}

#[test]
fn the_orchestrator_accepts_the_class_of_quickstart() {
    let folder = tempfile::tempdir().unwrap();
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    fs::write(folder.path().join("images.txt"), format!("{REGISTRY}/hostpath:{VERSION}@{digest}\n")).unwrap();
    write(&folder, &["--pull-secret", "registry-login"]);
    assert!(read(&folder, "quickstart.yaml").contains(&digest));
    let output = Command::new(env!("CARGO_BIN_EXE_flex-provisioner"))
        .arg("validate")
        .arg(folder.path().join("quickstart.yaml"))
        .env_clear()
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{message}{}", String::from_utf8_lossy(&output.stderr));
    assert!(message.contains("1 provisioner configs checked: 0 errors, 0 warnings"), "{message}");
    assert!(
        !read(&folder, "quickstart.yaml").contains("/var/lib/flex-hostpath"),
        "the class has a directory of its own"
    );
}

#[test]
fn the_config_for_local_path_follows_that_of_hostpath() {
    let shipped = |file: &str| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configmaps").join(file);
        let text = fs::read_to_string(file).unwrap();
        text[text.find("apiVersion").unwrap()..].to_owned()
    };
    let own = ["  replaces-provisioner: ", "  ignored-parameters: "];
    let moving_in = shipped("moving-in/local-path.yaml");
    let kept = moving_in.lines().filter(|line| !own.iter().any(|key| line.starts_with(key)));
    let same = kept.map(|line| format!("{line}\n")).collect::<String>();
    let same = same.replace(", hostPath:/opt/local-path-provisioner", "");
    let same = same.replace("/opt/local-path-provisioner", "/var/lib/flex-hostpath");
    let same = same.replace("local-path-image", "hostpath-provisioner").replace("local-path", "hostpath");
    assert_eq!(same, shipped("hostpath.yaml"));
}

#[test]
fn a_pull_secret_reaches_every_pod() {
    let folder = written(&["--pull-secret", "registry-login"]);
    for object in objects(&read(&folder, "quickstart.yaml")) {
        match object["kind"].as_str().unwrap() {
            "Deployment" | "DaemonSet" => {
                let secrets = &object["spec"]["template"]["spec"]["imagePullSecrets"];
                assert_eq!(secrets[0]["name"], "registry-login", "{object}");
            }
            "ConfigMap" => assert_eq!(object["data"]["image-pull-secrets"], "registry-login"),
            _ => (),
        }
    }
    assert!(read(&folder, "values.yaml").ends_with("imagePullSecrets: [registry-login]\n"));
    assert!(!read(&written(&[]), "quickstart.yaml").contains("registry-login"));
}

#[test]
fn an_older_kubernetes_gets_no_mutating_policies() {
    let mutating = |text: &str| kinds(text).iter().filter(|kind| kind.starts_with("Mutating")).count();
    let validating = |text: &str| kinds(text).iter().filter(|kind| kind.starts_with("Validating")).count();
    let (new, old) =
        (read(&written(&[]), "install.yaml"), read(&written(&["--kubernetes", "v1.35.2"]), "install.yaml"));
    assert!(mutating(&new) > 0);
    assert_eq!((mutating(&old), validating(&old)), (0, validating(&new)));
    assert_eq!(kinds(&old).len(), kinds(&new).len() - mutating(&new));
}

#[test]
fn a_registry_that_cannot_be_one_is_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    for (registry, advice) in [
        ("", "registry.example.org/team"),
        ("https://registry.example/team", "without https://"),
        ("Registry.example/team", "in small letters"),
        ("registry.example/team/", "such as registry.example.org/team"),
        ("team", "registry.example.org/team"),
    ] {
        let output = run(folder.path(), &["--registry", registry]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains(advice), "{registry}: {message}");
    }
    let output = run(folder.path(), &["--registry", REGISTRY, "--version", "a/b"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("the tag of the images"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written");
}

//! The walk of a vendor who follows the README of the images: its blocks, word for word, but for the name of the image.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::ListParams;

use orchestrator::deployed::{kubectl, root, users, volumes_in};
use orchestrator::programs::tool;
use orchestrator::wait::{unexpected, until};

/// The files that the build of an image reads, and those that the README copies.
const CHECKOUT: [&str; 6] = [
    "Cargo.toml",
    "configmaps/hostpath.yaml",
    "examples/hostpath",
    "provisioner-images/hostpath",
    "provisioner-images/images.sh",
    "scripts",
];
/// The namespace of the README's claim.
const NAMESPACE: &str = "default";

#[tokio::test]
async fn the_image_of_the_readme_goes_from_its_text_to_a_written_volume() {
    let ring = users("readme").await;
    let name = format!("mine-{}", cluster::tests_name());
    let storage = format!("/var/lib/flex-{name}");
    let _ = fs::remove_dir_all(&storage);
    let readme = fs::read_to_string(root().join("provisioner-images/README.md")).unwrap();
    let (_, vendors) = readme.split_once("\n## Write your own").expect("the README has a section for vendors");
    let [image, class] = blocks(vendors).map(|block| block.replace("mine", &name));

    let walk = Walk::begin(&ring.cluster().kubectl());
    // The cluster exists, and gets the image below.
    let (files, _) = image.split_once("make cluster-up").expect("the block ends with the cluster");
    walk.run(files);
    walk.build(&name);
    ring.cluster().import_image(&walk.path(&format!("build/images/{name}.tar"))).await.expect("the image is imported");
    let (of_admin, of_user) = class.split_at(class.find("sed 's/hostpath-/").expect("the claim follows the class"));
    walk.run(of_admin);
    // On a busy machine, the first attempt can end before the DaemonSet has begun, and a person waits longer.
    until("the DaemonSet has made the directory", || async {
        if fs::exists(&storage).unwrap() { Ok(()) } else { unexpected(&storage) }
    })
    .await;
    let printed = walk.run(&of_user.replace("--timeout=60s", "--timeout=300s"));
    let (made, attempt) = printed.trim_end().rsplit_once(' ').unwrap_or_default();
    let made = made.lines().last().unwrap_or_default();
    assert_eq!(made, format!("made for {NAMESPACE}/{name}-example by attempt"), "{printed}");
    assert!(attempt.parse::<u32>().is_ok(), "{printed}");
    assert!(class.contains(&format!("# {made} 1")), "the README says what is in the file: {made} 1");
    assert_eq!(volumes_in(&storage).len(), 1, "the image made one volume");

    let (pod, claim) = (format!("pod/{name}-writer"), format!("pvc/{name}-example"));
    kubectl(ring.cluster(), &["-n", NAMESPACE, "delete", "--grace-period=0", &pod, &claim]);
    until("no volume of the README's class is left", || async {
        let listed = ring.volumes().list(&ListParams::default()).await;
        let of_class = |volume: &&PersistentVolume| {
            volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()) == Some(&name)
        };
        let left = listed.map_err(|error| error.to_string())?.items.iter().filter(of_class).count();
        if left == 0 { Ok(()) } else { unexpected(left) }
    })
    .await;
    assert_eq!(volumes_in(&storage).len(), 0, "{:?} are left", volumes_in(&storage));
    for file in ["configmaps/hostpath.yaml", "examples/hostpath/storageclass.yaml"] {
        walk.run(&format!("sed 's/hostpath/{name}/g' {file} | kubectl delete -f -"));
    }
    let claims = ring.api::<PersistentVolumeClaim>(NAMESPACE).list(&ListParams::default()).await.unwrap().items;
    assert!(!claims.iter().any(|claim| claim.metadata.name.as_deref() == Some(&format!("{name}-example"))));
    fs::remove_dir_all(&storage).unwrap();
}

/// Returns the two blocks of commands of a section.
fn blocks(section: &str) -> [String; 2] {
    let mut parts = section.split("\n```sh\n").skip(1).map(|part| part.split("\n```\n").next().unwrap().to_owned());
    [parts.next().expect("a block that makes the image"), parts.next().expect("a block that uses the image")]
}

/// A checkout for one walk, with what the README names.
struct Walk {
    folder: tempfile::TempDir,
}

impl Walk {
    /// Copies the files of the checkout, and gives the shell a `kubectl`, as the README does by an alias.
    fn begin(kubectl: &Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut copy = Command::new("cp");
        copy.args(["-R", "--parents"]).args(CHECKOUT).arg(folder.path()).current_dir(root());
        assert!(copy.status().unwrap().success());
        let words: Vec<_> = std::iter::once(kubectl.get_program()).chain(kubectl.get_args()).collect();
        let words = words.iter().map(|word| format!("'{}'", word.display())).collect::<Vec<_>>().join(" ");
        let variables = kubectl.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let variables = variables.map(|(name, value)| format!("export {}='{}'\n", name.display(), value.display()));
        let file = folder.path().join("bin/kubectl");
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, format!("#!/bin/sh\n{}exec {words} \"$@\"\n", variables.collect::<String>())).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        Walk { folder }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Runs lines of shell in the checkout, and returns what they print. Each command must succeed.
    fn run(&self, lines: &str) -> String {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("bash");
        self.end(shell.args(["-euo", "pipefail", "-c", lines]).env("PATH", path))
    }

    /// Builds the image as `make images` does, with the programs that these tests use.
    fn build(&self, name: &str) {
        let program = tool();
        let folders: Vec<&Path> = program.ancestors().skip(1).take(3).collect();
        let last = |at: usize| folders[at].file_name().unwrap();
        let mut script = Command::new(self.path("provisioner-images/images.sh"));
        script.args(["--no-build", name]).env("FLEX_PROFILE", last(0));
        self.end(script.env("CARGO_BUILD_TARGET", last(1)).env("CARGO_TARGET_DIR", folders[2]));
    }

    fn end(&self, command: &mut Command) -> String {
        let output = command.current_dir(self.folder.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }
}

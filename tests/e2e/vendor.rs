//! The walk of a vendor, from nothing to a pod that writes to a volume: the commands that the tutorial of images shows,
//! with the files as `new` has written them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};

use orchestrator::deployed::{import, kubectl, log_of, pod, root, users, volumes_in};
use orchestrator::programs::tool;
use orchestrator::ring::{OWN, Ring, uid};
use orchestrator::wait::{unexpected, until};

/// The registry that the files of `new` name.
const REGISTRY: &str = "registry.example.org/team";
/// The tag of the images that they name.
const TAG: &str = "0.1.0";

#[tokio::test]
async fn a_vendor_goes_from_new_to_a_written_volume_without_an_edit() {
    let ring = users("vendor").await;
    import(ring.cluster(), &["shell"]).await;
    let name = format!("vendor-{}", cluster::tests_name());
    let storage = format!("/var/lib/flex-{name}");
    // A test that was stopped half-way leaves its volumes here, and its cluster is gone.
    let _ = fs::remove_dir_all(&storage);
    let mut walk = Walk::begin();

    let files = walk.folder.path().join(&name);
    walk.flex(&["new", &name, "--from", "shell", "--operations", "clone"]);
    walk.lap("new");
    let config = files.join("config.yaml").display().to_string();
    let script = files.join("provision.sh").display().to_string();
    let tried = walk.flex(&["try", "--config", &config, "--operation", "provision,delete", &script]);
    assert_eq!(tried.matches("the orchestrator goes on").count(), 2, "{tried}");
    walk.lap("try");
    let proved = walk.run(&mut Command::new(files.join("test.sh")));
    assert!(proved.contains(" 0 failed, "), "{proved}");
    assert!(!fs::exists(&storage).unwrap(), "the desk writes nothing on this machine");
    walk.lap("conformance");

    let archive = walk.image(&files, &name);
    ring.cluster().import_image(&archive).await.expect("the image is imported");
    walk.lap("image");
    let file = |name: &str| files.join(name).display().to_string();
    let (class, claim) = (file("storageclass.yaml"), file("claim.yaml"));
    kubectl(ring.cluster(), &["apply", "-f", &config, "-f", &class]);
    kubectl(ring.cluster(), &["-n", &ring.user, "apply", "-f", &claim]);
    let claim_name = format!("{name}-example");
    pod(&ring, "writer", &claim_name, "echo hello >/data/greeting && cat /data/greeting").await;
    assert_eq!(log_of(&ring, "writer").await.trim(), "hello");
    walk.lap("claim and pod");

    let bound = ring.bound(&claim_name).await;
    let id = uid(&bound);
    assert_eq!(volumes_in(&storage), [id.clone()].into(), "the program made one volume");
    assert_eq!(fs::read_to_string(format!("{storage}/{id}/greeting")).unwrap(), "hello\n");
    ring.api::<Pod>(&ring.user).delete("writer", &DeleteParams::default().grace_period(0)).await.unwrap();
    kubectl(ring.cluster(), &["-n", &ring.user, "delete", "-f", &claim]);
    ring.volume_gone(&names::pv_name(&id)).await;
    no_job_of(&ring, &id).await;
    kubectl(ring.cluster(), &["delete", "-f", &class, "-f", &config]);
    walk.lap("deletion");
    assert_eq!(volumes_in(&storage).len(), 0, "{:?} are left", volumes_in(&storage));
    fs::remove_dir_all(&storage).unwrap();
    println!("{}", walk.report());
}

/// Waits until no Job of a volume is left.
async fn no_job_of(ring: &Ring, id: &str) {
    let of_volume = ListParams::default().labels(&format!("{}={id}", names::LABEL_VOLUME_ID));
    until("no Job of the volume is left", || async {
        let jobs = ring.api::<Job>(OWN).list(&of_volume).await.map_err(|error| error.to_string())?.items;
        if jobs.is_empty() { Ok(()) } else { unexpected(jobs.len()) }
    })
    .await;
}

/// The steps of a vendor in a directory of their own, with the time of each.
struct Walk {
    folder: tempfile::TempDir,
    at: Instant,
    laps: Vec<(&'static str, Duration)>,
}

impl Walk {
    fn begin() -> Self {
        Walk { folder: tempfile::tempdir().unwrap(), at: Instant::now(), laps: Vec::new() }
    }

    /// Notes the end of a step.
    fn lap(&mut self, step: &'static str) {
        self.laps.push((step, self.at.elapsed()));
        self.at = Instant::now();
    }

    /// Returns the time of each step and their sum, as one line.
    fn report(&self) -> String {
        let steps: Vec<_> =
            self.laps.iter().map(|(step, took)| format!("{step} {:.2} s", took.as_secs_f64())).collect();
        let sum: Duration = self.laps.iter().map(|(_, took)| *took).sum();
        format!("a vendor's walk: {}; in all {:.2} s", steps.join(", "), sum.as_secs_f64())
    }

    /// Runs a command of the program.
    fn flex(&self, arguments: &[&str]) -> String {
        self.run(Command::new(tool()).args(arguments))
    }

    /// Runs a command in the directory, with the project's programs in `PATH`. The command must succeed.
    fn run(&self, command: &mut Command) -> String {
        let programs = tool();
        let own = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{own}", programs.parent().unwrap().display());
        let output = command.current_dir(self.folder.path()).env("PATH", path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {text}");
        text
    }

    /// Builds the image of the Dockerfile in a directory, on the shipped image `shell`, and returns its archive. The
    /// storage of `buildah` belongs to the walk, so that no other images of the machine are touched.
    fn image(&self, files: &Path, name: &str) -> PathBuf {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let (archive, policy) = (self.folder.path().join("image.tar"), at("policy.json"));
        fs::write(&policy, r#"{ "default": [{ "type": "insecureAcceptAnything" }] }"#).unwrap();
        let buildah = |arguments: &[&str]| {
            let mut command = Command::new("buildah");
            command.args(["--root", &at("images"), "--runroot", &at("run"), "--storage-driver", "vfs"]);
            self.run(command.args(arguments))
        };
        let shell = format!("oci-archive:{}", root().join("build/images/shell.tar").display());
        buildah(&["pull", "--quiet", "--signature-policy", &policy, &shell]);
        // The vendor's registry has a copy of the shipped image.
        let base = format!("{REGISTRY}/shell:{}", env!("CARGO_PKG_VERSION"));
        buildah(&["tag", &format!("localhost/flex-provisioner/shell:{}", env!("CARGO_PKG_VERSION")), &base]);
        let image = format!("{REGISTRY}/{name}:{TAG}");
        let context = files.display().to_string();
        let build = ["bud", "--quiet", "--pull-never", "--isolation", "chroot", "--signature-policy", &policy];
        buildah(&[&build[..], &["--format", "oci", "--tag", &image, &context]].concat());
        buildah(&[
            "push",
            "--quiet",
            "--signature-policy",
            &policy,
            &image,
            &format!("oci-archive:{}:{image}", archive.display()),
        ]);
        archive
    }
}

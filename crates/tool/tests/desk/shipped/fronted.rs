//! The shipped images pass with a front before their servers.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use flex_desk::conformance::Case;
use ganesha::{Ganesha, Options};
use orchestrator::deployed::root;

use super::{CINDER, block_claim, csi_driver, is_empty, outcomes, with_values};
use crate::{Files, built};

/// Runs the cases with a front before the server on a shipped config, which passes them all.
fn passes_behind_a_front(config: &str, file: &str, arguments: &[&str]) {
    let cases: Vec<&Case> = Case::ALL.iter().filter(|case| case.needs_front()).collect();
    let only: Vec<&str> = cases.iter().flat_map(|case| ["--only", case.id()]).collect();
    let (outcomes, _) = outcomes(config, file, &[&only[..], arguments].concat());
    assert_eq!(outcomes.passed(), cases.len(), "{outcomes:?}");
}

#[test]
#[ignore = "takes minutes: a stage of its own runs it"]
fn the_shipped_nfs_passes_behind_a_front() {
    let server = Ganesha::start(Options::default());
    let (port, nfs) = (format!("port={}", server.port()), built("nfs-provisioner", "nfs-provisioner"));
    let of_server = ["--set", "server=127.0.0.1", "--set", &port, "--set", "on-delete=delete"];
    let export = format!("export={}", Ganesha::EXPORT);
    let files = format!("--external-storage={}", server.directory().display());
    let nfs = nfs.to_str().expect("UTF-8");
    let front = ["--set", &export, "--front", "server,port", &files, nfs];
    passes_behind_a_front("nfs.yaml", "configmaps/nfs.yaml", &[&of_server[..], &front].concat());
}

#[test]
#[ignore = "takes minutes: a stage of its own runs it"]
fn the_shipped_csi_passes_behind_a_front() {
    let files = Files::new();
    let folder = files.path("driver");
    let driver = csi_driver(&folder);
    let (own, sources) = ("csi-driver=csi.test.flex-provisioner.io", "volume-sources=csi:csi.test.flex-provisioner.io");
    let on_node = format!("/var/lib/kubelet/plugins/csi-hostpath={folder}");
    let csi = built("csi-provisioner", "csi-provisioner");
    let csi = csi.to_str().expect("UTF-8");
    let arguments = ["--set", own, "--set", sources, "--on-node", &on_node, "--front", "csi-endpoint", csi];
    passes_behind_a_front("csi.yaml", "configmaps/csi.yaml", &arguments);
    is_empty(&driver);
}

#[test]
#[ignore = "takes minutes: a stage of its own runs it"]
fn the_shipped_cinder_passes_behind_a_front() {
    let _one = CINDER.lock().unwrap_or_else(PoisonError::into_inner);
    let cinder = openstack::Cinder::start(openstack::Options::default());
    let (files, own) = (Files::new(), format!("http://127.0.0.1:{}/v3", cinder.port()));
    let file = with_values(&files, "cinder-standalone.yaml", &[("http://cinder.example:8776/v3", own.as_str())]);
    let program = built("cinder-provisioner", "cinder-provisioner");
    let program = program.to_str().expect("UTF-8");
    let claim = block_claim(&files, "cinder-standalone");
    // Without this parameter, the class makes no clones.
    let clones = ["--set", "smartclone=true"];
    let arguments = [&clones[..], &["--claim", &claim, "--front", "OS_CINDER_ENDPOINT", program]].concat();
    passes_behind_a_front("cinder-standalone.yaml", &file, &arguments);
    let project = cinder.project("kubernetes");
    assert_eq!((project.volumes().len(), project.snapshots().len()), (0, 0));
}

#[test]
#[ignore = "takes minutes: a stage of its own runs it"]
fn the_shipped_cinder_with_keystone_passes_behind_a_front() {
    let _one = CINDER.lock().unwrap_or_else(PoisonError::into_inner);
    let keystone = openstack::Keystone::start();
    let options = openstack::Options { keystone: Some(&keystone), port: Some(keystone.cinder_port()) };
    let cinder = openstack::Cinder::start(options);
    // A front takes the place of a variable's value, and knows nothing of the text of a file.
    let variables = format!(
        "OS_AUTH_URL: {}\n  OS_CINDER_ENDPOINT: http://127.0.0.1:{}/v3\n  OS_USERNAME: demo\n  OS_PASSWORD: {}\n  OS_TENANT_NAME: demo\n  OS_DOMAIN_NAME: Default\n  OS_REGION_NAME: RegionOne\n",
        keystone.url(),
        cinder.port(),
        openstack::Keystone::PASSWORD
    );
    let of_file = "cloud.conf: |\n    [Global]\n    auth-url=https://keystone.example:5000/v3\n    username=kubernetes\n    password=CHANGE-ME\n    tenant-name=kubernetes\n    domain-name=Default\n    region=RegionOne\n";
    let replace = [("secret-volume: cinder-cloud", "secret-env: cinder-cloud"), (of_file, variables.as_str())];
    let files = Files::new();
    let file = with_values(&files, "cinder.yaml", &replace);
    let program = built("cinder-provisioner", "cinder-provisioner");
    let program = program.to_str().expect("UTF-8");
    let claim = block_claim(&files, "cinder");
    for front in ["OS_AUTH_URL", "OS_CINDER_ENDPOINT"] {
        let arguments = ["--set", "smartclone=true", "--claim", &claim, "--front", front, program];
        passes_behind_a_front("cinder.yaml", &file, &arguments);
        let project = cinder.project("demo");
        assert_eq!((project.volumes().len(), project.snapshots().len()), (0, 0), "{front}");
    }
}

/// The region of the S3 server, and the key of its user.
const REGION: &str = "eu-west-1";
const KEY: [&str; 2] = ["flex", "secret/of+the=test"];

/// A real S3 server, which ends with this value.
struct S3 {
    server: Child,
    endpoint: String,
    folder: tempfile::TempDir,
}

impl S3 {
    fn start() -> Self {
        let build = root().join("testing/s3/build.sh");
        let built = Command::new("bash").arg(build).stdin(Stdio::null()).output().expect("bash starts");
        let (said, why) = (String::from_utf8_lossy(&built.stdout), String::from_utf8_lossy(&built.stderr));
        assert!(built.status.success(), "{why}");
        let program = Path::new(said.lines().last().expect("the directory of the server")).join("versitygw");
        let folder = tempfile::tempdir().unwrap();
        let port = ganesha::free_port();
        let mut command = Command::new(program);
        command.args(["--port", &format!("127.0.0.1:{port}"), "--region", REGION, "posix"]).arg(folder.path());
        command.envs([("ROOT_ACCESS_KEY", KEY[0]), ("ROOT_SECRET_KEY", KEY[1])]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = command.spawn().expect("the server starts");
        let mut s3 = S3 { server, endpoint: format!("http://127.0.0.1:{port}"), folder };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = s3.server.try_wait().expect("the test's own child");
            assert!(
                ended.is_none() && began.elapsed() < Duration::from_secs(120),
                "versitygw does not serve: {ended:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        s3
    }

    /// Returns the names of the buckets.
    fn buckets(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| !name.starts_with('.')).collect()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Makes a directory with the programs of the image for scripts, but for `flex-pv`, and returns its path.
fn shell_programs(files: &Files) -> String {
    let folder = files.path("programs");
    fs::create_dir(&folder).unwrap();
    let all = ["/bin/busybox", "/usr/bin/busybox"];
    let busybox = all.into_iter().find(|path| Path::new(path).exists()).expect("install busybox-static");
    let listed = Command::new(busybox).arg("--list").output().expect("busybox starts");
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    let links = listed.lines().map(|name| (name, busybox)).chain([("curl", "/usr/bin/curl")]);
    links.for_each(|(name, program)| symlink(program, Path::new(&folder).join(name)).unwrap());
    folder
}

#[test]
#[ignore = "takes minutes: a stage of its own runs it"]
fn the_shipped_s3_recipe_passes_behind_a_front() {
    let (s3, files) = (S3::start(), Files::new());
    let shipped = root().join("configmaps/recipes/s3-bucket.yaml");
    let text = fs::read_to_string(shipped).unwrap();
    assert!(text.contains("https://s3.example"), "{text}");
    let secret = format!(
        "\n---\napiVersion: v1\nkind: Secret\nmetadata: {{name: s3-bucket, namespace: flex-provisioner}}\nstringData: {{AWS_ACCESS_KEY_ID: {}, AWS_SECRET_ACCESS_KEY: '{}'}}\n",
        KEY[0], KEY[1]
    );
    let file = files.write("s3-bucket.yaml", &(text.replace("https://s3.example", &s3.endpoint) + &secret));
    let arguments = ["--path", &shell_programs(&files), "--front", "s3-endpoint"];
    passes_behind_a_front("recipes/s3-bucket.yaml", &file, &arguments);
    assert!(s3.buckets().is_empty(), "{:?}", s3.buckets());
}

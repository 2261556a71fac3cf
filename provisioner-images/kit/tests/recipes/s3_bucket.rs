//! The recipe `s3-bucket` with versitygw, a real S3 server, which keeps its objects in files.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use super::api::path_text;
use super::cases::{self, Backend, id};
use super::conformance;
use super::desk::{Desk, system};
use super::host;

const REGION: &str = "eu-west-1";
const KEY: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "flex"), ("AWS_SECRET_ACCESS_KEY", "secret/of+the=test")];

struct S3 {
    desk: Desk,
    folder: tempfile::TempDir,
    endpoint: String,
    server: Child,
}

impl S3 {
    fn new() -> Self {
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/s3/build.sh");
        let program = PathBuf::from(system(&path_text(build)).lines().last().unwrap()).join("versitygw");
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        let port = host::free_port();
        let endpoint = format!("http://127.0.0.1:{port}");
        let mut desk = Desk::new("s3-bucket", &[("https://s3.example", &endpoint)], &[Path::new("/usr/bin/curl")]);
        fs::create_dir_all(desk.path("secrets/s3-bucket")).unwrap();
        for (name, value) in KEY {
            desk.set(name, value);
            fs::write(desk.path(&format!("secrets/s3-bucket/{name}")), value).unwrap();
        }
        let mut server = Command::new(program)
            .args(["--port", &format!("127.0.0.1:{port}"), "--region", REGION, "posix"])
            .arg(folder.path().join("data"))
            .envs([("ROOT_ACCESS_KEY", KEY[0].1), ("ROOT_SECRET_KEY", KEY[1].1)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        host::answers(port, &mut server);
        S3 { desk, folder, endpoint, server }
    }

    /// Returns the files of a bucket.
    fn bucket(&self, id: &str) -> PathBuf {
        self.folder.path().join(format!("data/flex-{id}"))
    }

    /// Sends a request with the key of the test, in the bucket that the PersistentVolume names.
    fn ask(&self, id: &str, method: &str, object: &str, body: &str) -> String {
        let bucket = self.desk.volume(id)["spec"]["csi"]["volumeAttributes"]["bucketName"].as_str().unwrap().to_owned();
        let [(_, user), (_, secret)] = KEY;
        let url = format!("{}/{bucket}/{object}", self.endpoint);
        system(&format!(
            "sum=$(printf %s '{body}' | sha256sum)
            curl -fsS -X {method} --user '{user}:{secret}' --aws-sigv4 aws:amz:{REGION}:s3 --data-binary '{body}' \
                -H \"x-amz-content-sha256: ${{sum%% *}}\" '{url}'"
        ))
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Backend for S3 {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn objects(&self) -> Vec<String> {
        system(&format!("ls {}/data", path_text(self.folder.path().into()))).lines().map(str::to_owned).collect()
    }

    /// A bucket has no size.
    fn size(&self, id: &str) -> u64 {
        assert!(self.bucket(id).is_dir());
        0
    }

    fn write(&self, id: &str, text: &str) {
        self.ask(id, "PUT", "folder/file", text);
    }

    fn read(&self, id: &str) -> String {
        self.ask(id, "GET", "folder/file", "")
    }

    fn has_sizes(&self) -> bool {
        false
    }
}

#[test]
fn s3_bucket_passes_the_cases_of_all_recipes() {
    let s3 = S3::new();
    cases::all(&s3);
}

#[test]
fn s3_bucket_passes_conformance() {
    let s3 = S3::new();
    conformance::passes(&s3, &[], &["--external-storage"]);
}

#[test]
fn a_bucket_is_deleted_with_all_its_objects_whatever_their_names() {
    let s3 = S3::new();
    let (id, other) = (id(1), id(2));
    for bucket in [&id, &other] {
        assert_eq!(s3.desk.run("provision", bucket, &[]).code, Some(0));
    }
    s3.write(&other, "of another claim");
    // More than one page of the server's list.
    for n in 0..1100 {
        fs::write(s3.bucket(&id).join(format!("file-{n}")), "x").unwrap();
    }
    for name in ["%26%3C%3E%22%27", "a/b/c%20d", "%C3%A4", "%24%28id%29%60id%60", "%5Cn%5C", "-rf", "%2B%25"] {
        s3.ask(&id, "PUT", name, "x");
    }
    let ended = s3.desk.run("delete", &id, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!s3.bucket(&id).exists());
    assert_eq!(s3.read(&other), "of another claim");
}

/// The server's answer cannot show the name, so that each deletion misses the object.
#[test]
fn an_object_that_cannot_be_deleted_ends_the_deletion_with_an_error() {
    let s3 = S3::new();
    let id = id(1);
    assert_eq!(s3.desk.run("provision", &id, &[]).code, Some(0));
    let odd = s3.bucket(&id).join("odd\u{1}name");
    fs::write(&odd, "x").unwrap();
    fs::write(s3.bucket(&id).join("plain"), "x").unwrap();
    let ended = s3.desk.run("delete", &id, &[]);
    assert!(ended.code == Some(75) && ended.last_words.contains("by hand"), "{ended:?}");
    assert!(ended.last_words.contains(&format!("flex-{id}")), "{ended:?}");
    // As the message says.
    fs::remove_file(odd).unwrap();
    assert_eq!(s3.desk.run("delete", &id, &[]).code, Some(0));
    assert!(!s3.bucket(&id).exists());
}

/// Answers requests like a server that encodes names, with the objects that are left. Returns its address, and each
/// request for an object.
fn encoding_server(mut objects: Vec<&'static str>) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut request = [0; 65536];
            let length = connection.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let line = request.lines().next().unwrap_or_default().to_owned();
            let (code, body) = match line.split(' ').next().unwrap() {
                "GET" if line.contains("encoding-type=url") => {
                    let keys: String = objects.iter().map(|key| format!("<Key>{key}</Key>")).collect();
                    (200, format!("<ListBucketResult><EncodingType>url</EncodingType>{keys}</ListBucketResult>"))
                }
                "DELETE" if line.matches('/').count() > 2 => {
                    let key = line.splitn(3, '/').nth(2).unwrap().trim_end_matches(" HTTP/1.1");
                    objects.retain(|object| object.replace('+', "%20") != key);
                    (204, String::new())
                }
                _ => (204, String::new()),
            };
            sender.send(line).unwrap_or_default();
            let length = body.len();
            let head = format!("HTTP/1.1 {code} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            let _ = connection.write_all((head + &body).as_bytes());
        }
    });
    (endpoint, requests)
}

#[test]
fn an_object_with_any_name_is_deleted_by_its_address() {
    let s3 = S3::new();
    let (endpoint, requests) = encoding_server(vec!["a%01+b*", "%C3%A4/x"]);
    let ended = s3.desk.run("delete", &id(1), &[("S3_ENDPOINT", endpoint.as_str())]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let deleted: Vec<String> = requests.try_iter().filter(|line| line.starts_with("DELETE")).collect();
    let bucket = format!("flex-{}", id(1));
    let expected = [format!("/{bucket}/a%01%20b*"), format!("/{bucket}/%C3%A4/x"), format!("/{bucket}")];
    assert_eq!(deleted, expected.map(|path| format!("DELETE {path} HTTP/1.1")));
    // A proxy on the way would take this for an object of another bucket.
    let (endpoint, requests) = encoding_server(vec!["../flex-of-others/file%01"]);
    let ended = s3.desk.run("delete", &id(1), &[("S3_ENDPOINT", endpoint.as_str())]);
    assert!(ended.code == Some(75) && ended.last_words.contains("by hand"), "{ended:?}");
    assert_eq!(requests.try_iter().filter(|line| line.starts_with("DELETE")).count(), 0);
}

#[test]
fn only_buckets_of_this_class_are_listed() {
    let s3 = S3::new();
    let list = |class| {
        let ended = s3.desk.run("list", &id(1), &[("CLAIM_UUID", ""), ("STORAGE_CLASS", class)]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let entries = flex_contract::listing::read(&ended.output).unwrap();
        entries.into_iter().map(|entry| entry.id).collect::<Vec<_>>()
    };
    assert_eq!(s3.desk.run("provision", &id(1), &[("STORAGE_CLASS", "mine")]).code, Some(0));
    assert_eq!(s3.desk.run("provision", &id(2), &[("STORAGE_CLASS", "other")]).code, Some(0));
    // Somebody made these by hand.
    for name in [id(3), "c0ffee".into(), "-".repeat(36)] {
        fs::create_dir(s3.bucket(&name)).unwrap();
    }
    assert_eq!((list("mine"), list("other")), (vec![id(1)], vec![id(2)]));
}

/// The driver mounts as root. Pods of other users write, too, also files of each other.
#[test]
fn pods_of_all_users_may_write() {
    let s3 = S3::new();
    assert_eq!(s3.desk.run("provision", &id(1), &[]).code, Some(0));
    let options = s3.desk.volume(&id(1))["spec"]["mountOptions"].to_string();
    for option in ["allow-other", "file-mode=0666", "dir-mode=0777"] {
        assert!(options.contains(option), "{options}");
    }
}

#[test]
fn a_bucket_becomes_a_static_volume_of_the_csi_driver() {
    let s3 = S3::new();
    let id = id(1);
    assert_eq!(s3.desk.run("provision", &id, &[]).code, Some(0));
    let bucket = format!("flex-{id}");
    let expected = serde_json::json!({
        "driver": "s3.csi.aws.com", "volumeHandle": bucket, "volumeAttributes": { "bucketName": bucket },
    });
    let mut csi = s3.desk.volume(&id)["spec"]["csi"].clone();
    csi.as_object_mut().unwrap().retain(|key, _| expected.get(key).is_some());
    assert_eq!(csi, expected);
}

#[test]
fn a_server_that_refuses_or_is_away_is_named_and_the_key_is_not() {
    let s3 = S3::new();
    let id = id(1);
    assert_eq!(s3.desk.run("provision", &id, &[]).code, Some(0));
    for (operation, code) in [("provision", 78), ("delete", 75), ("list", 75)] {
        let ended = s3.desk.run(operation, &id, &[("AWS_SECRET_ACCESS_KEY", "another-key")]);
        assert!(ended.code == Some(code) && ended.last_words.contains("SignatureDoesNotMatch"), "{ended:?}");
        let ended = s3.desk.run(operation, &id, &[("S3_ENDPOINT", "http://127.0.0.1:1")]);
        assert!(ended.code == Some(75) && ended.last_words.contains("http://127.0.0.1:1"), "{ended:?}");
        assert!(!ended.output.contains(KEY[1].1) && !ended.last_words.contains(KEY[1].1), "{ended:?}");
    }
    assert!(s3.bucket(&id).is_dir());
}

/// A delete run starts without its Secret, too.
#[test]
fn a_missing_secret_is_named() {
    let s3 = S3::new();
    let id = id(1);
    assert_eq!(s3.desk.run("provision", &id, &[]).code, Some(0));
    for operation in ["provision", "delete", "list"] {
        for (name, _) in KEY {
            let ended = s3.desk.run(operation, &id, &[(name, "")]);
            let words = format!("the Secret s3-bucket is not there, or lacks {} or {}", KEY[0].0, KEY[1].0);
            assert_eq!((ended.code, ended.last_words.trim()), (Some(75), words.as_str()), "{operation}: {ended:?}");
        }
    }
    assert!(s3.bucket(&id).is_dir());
}

#[test]
fn a_server_that_knows_nothing_of_buckets_has_not_deleted_one() {
    let s3 = S3::new();
    let wrong = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", wrong.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in wrong.incoming() {
            let mut connection = connection.unwrap();
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    for operation in ["delete", "list"] {
        let ended = s3.desk.run(operation, &id(1), &[("S3_ENDPOINT", endpoint.as_str())]);
        assert!(ended.code == Some(75) && ended.last_words.contains("404"), "{operation}: {ended:?}");
    }
}

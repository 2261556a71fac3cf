//! Directories of this machine in place of paths of the node, as a person names them: pure functions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use k8s_openapi::api::batch::v1::Job;

/// A directory of this machine in place of a path of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnNode {
    /// The path of the node.
    pub path: String,
    /// The directory of this machine.
    pub directory: PathBuf,
}

impl OnNode {
    /// Reads PATH=DIRECTORY.
    ///
    /// # Errors
    /// If the text has not this form, or PATH is no plain absolute path.
    pub fn parse(text: &str) -> Result<Self, String> {
        let pair = text.split_once('=').filter(|(path, directory)| !path.is_empty() && !directory.is_empty());
        let Some((path, directory)) = pair else {
            return Err("write PATH=DIRECTORY: a path of the node that the config mounts, and the directory of this machine in its place, such as /dev=/dev".into());
        };
        if !path.starts_with('/') || path.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(format!("the path of the node must be absolute, without `.` and `..`: {path} is not"));
        }
        Ok(OnNode { path: normal(path), directory: directory.into() })
    }

    /// Returns where a path of the node is on this machine, if it is in the directory.
    fn place(&self, path: &str) -> Option<PathBuf> {
        let rest = Path::new(path).strip_prefix(&self.path).ok()?;
        Some(if rest.as_os_str().is_empty() { self.directory.clone() } else { self.directory.join(rest) })
    }
}

/// Returns the directory in which a path of the node is, and its place there. The longest path of the node counts.
pub fn place<'a>(all: &'a [OnNode], path: &str) -> Option<(&'a OnNode, PathBuf)> {
    let found = all.iter().filter_map(|one| Some((one, one.place(path)?)));
    found.max_by_key(|(one, _)| one.path.len())
}

/// Returns the paths of the node that the pod of a Job mounts.
pub fn host_paths(job: &Job) -> BTreeSet<String> {
    let spec = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let volumes = spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| volume.host_path.as_ref()).map(|on_node| normal(&on_node.path)).collect()
}

fn normal(path: &str) -> String {
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() { "/".to_owned() } else { trimmed.to_owned() }
}

/// Checks that each path is one that the pods of a config mount, and has one directory.
///
/// # Errors
/// The text says which path is wrong, and which paths are possible.
pub fn check(all: &[OnNode], mounted: &BTreeSet<String>) -> Result<(), String> {
    for (n, OnNode { path, directory }) in all.iter().enumerate() {
        let at = format!("--on-node {path}={}", directory.display());
        if all[..n].iter().any(|other| other.path == *path) {
            return Err(format!("{at}: the path {path} has a directory already: name each path of the node once"));
        }
        if mounted.contains(path) {
            continue;
        }
        let known: Vec<&str> = mounted.iter().map(String::as_str).collect();
        return Err(match known.is_empty() {
            true => format!(
                "{at}: the config mounts no path of the node: leave the flag out, or mount {path} with a hostPath volume in `pod-template`"
            ),
            false => format!(
                "{at}: the config does not mount the path {path} of the node: name one that it mounts: {}",
                known.join(", ")
            ),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn on_node(path: &str, directory: &str) -> OnNode {
        OnNode { path: path.into(), directory: directory.into() }
    }

    #[test]
    fn a_flag_is_read_or_its_error_says_what_to_write() {
        for (text, expected) in [
            ("/dev=/dev", Ok(on_node("/dev", "/dev"))),
            ("/var/lib/driver/=run", Ok(on_node("/var/lib/driver", "run"))),
            ("/=/srv/a=b", Ok(on_node("/", "/srv/a=b"))),
            ("/dev", Err("write PATH=DIRECTORY")),
            ("=/dev", Err("write PATH=DIRECTORY")),
            ("/dev=", Err("write PATH=DIRECTORY")),
            ("dev=/dev", Err("must be absolute")),
            ("/a/../dev=/dev", Err("without `.` and `..`")),
        ] {
            match (OnNode::parse(text), expected) {
                (Ok(read), Ok(expected)) => assert_eq!(read, expected, "{text}"),
                (Err(why), Err(words)) => assert!(why.contains(words), "{text}: {why}"),
                (read, _) => panic!("{text}: {read:?}"),
            }
        }
    }

    #[test]
    fn a_path_of_the_node_is_in_the_directory_of_the_longest_path_above_it() {
        let all = [on_node("/srv", "/a"), on_node("/srv/fast", "/b")];
        for (path, expected) in [
            ("/srv", Some("/a")),
            ("/srv/x/y", Some("/a/x/y")),
            ("/srv/fast", Some("/b")),
            ("/srv/fast/x", Some("/b/x")),
            ("/srv/faster", Some("/a/faster")),
            ("/srv2", None),
            ("/", None),
        ] {
            assert_eq!(place(&all, path).map(|(_, at)| at), expected.map(PathBuf::from), "{path}");
        }
        assert_eq!(place(&[on_node("/", "/a")], "/dev").map(|(_, at)| at), Some("/a/dev".into()));
    }

    #[test]
    fn only_paths_that_the_pod_mounts_can_have_a_directory() {
        let volumes = json!([
            { "name": "a", "hostPath": { "path": "/srv/fast/" } },
            { "name": "b", "hostPath": { "path": "/dev" } },
            { "name": "c", "emptyDir": {} },
        ]);
        let job = |volumes| {
            let job = json!({ "spec": { "template": { "spec": { "containers": [], "volumes": volumes } } } });
            serde_json::from_value::<Job>(job).unwrap()
        };
        let mounted = host_paths(&job(volumes));
        assert_eq!(mounted.iter().map(String::as_str).collect::<Vec<_>>(), ["/dev", "/srv/fast"]);
        let none = host_paths(&job(json!([])));
        for (all, mounted, expected) in [
            (vec![on_node("/dev", "/d"), on_node("/srv/fast", "/s")], &mounted, None),
            (vec![], &none, None),
            (vec![on_node("/srv", "/s")], &mounted, Some("name one that it mounts: /dev, /srv/fast")),
            (vec![on_node("/dev", "/d"), on_node("/dev", "/e")], &mounted, Some("name each path of the node once")),
            (vec![on_node("/dev", "/d")], &none, Some("a hostPath volume in `pod-template`")),
        ] {
            let found = check(&all, mounted);
            match expected {
                None => assert_eq!(found, Ok(()), "{all:?}"),
                Some(words) => {
                    let why = found.expect_err(words);
                    assert!(why.contains(words) && why.starts_with("--on-node "), "{why}");
                }
            }
        }
    }
}

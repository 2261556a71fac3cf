//! The requests to the API server by client, counted in its audit log.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The orchestrator's user at an API server, where it is a process of this machine.
pub const ORCHESTRATOR: &str = "orchestrator";
/// The user of a simulated image.
pub const IMAGE: &str = "image";
/// The user of a simulated node.
pub const NODE: &str = "node";

/// A client of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// The orchestrator.
    Orchestrator,
    /// The images' runs.
    Image,
    /// The controller manager, with any of its accounts.
    ControllerManager,
    /// The scheduler.
    Scheduler,
    /// The kubelet.
    Kubelet,
    /// All other clients: the benchmark itself, and the API server's own clients.
    Other,
}

impl Who {
    /// All clients, in the order of the tables.
    pub const ALL: [Who; 6] =
        [Who::Orchestrator, Who::Image, Who::ControllerManager, Who::Scheduler, Who::Kubelet, Who::Other];

    /// Returns the client's name in tables.
    pub fn describe(self) -> &'static str {
        match self {
            Who::Orchestrator => "orchestrator",
            Who::Image => "image",
            Who::ControllerManager => "controller manager",
            Who::Scheduler => "scheduler",
            Who::Kubelet => "kubelet",
            Who::Other => "others",
        }
    }

    /// Returns the client by the name of its user.
    fn of(user: &str) -> Who {
        match user {
            ORCHESTRATOR | "system:serviceaccount:flex-provisioner:flex-provisioner" => Who::Orchestrator,
            "system:kube-controller-manager" => Who::ControllerManager,
            "system:kube-scheduler" => Who::Scheduler,
            IMAGE => Who::Image,
            NODE => Who::Kubelet,
            user if user.starts_with("system:serviceaccount:flex-provisioner:") => Who::Image,
            user if user.starts_with("system:serviceaccount:kube-system:") => Who::ControllerManager,
            user if user.starts_with("system:node:") => Who::Kubelet,
            _ => Who::Other,
        }
    }
}

/// The number of requests by client and kind: a verb and a resource, such as `patch persistentvolumeclaims/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked(BTreeMap<Who, BTreeMap<String, usize>>);

/// The mean requests of one client for one claim.
#[derive(Clone, Debug, Serialize)]
pub struct Each {
    /// The client.
    pub who: Who,
    /// The number of all requests.
    pub requests: f64,
    /// The number of writes.
    pub writes: f64,
    /// By verb and resource, the most frequent first.
    pub of: Vec<(String, f64)>,
}

impl Asked {
    /// Returns the requests for one of this many claims; clients without requests are left out.
    pub fn each(&self, count: usize) -> Vec<Each> {
        let mean = |number: usize| (number as f64 / count as f64 * 100.0).round() / 100.0;
        let mut all = Vec::new();
        for (who, asked) in &self.0 {
            let writes = asked.iter().filter(|(what, _)| writes(what)).map(|(_, number)| number).sum();
            let mut of: Vec<_> = asked.iter().map(|(what, number)| (what.clone(), mean(*number))).collect();
            of.sort_by(|a, b| b.1.total_cmp(&a.1));
            // A kind with one request in a burst of many says nothing about a claim.
            of.retain(|(_, number)| *number > 0.0);
            all.push(Each { who: *who, requests: mean(asked.values().sum()), writes: mean(writes), of });
        }
        all
    }

    /// Returns the number of writes by all clients but the benchmark itself.
    pub fn writes(&self) -> usize {
        let own = self.0.iter().filter(|(who, _)| **who != Who::Other).flat_map(|(_, asked)| asked);
        own.filter(|(what, _)| writes(what)).map(|(_, number)| number).sum()
    }
}

fn writes(what: &str) -> bool {
    let verb = what.split(' ').next().unwrap_or_default();
    ["create", "update", "patch", "delete", "deletecollection"].contains(&verb)
}

/// Returns the requests of one client, of those counted for one claim.
pub fn of(each: &[Each], who: Who) -> f64 {
    each.iter().find(|each| each.who == who).map_or(0.0, |each| each.requests)
}

/// The audit log of an API server.
#[derive(Clone, Debug)]
pub struct Audit {
    log: PathBuf,
}

/// A position in the log.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    file: u64,
    offset: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    stage: String,
    verb: String,
    user: User,
    impersonated_user: Option<User>,
    object_ref: Option<Object>,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
}

impl Audit {
    /// Opens the audit log in this file.
    pub fn of(log: PathBuf) -> Self {
        Audit { log }
    }

    /// Returns the present end of the log.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn mark(&self) -> Result<Mark> {
        let file = fs::metadata(&self.log).with_context(|| format!("read the size of {}", self.log.display()))?;
        Ok(Mark { file: file.ino(), offset: file.len() })
    }

    /// Adds the requests since the mark. Leases are left out: their renewal follows the clock, not the work.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn since(&self, mark: Mark, asked: &mut Asked) -> Result<()> {
        let mut begun = false;
        for path in self.files()? {
            let mut file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
            let is_marked = file.metadata()?.ino() == mark.file;
            begun |= is_marked;
            if begun {
                file.seek(SeekFrom::Start(if is_marked { mark.offset } else { 0 }))?;
                asked.read(BufReader::with_capacity(1 << 20, file), &path)?;
            }
        }
        Ok(())
    }

    /// Lists the files of the log. A large log is rotated: its name then contains the time, so that names have the
    /// order of time.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let directory = self.log.parent().context("the audit log is in a directory")?;
        let begin = self.log.file_stem().context("the audit log has a name")?.to_string_lossy().into_owned();
        let mut files = Vec::new();
        for entry in fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin)) {
                files.push(path);
            }
        }
        // `audit-TIME.log` sorts before `audit.log` as text; a path compares its parts in the same way.
        files.sort();
        Ok(files)
    }
}

impl Asked {
    fn read(&mut self, lines: impl BufRead, path: &Path) -> Result<()> {
        for line in lines.lines() {
            let line = line.with_context(|| format!("read {}", path.display()))?;
            // An unfinished line does not belong to the requests that have ended.
            let Ok(entry) = serde_json::from_str::<Entry>(&line) else { continue };
            let object = entry.object_ref.unwrap_or(Object { resource: String::new(), subresource: String::new() });
            if entry.stage != "ResponseComplete" || object.resource == "leases" {
                continue;
            }
            let user = entry.impersonated_user.unwrap_or(entry.user).username;
            let slash = if object.subresource.is_empty() { "" } else { "/" };
            // Paths such as that of a health check are no resources.
            let resource = if object.resource.is_empty() { "other paths" } else { &object.resource };
            let what = format!("{} {resource}{slash}{}", entry.verb, object.subresource);
            *self.0.entry(Who::of(&user)).or_default().entry(what).or_default() += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(user: &str, verb: &str, resource: &str, stage: &str) -> String {
        let object = serde_json::json!({ "resource": resource, "subresource": "status" });
        let entry =
            serde_json::json!({ "stage": stage, "verb": verb, "user": { "username": user }, "objectRef": object });
        format!("{entry}\n")
    }

    #[test]
    fn requests_are_counted_from_a_mark_also_when_the_log_is_rotated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let write = |text: String| {
            let mut file = File::options().create(true).append(true).open(&path).unwrap();
            std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        };
        let pod = "system:serviceaccount:flex-provisioner:flex-provisioner";
        write(line(pod, "patch", "persistentvolumes", "ResponseComplete"));
        let audit = Audit::of(path.clone());
        let mark = audit.mark().unwrap();
        write(line(pod, "patch", "persistentvolumes", "ResponseComplete"));
        write(line(pod, "update", "leases", "ResponseComplete"));
        write(line(pod, "watch", "pods", "ResponseStarted"));
        fs::rename(&path, directory.path().join("audit-2026-11-22T23-57-00.000.log")).unwrap();
        write(line(pod, "get", "pods", "ResponseComplete"));
        write(line("system:serviceaccount:kube-system:job-controller", "create", "pods", "ResponseComplete"));
        let mut asked = Asked::default();
        audit.since(mark, &mut asked).unwrap();
        let each = asked.each(1);
        assert_eq!((of(&each, Who::Orchestrator), of(&each, Who::ControllerManager)), (2.0, 1.0));
        assert_eq!((each[0].writes, asked.writes()), (1.0, 2));
        assert_eq!(
            asked.each(2)[0].of,
            [("get pods/status".into(), 0.5), ("patch persistentvolumes/status".into(), 0.5)]
        );
    }
}

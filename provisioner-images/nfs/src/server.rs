//! The calls to the NFS server that this image needs. Paths are relative to the export.

use std::time::Duration;

use flex_image_kit::Failure;
use futures::TryStreamExt;
use nfs_rs::{Mount, NfsError, ReaddirplusEntry};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::parameters::Parameters;
use crate::record::{FOLDER, of_path, of_volume, split};
use crate::trouble::{self, Kind, kind};

/// The time for the server's first answer, on one connection and then on another. A waiting pod uses resources of its
/// node. A busy nfs-ganesha sometimes overlooks a request on a connection, and that connection stays silent.
const ANSWER_TIMEOUTS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(10)];

/// The kind of a directory, by the number that both protocol versions use.
const DIRECTORY: u32 = 2;

/// All characters that are encoded in a path. Letters, slashes and frequent characters of names are not.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');

/// Returns the server's answer to a mount request, if there is one.
async fn answer(url: &str) -> Option<nfs_rs::Result<Box<dyn Mount>>> {
    for patience in ANSWER_TIMEOUTS {
        if let Ok(answer) = tokio::time::timeout(patience, nfs_rs::parse_url_and_mount(url)).await {
            return Some(answer);
        }
    }
    None
}

/// A connection to an export.
pub struct Server {
    mount: Box<dyn Mount>,
    at: String,
}

impl Server {
    /// Connects, with the protocol versions in the order of preference.
    pub async fn connect(parameters: &Parameters) -> Result<Self, Failure> {
        let at = parameters.location();
        let mut problem = None;
        for version in parameters.versions {
            let url = url(parameters, version);
            match answer(&url).await {
                Some(Ok(mount)) => return Ok(Self { mount, at }),
                Some(Err(error)) => {
                    let other_version_may_do = trouble::is_of_version(&error);
                    problem = Some(trouble::unreachable(&at, &error));
                    if !other_version_may_do {
                        break;
                    }
                }
                None => return Err(no_answer(&at)),
            }
        }
        Err(problem.unwrap_or_else(|| Failure::config(format!("{at}: no protocol version to speak"))))
    }

    /// Connects with one version of the protocol, if the server speaks it. A server that is busy or away is a failure: with
    /// another version, the run could do less than the server can.
    pub async fn connect_with(parameters: &Parameters, version: &str) -> Result<Option<Self>, Failure> {
        let at = parameters.location();
        match answer(&url(parameters, version)).await {
            Some(Ok(mount)) => Ok(Some(Self { mount, at })),
            Some(Err(error)) if trouble::refuses_version(&error) => {
                eprintln!("{at} does not speak NFSv{version} with this image: {error}");
                Ok(None)
            }
            Some(Err(error)) => Err(trouble::unreachable(&at, &error)),
            None => Err(no_answer(&at)),
        }
    }

    /// Ends the session with the server. A failure does not matter, because the work is done.
    pub async fn leave(self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), self.mount.umount()).await;
    }

    /// Returns the connection itself, for the removal of trees.
    pub fn mount(&self) -> &dyn Mount {
        self.mount.as_ref()
    }

    /// Makes the failure of an operation on this server.
    pub fn failure(&self, what: &str, error: &NfsError) -> Failure {
        trouble::failure(what, &self.at, error)
    }

    /// Checks whether a directory exists at the path; a file or link in its place is an error.
    pub async fn has_directory(&self, path: &str) -> Result<bool, Failure> {
        let attributes = match self.mount.getattr_path(path).await {
            Ok(attributes) => attributes,
            Err(error) if kind(&error) == Kind::Missing => return Ok(false),
            Err(error) => return Err(self.failure(&format!("cannot look at {path}"), &error)),
        };
        if attributes.type_ == DIRECTORY {
            return Ok(true);
        }
        Err(Failure::never(format!("{}/{path} is not a directory: nothing is done", self.at)))
    }

    /// Returns the failure of a run that does not find what the export must have. The image never removes the folder of the
    /// records. So an export without it is not the one that had them.
    pub async fn missing(&self, failure: Failure) -> Failure {
        match self.has(FOLDER).await {
            Ok(true) => failure,
            Ok(false) => self.not_mounted(),
            Err(unknown) => unknown,
        }
    }

    /// Returns the failure of an export without the folder of the records.
    pub fn not_mounted(&self) -> Failure {
        Failure::retry(format!(
            "{} has no folder {FOLDER}: perhaps its file system is not mounted on the server; nothing is done; mount it, or \
             restore the folder from a backup",
            self.at
        ))
    }

    /// Checks whether anything exists at the path.
    pub async fn has(&self, path: &str) -> Result<bool, Failure> {
        match self.mount.getattr_path(path).await {
            Ok(_) => Ok(true),
            Err(error) if kind(&error) == Kind::Missing => Ok(false),
            Err(error) => Err(self.failure(&format!("cannot look at {path}"), &error)),
        }
    }

    /// Returns the names in a directory; none if it does not exist.
    pub async fn names_in(&self, path: &str) -> Result<Vec<String>, Failure> {
        let names = async {
            let folder = self.mount.lookup_path(path).await?;
            self.mount.readdir(folder.fh).await.map_ok(|entry| entry.file_name).try_collect().await
        };
        match names.await {
            Ok(names) => Ok(names),
            Err(error) if kind(&error) == Kind::Missing => Ok(Vec::new()),
            Err(error) => Err(self.failure(&format!("cannot list {path}"), &error)),
        }
    }

    /// Returns the names in a directory, with the seconds of their modification times; none if the directory does not exist.
    pub async fn times_in(&self, path: &str) -> Result<Vec<(String, u32)>, Failure> {
        let times = async {
            let folder = self.mount.lookup_path(path).await?;
            let entries: Vec<ReaddirplusEntry> = self.mount.readdirplus(folder.fh).await.try_collect().await?;
            Ok(entries.into_iter().filter_map(|entry| Some((entry.file_name, entry.attr?.mtime.seconds))).collect())
        };
        match times.await {
            Ok(times) => Ok(times),
            Err(error) if kind(&error) == Kind::Missing => Ok(Vec::new()),
            Err(error) => Err(self.failure(&format!("cannot list {path}"), &error)),
        }
    }

    /// Returns the free bytes of the export's file system.
    pub async fn free(&self) -> Result<u64, Failure> {
        let space = self.mount.fsstat().await.map_err(|error| self.failure("cannot tell the free space", &error))?;
        Ok(space.abytes)
    }

    /// Returns the number of the export's file system on its server.
    pub async fn file_system(&self) -> Result<u64, Failure> {
        let root = async {
            let root = self.mount.lookup_path("").await?;
            self.mount.getattr(root.fh).await
        };
        root.await.map(|attributes| attributes.fsid).map_err(|error| self.failure("cannot look at the export", &error))
    }

    /// Makes a directory and its parents. Returns true if it did not exist before.
    pub async fn make_directory(&self, path: &str, mode: u32) -> Result<bool, Failure> {
        for (end, _) in path.match_indices('/') {
            self.make_one(&path[..end], 0o755).await?;
        }
        self.make_one(path, mode).await
    }

    async fn make_one(&self, path: &str, mode: u32) -> Result<bool, Failure> {
        match self.mount.mkdir_path(path, mode).await {
            Ok(_) => Ok(true),
            Err(error) if kind(&error) == Kind::Exists => Ok(false),
            Err(error) => Err(self.failure(&format!("cannot make the directory {path}"), &error)),
        }
    }

    /// Makes a directory in one that must exist.
    pub async fn make_inside(&self, path: &str, mode: u32) -> Result<(), Failure> {
        self.make_one(path, mode).await.map(drop)
    }

    /// Removes a directory if it is empty. Returns false if it is not.
    pub async fn remove_empty(&self, path: &str) -> Result<bool, Failure> {
        match self.mount.rmdir_path(path).await {
            Ok(()) => Ok(true),
            Err(error) => match kind(&error) {
                Kind::Missing => Ok(true),
                Kind::NotEmpty => Ok(false),
                _ => Err(self.failure(&format!("cannot remove the directory {path}"), &error)),
            },
        }
    }

    /// Sets mode and owner, whatever the umask and the server's defaults are.
    pub async fn set(&self, path: &str, mode: u32, owner: Option<u32>, group: Option<u32>) -> Result<(), Failure> {
        let set = self.mount.setattr_path(path, false, Some(mode), owner, group, None, None, None).await;
        set.map(|_| ()).map_err(|error| self.failure(&format!("cannot set mode and owner of {path}"), &error))
    }

    /// Makes a record with a text, and its folder if that is missing. Returns false if the record exists.
    pub async fn make_record(&self, path: &str, text: &str) -> Result<bool, Failure> {
        let mut folder_made = false;
        loop {
            match (self.mount.symlink_path(text, path).await, folder_made) {
                (Ok(_), _) => return Ok(true),
                (Err(error), _) if kind(&error) == Kind::Exists => return Ok(false),
                (Err(error), false) if kind(&error) == Kind::Missing => {
                    for folder in [FOLDER, split(path).folder] {
                        self.make_one(folder, 0o700).await?;
                    }
                    folder_made = true;
                }
                (Err(error), _) => return Err(self.failure(&format!("cannot make the record {path}"), &error)),
            }
        }
    }

    /// Reads the text of a record; `None` if there is none.
    pub async fn read_record(&self, path: &str) -> Result<Option<String>, Failure> {
        match self.mount.readlink_path(path).await {
            Ok(text) => Ok(Some(text)),
            Err(error) if kind(&error) == Kind::Missing => Ok(None),
            Err(error) => Err(self.failure(&format!("cannot read the record {path}"), &error)),
        }
    }

    /// Checks whether the records give a path to a volume.
    pub async fn is_recorded(&self, path: &str, id: &str) -> Result<bool, Failure> {
        let has_place = self.read_record(&of_volume(id)).await?.is_some_and(|recorded| recorded == path);
        Ok(has_place && self.read_record(&of_path(path)).await?.is_some_and(|owner| owner == id))
    }

    /// Makes a record with a text, in place of one with another text.
    pub async fn replace_record(&self, path: &str, text: &str) -> Result<(), Failure> {
        if self.make_record(path, text).await? || self.read_record(path).await?.is_some_and(|present| present == text) {
            return Ok(());
        }
        self.remove_record(path).await?;
        self.make_record(path, text).await.map(drop)
    }

    /// Removes a record; a missing one is no error.
    pub async fn remove_record(&self, path: &str) -> Result<(), Failure> {
        match self.mount.remove_path(path).await {
            Err(error) if kind(&error) != Kind::Missing => {
                Err(self.failure(&format!("cannot remove the record {path}"), &error))
            }
            _ => Ok(()),
        }
    }

    /// Removes a record with this text, and no other one; a missing one is no error.
    ///
    /// A run that wakes up late may find a record of the same name that another run has made meanwhile. So the run renames
    /// the record, looks at it, and puts it back if it has another text.
    pub async fn remove_record_of(&self, path: &str, text: &str) -> Result<(), Failure> {
        let aside = crate::record::of_release(text);
        if self.read_record(path).await?.is_some_and(|found| found == text) {
            self.rename(path, &aside).await?;
        }
        // A run that died may have left it.
        match self.read_record(&aside).await? {
            None => return Ok(()),
            Some(found) if found == text => {}
            Some(other) => drop(self.make_record(path, &other).await?),
        }
        self.remove_record(&aside).await
    }

    /// Returns the handle of a file or directory, which no other one ever has; `None` if it does not exist.
    pub async fn handle(&self, path: &str) -> Result<Option<Vec<u8>>, Failure> {
        match self.mount.lookup_path(path).await {
            Ok(found) => Ok(Some(found.fh.to_vec())),
            Err(error) if kind(&error) == Kind::Missing => Ok(None),
            Err(error) => Err(self.failure(&format!("cannot look at {path}"), &error)),
        }
    }

    /// Renames a file or directory. Returns false if there was nothing to rename.
    pub async fn rename(&self, from: &str, to: &str) -> Result<bool, Failure> {
        match self.mount.rename_path(from, to).await {
            Ok(()) => Ok(true),
            Err(error) if kind(&error) == Kind::Missing => Ok(false),
            Err(error) => Err(self.failure(&format!("cannot rename {from} to {to}"), &error)),
        }
    }
}

fn no_answer(at: &str) -> Failure {
    let waited: Duration = ANSWER_TIMEOUTS.iter().sum();
    Failure::retry(format!("{at} gave no answer within {} s", waited.as_secs()))
}

/// Returns the export in the form that nfs-rs expects.
fn url(parameters: &Parameters, version: &str) -> String {
    let Parameters { server, export, port, mount_port, reserved_port, client_user, client_group, .. } = parameters;
    let host = if server.contains(':') { format!("[{server}]") } else { server.clone() };
    let path = if export.is_empty() { "/".into() } else { utf8_percent_encode(export, PATH).to_string() };
    let mut url = format!(
        "nfs://{host}{path}?version={version}&noresvport={}&uid={client_user}&gid={client_group}",
        !reserved_port
    );
    for (name, port) in [("nfsport", port), ("mountport", mount_port)] {
        if let Some(port) = port {
            url.push_str(&format!("&{name}={port}"));
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_parameter_is_read_as_an_option() {
        let parameters = Parameters::from_env(|name| match name {
            "SERVER" => Some("fd00::1".into()),
            "EXPORT" => Some("/a b?version=3&x#y%2f".into()),
            "PORT" => Some("22049".into()),
            _ => None,
        })
        .unwrap()
        .remove(0);
        assert_eq!(
            url(&parameters, "4.1"),
            "nfs://[fd00::1]/a%20b%3Fversion%3D3%26x%23y%252f?version=4.1&noresvport=true&uid=0&gid=0&nfsport=22049"
        );
    }
}

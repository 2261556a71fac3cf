//! The address of Cinder and the login: read in one of three formats, then checked. All problems are reported at once.

pub mod access;
mod check;
mod env;
mod file;
mod raw;
mod url;
mod yaml;

use std::path::{Path, PathBuf};

use flex_image_kit::Failure;

pub use access::{Access, Cloud, Credential, Domain, Identity, Keystone, Named};
use raw::Raw;
pub use url::with_version;

/// The names of files that are looked for in the Secrets of `secret-volume`.
const FILES: [&str; 4] = ["cloud.conf", "cloud-config", "clouds.yaml", "clouds.yml"];

/// The parameters and variables that name the file with the cloud, or else the cloud in the file.
const FILE: [&str; 2] = ["CLOUD_CONFIG", "OS_CLIENT_CONFIG_FILE"];
const CLOUD: [&str; 2] = ["CLOUD", "OS_CLOUD"];

/// The keys of all formats.
const FORMATS: [&[(&str, raw::Key)]; 3] = [file::SPELLINGS, env::SPELLINGS, yaml::SPELLINGS];

/// Returns the variables that can say where Cinder is. A parameter can set each of them.
pub fn variables() -> impl Iterator<Item = &'static str> {
    FILE.into_iter().chain(CLOUD).chain(env::SPELLINGS.iter().map(|(name, _)| *name))
}

/// Reads the cloud. The source is the file that the parameter `cloud-config` names, or else the only one in the
/// Secrets, or else the environment. One source counts as a whole: settings of several sources are not combined. `names`
/// has the names of all variables. A name that resembles a key is noted in the log.
///
/// # Errors
/// If something is missing or wrong. The message has file, key and remedy. The run is repeated soon, because no event
/// reports when a Secret is corrected.
pub fn read(env: impl Fn(&str) -> Option<String>, names: impl Iterator<Item = String>) -> Result<Cloud, Failure> {
    let text = |name: &str| env(name).filter(|value| !value.is_empty());
    let secrets = text(flex_image_kit::secrets::DIRECTORY_VARIABLE)
        .unwrap_or_else(|| flex_contract::names::SECRET_DIR.to_owned());
    let named = FILE.into_iter().find_map(&text);
    let chosen = CLOUD.into_iter().find_map(&text);
    let found = match named {
        Some(file) => Some(PathBuf::from(file)),
        None => only(in_secrets(Path::new(&secrets)))?,
    };
    let raw = match &found {
        None => env::raw(text, names.filter(|name| !FILE.iter().chain(&CLOUD).any(|other| other == name))),
        Some(file) => from_file(file, chosen.as_deref())?,
    };
    raw.notes(&FORMATS).iter().for_each(|note| eprintln!("{note}"));
    if raw.is_empty() {
        return Err(Failure::permission(format!(
            "no cloud is configured: put a Secret with the file cloud.conf or clouds.yaml into `secret-volume`, or one with \
             OS_AUTH_URL (or OS_CINDER_ENDPOINT), OS_USERNAME and so on into `secret-env`; in {} there is no such file{}",
            secrets,
            if found.is_some() { ", and the one that is named has no key that is known" } else { "" }
        )));
    }
    check::check(&raw).map_err(|problems| Failure::permission(problems.join("\n")))
}

fn from_file(file: &Path, chosen: Option<&str>) -> Result<Raw, Failure> {
    let at = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::permission(format!(
            "{at} cannot be read: {error}; `cloud-config` must be the path of a file of a Secret in `secret-volume`, such as \
             /etc/flex-secrets/cinder-cloud/cloud.conf"
        ))
    })?;
    let is_yaml = file.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let raw = if is_yaml { yaml::raw(&text, &at, chosen) } else { file::raw(&text, &at) };
    raw.map_err(Failure::permission)
}

/// Returns all files with known names, one directory deep.
fn in_secrets(directory: &Path) -> Vec<PathBuf> {
    let secrets = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = secrets
        .flat_map(|secret| FILES.iter().map(move |name| secret.path().join(name)))
        .filter(|file| file.is_file())
        .collect();
    files.sort();
    files
}

fn only(mut files: Vec<PathBuf>) -> Result<Option<PathBuf>, Failure> {
    if files.len() > 1 {
        let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        return Err(Failure::config(format!(
            "several files could say where Cinder is: {}; name one of them in the parameter `cloud-config`",
            names.join(", ")
        )));
    }
    Ok(files.pop())
}

#[cfg(test)]
mod tests;

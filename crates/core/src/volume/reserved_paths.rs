//! Paths that configs use for their volumes. A directory that is imported must not overlap with one of them: neither
//! may be inside the other.

use crate::config::effective_config::EffectiveConfig;
use crate::config::input::Config;
use crate::config::{Recipe, keys};
use crate::object::ObjectName;

/// A path that a config uses.
struct Root {
    config: ObjectName,
    key: &'static str,
    path: String,
    /// Volumes of the config may be anywhere below the path.
    is_limit: bool,
}

/// The parameters of the images that name the directories of their volumes.
const BASE_PATH: &str = "base-path";
const NODE_PATHS: &str = "node-paths";
const SERVER: &str = "server";
const EXPORT: &str = "export";
const EXPORTS: &str = "exports";

/// Checks that a directory may be imported for a recipe, beside all configs. Without a server, it is on a node.
///
/// # Errors
/// If the directory contains, equals or lies in a path of a config, other than directly in one of its own. The text is
/// for the admin.
pub fn verify_unreserved<'a>(
    path: &str,
    server: Option<&str>,
    own: &Recipe,
    configs: impl IntoIterator<Item = &'a Config>,
) -> Result<(), String> {
    let roots: Vec<Root> = configs.into_iter().flat_map(|config| roots(config, server)).collect();
    let is_own = |root: &Root| root.config == own.config;
    let is_own_path = |path: &[&str]| roots.iter().any(|root| is_own(root) && parts(&root.path) == path);
    let path_parts = parts(path);
    let folder = path_parts.split_last().map_or(&[][..], |(_, folder)| folder);
    for root in &roots {
        let root_parts = parts(&root.path);
        // Configs may share a directory, whose volumes have names of one kind. The images of an export find their
        // volumes by records, in each folder of it.
        let shares = match server.is_some() {
            true => is_own_path(&root_parts),
            false => folder == root_parts && is_own_path(folder),
        };
        let is_below = path_parts.len() > root_parts.len() && path_parts.starts_with(&root_parts);
        let is_allowed = is_below && (shares || (is_own(root) && root.is_limit));
        if !is_allowed && (path_parts.starts_with(&root_parts) || root_parts.starts_with(&path_parts)) {
            let Root { config, key, path: root, .. } = root;
            return Err(format!(
                "the directory overlaps with `{root}`, where `{key}` of the config {config} has volumes: move it directly into a directory of the config {}",
                own.config
            ));
        }
    }
    Ok(())
}

/// Returns the paths that a config uses on nodes, or on a server.
fn roots(config: &Config, server: Option<&str>) -> Vec<Root> {
    let root = |key: &'static str, path: &str, is_limit| Root {
        config: config.name.clone(),
        key,
        path: path.to_owned(),
        is_limit,
    };
    let value = |key: &str| config.data.get(key).map_or("", |value| value.trim());
    if let Some(server) = server {
        let is_there =
            |other: &str| other.trim_matches(['[', ']']).eq_ignore_ascii_case(server.trim_matches(['[', ']']));
        let one = (!value(EXPORT).is_empty()).then(|| (EXPORT, value(SERVER), value(EXPORT)));
        // Each is SERVER:/PATH.
        let listed = value(EXPORTS).split_whitespace().filter_map(|word| {
            let server = word.split_once(":/")?.0;
            Some((EXPORTS, server, &word[server.len() + 1..]))
        });
        let all = one.into_iter().chain(listed).filter(|(_, server, _)| is_there(server));
        return all.map(|(key, _, path)| root(key, path, false)).collect();
    }
    let data = config.data.clone();
    let recipe = EffectiveConfig { config: config.name.clone(), data, ..EffectiveConfig::default() }.recipe();
    let mut roots = Vec::new();
    if let Ok(recipe) = &recipe {
        roots.extend(recipe.storage_on_nodes().map(|path| root(keys::STORAGE_MOUNTS.name, path, false)));
        let limits = recipe.volume_sources.iter().filter_map(|rule| rule.prefix.as_deref());
        roots.extend(limits.map(|prefix| root(keys::VOLUME_SOURCES.name, prefix, true)));
    }
    for key in [BASE_PATH, NODE_PATHS] {
        let paths = value(key).split_whitespace().filter(|word| word.starts_with('/'));
        roots.extend(paths.map(|path| root(key, path, false)));
    }
    roots
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, data: &[(&str, &str)]) -> Config {
        let usual = [("image", "vendor/image:1")];
        let data = usual.iter().chain(data).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Config { name: ObjectName::new("admin", name), data, ..Config::default() }
    }

    fn verified(path: &str, server: Option<&str>, own: &Config, others: &[&Config]) -> Result<(), String> {
        let effective_config =
            EffectiveConfig { config: own.name.clone(), data: own.data.clone(), ..EffectiveConfig::default() };
        verify_unreserved(
            path,
            server,
            &effective_config.recipe().unwrap(),
            [own].into_iter().chain(others.iter().copied()),
        )
    }

    #[test]
    fn a_directory_is_imported_only_beside_the_volumes_of_all_configs() {
        let own = config("own", &[("volume-sources", "local:/srv"), ("base-path", "/srv/flex /srv/more")]);
        let same = config("same", &[("volume-sources", "local:/srv/flex"), ("base-path", "/srv/flex")]);
        let other =
            config("other", &[("volume-sources", "local:/data"), ("base-path", "/data/a"), (NODE_PATHS, "n /x")]);
        let template = "spec: {containers: [{name: provisioner, volumeMounts: [{name: a, mountPath: /in}]}], volumes: [{name: a, hostPath: {path: /mounted}}]}";
        let mounts = config("mounts", &[("pod-template", template), ("storage-mounts", "/in")]);
        for (path, says) in [
            ("/srv/flex/photos", None),
            ("/srv/more/photos", None),
            ("/srv/flex", Some("base-path")),
            ("/srv/flex/a/b", Some("base-path")),
            ("/srv", Some("volume-sources")),
            ("/data/photos", Some("config admin/other")),
            ("/data/a/photos", Some("config admin/other")),
            ("/x/photos", Some(NODE_PATHS)),
            ("/mounted/photos", Some("storage-mounts")),
            ("/mounted", Some("storage-mounts")),
        ] {
            let verified = verified(path, None, &own, &[&same, &other, &mounts]);
            match says {
                None => assert_eq!(verified, Ok(()), "{path}"),
                Some(says) => assert!(verified.is_err_and(|why| why.contains(says)), "{path}"),
            }
        }
    }

    #[test]
    fn a_directory_of_a_server_is_imported_only_from_the_own_export() {
        let of = |name: &str, server: &str, export: &str| {
            config(name, &[("volume-sources", "nfs"), ("placement", "any"), (SERVER, server), (EXPORT, export)])
        };
        let own = of("own", "nas", "/exports/data");
        let others =
            [of("same", "nas", "/exports/data"), of("inner", "NAS", "/exports/data/inner"), of("far", "x", "/")];
        let several =
            config("several", &[("volume-sources", "nfs"), ("placement", "any"), (EXPORTS, "x:/ Nas:/exports/more")]);
        for (path, is_free) in [("/exports/more/photos", true), ("/exports/more", false), ("/exports/data/a", false)] {
            let verified = verified(path, Some("nas"), &several, &[&own]);
            assert_eq!(verified.is_ok(), is_free, "{path}");
        }
        let others: Vec<&Config> = others.iter().collect();
        for (path, is_free) in [
            ("/exports/data/photos", true),
            ("/exports/data/team/photos", true),
            ("/exports/data", false),
            ("/exports", false),
            ("/exports/data/inner", false),
            ("/exports/data/inner/photos", false),
        ] {
            assert_eq!(verified(path, Some("nas"), &own, &others).is_ok(), is_free, "{path}");
        }
    }
}

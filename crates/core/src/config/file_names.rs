//! The rules of Kubernetes for keys that become the names of files, and for the paths of files in a volume.

use k8s_openapi::api::core::v1::{KeyToPath, Volume};

/// The longest key.
const LONGEST: usize = 253;

/// Returns why a Secret or a ConfigMap cannot have a key.
pub fn key_problem(key: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_key = !key.is_empty() && key.len() <= LONGEST && key.chars().all(legal);
    let is_name = key != "." && !key.starts_with("..");
    (!is_key || !is_name).then(|| {
        format!(
            "cannot be a key of a Secret or a ConfigMap, because a key can become the name of a file; write at most {LONGEST} letters, digits, `-`, `_` and `.`, without `..` at the beginning"
        )
    })
}

/// Returns why a file of a volume cannot have a path.
pub fn path_problem(path: &str) -> Option<String> {
    let leads_out = path.is_empty() || path.starts_with('/') || path.starts_with("..");
    let is_within = !leads_out && path.split('/').all(|part| part != "..") && !path.contains('\0');
    (!is_within).then(|| {
        format!("has a file with the path `{path}`; write a path within the volume, without `/` or `..` at its beginning and without the part `..`")
    })
}

/// Returns the first problem with the paths of a volume's files.
pub fn volume_problem(volume: &Volume) -> Option<String> {
    let of_keys = |items: &Option<Vec<KeyToPath>>| paths(items, |item| &item.path);
    let mut all = Vec::new();
    all.extend(volume.secret.iter().flat_map(|secret| of_keys(&secret.items)));
    all.extend(volume.config_map.iter().flat_map(|map| of_keys(&map.items)));
    all.extend(volume.downward_api.iter().flat_map(|downward| paths(&downward.items, |item| &item.path)));
    let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    for source in sources {
        all.extend(source.secret.iter().flat_map(|secret| of_keys(&secret.items)));
        all.extend(source.config_map.iter().flat_map(|map| of_keys(&map.items)));
        all.extend(source.downward_api.iter().flat_map(|downward| paths(&downward.items, |item| &item.path)));
        all.extend(source.service_account_token.iter().map(|token| token.path.clone()));
        all.extend(source.cluster_trust_bundle.iter().map(|bundle| bundle.path.clone()));
    }
    all.iter().find_map(|path| path_problem(path)).map(|why| format!("its volume `{}` {why}", volume.name))
}

fn paths<T>(items: &Option<Vec<T>>, path: fn(&T) -> &String) -> Vec<String> {
    items.iter().flatten().map(|item| path(item).clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_key_is_a_plain_name() {
        let longest = "a".repeat(LONGEST);
        for good in ["ca.crt", ".hidden", "a..b", "PASS_WORD-1", &longest] {
            assert_eq!(key_problem(good), None, "{good}");
        }
        for bad in ["", ".", "..", "..data", "/etc/x", "../x", "a/b", "a b", "ü", "a\n", &format!("{longest}a")] {
            assert!(key_problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_path_stays_in_its_volume() {
        for good in ["a", "a/b", ".a", "a..b", "a/..b", "a/./b"] {
            assert_eq!(path_problem(good), None, "{good}");
        }
        for bad in ["", "/a", "..", "../a", "..a", "a/../b", "a/..", "a\0"] {
            assert!(path_problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn each_kind_of_file_is_looked_at() {
        let items = |path: &str| json!([{ "key": "k", "path": path }]);
        let downward =
            |path: &str| json!({ "items": [{ "path": path, "fieldRef": { "fieldPath": "metadata.name" } }] });
        let kinds: [fn(&str, Value, Value) -> Value; 8] = [
            |_, items, _| json!({ "secret": { "secretName": "s", "items": items } }),
            |_, items, _| json!({ "configMap": { "name": "m", "items": items } }),
            |_, _, downward| json!({ "downwardAPI": downward }),
            |_, items, _| json!({ "projected": { "sources": [{ "secret": { "name": "s", "items": items } }] } }),
            |_, items, _| json!({ "projected": { "sources": [{ "configMap": { "name": "m", "items": items } }] } }),
            |_, _, downward| json!({ "projected": { "sources": [{ "downwardAPI": downward }] } }),
            |path, _, _| json!({ "projected": { "sources": [{ "serviceAccountToken": { "path": path } }] } }),
            |path, _, _| json!({ "projected": { "sources": [{ "clusterTrustBundle": { "path": path } }] } }),
        ];
        for (n, kind) in kinds.into_iter().enumerate() {
            for (path, is_good) in [("a/b", true), ("/a", false), ("a/../../b", false)] {
                let mut volume = kind(path, items(path), downward(path));
                volume["name"] = "v".into();
                let problem = volume_problem(&serde_json::from_value(volume).unwrap());
                assert_eq!(problem.is_none(), is_good, "{n} {path}");
                let says = problem.is_none_or(|why| why.starts_with("its volume `v` has a file with the path"));
                assert!(says, "{n} {path}");
            }
        }
    }
}

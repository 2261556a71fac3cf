//! Parameters: the keys of a config or class that the orchestrator passes to the image unchanged.

/// Names of environment variables that shells, loaders and the kubelet interpret.
const INTERPRETED: &[&str] = &[
    "PATH",
    "IFS",
    "ENV",
    "BASH_ENV",
    "HOME",
    "PWD",
    "OLDPWD",
    "SHELL",
    "SHELLOPTS",
    "BASHOPTS",
    "PS1",
    "PS2",
    "PS4",
    "CDPATH",
    "GROUPS",
    "UID",
    "EUID",
    "PPID",
    "HOSTNAME",
    "RANDOM",
    "SECONDS",
    "LINENO",
    "OPTARG",
    "OPTIND",
    "LANG",
    "TMPDIR",
    "PROMPT_COMMAND",
    "GLOBIGNORE",
    "FUNCNAME",
    "DIRSTACK",
    "POSIXLY_CORRECT",
    "MAIL",
    "TERM",
];
/// Prefixes of environment variables that shells, loaders and the kubelet interpret.
const INTERPRETED_PREFIXES: &[&str] = &["LD_", "KUBERNETES_", "BASH_", "LC_", "DYLD_", "GLIBC_", "MALLOC_"];

/// The reason why a parameter cannot have a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name has a character that no environment variable or file name can contain.
    #[error("`{name}` cannot be a parameter: {problem}; use letters, digits, `-`, `_` and `.`, for example `{better}`")]
    Malformed {
        /// The name as it was written.
        name: String,
        /// The fault of the name.
        problem: &'static str,
        /// A similar name that can be used.
        better: String,
    },
    /// Shells, loaders or Kubernetes interpret the environment variable of the name.
    #[error(
        "`{name}` would become the environment variable {env}, which shells, loaders or Kubernetes interpret; call it `{better}`"
    )]
    Interpreted {
        /// The name as it was written.
        name: String,
        /// The environment variable of the name.
        env: String,
        /// A similar name that can be used.
        better: String,
    },
    /// The contract uses the environment variable of the name.
    #[error(
        "`{name}` would become the environment variable {env}, which the contract uses for a property of the claim; call it `{better}`"
    )]
    Contract {
        /// The name as it was written.
        name: String,
        /// The environment variable of the name.
        env: String,
        /// A similar name that can be used.
        better: String,
    },
}

/// Returns the environment variable of a property or parameter: its name in upper snake case.
///
/// `use-nfs-server` → `USE_NFS_SERVER`, `fsType` → `FSTYPE`, `csi.storage.k8s.io/fstype` → `CSI_STORAGE_K8S_IO_FSTYPE`.
pub fn env_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// Returns the name of a parameter's file in [`crate::names::PROPERTY_DIR`]. A slash becomes an underscore.
pub fn file_name(name: &str) -> String {
    name.replace('/', "_")
}

/// Checks the name of one parameter, by itself and against the `reserved` variables of the contract.
pub fn check_name(name: &str, reserved: impl Fn(&str) -> bool) -> Result<(), NameError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let problem = if name.is_empty() {
        Some("it is empty")
    } else if name.len() > 253 {
        Some("it is longer than 253 characters")
    } else if !name.chars().all(legal) {
        Some("it has a character that is not allowed")
    } else if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        Some("it does not begin with a letter")
    } else if name.contains("..") || name.ends_with('/') || name.ends_with('.') {
        Some("it reads like a path")
    } else {
        None
    };
    if let Some(problem) = problem {
        let kept: String =
            name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).take(60).collect();
        let better = format!("my-{}", kept.trim_matches(['-', '_']));
        return Err(NameError::Malformed { name: name.chars().take(80).collect(), problem, better });
    }
    let env = env_name(name);
    let better = format!("my-{}", name.trim_start_matches('-'));
    if INTERPRETED.contains(&env.as_str()) || INTERPRETED_PREFIXES.iter().any(|p| env.starts_with(p)) {
        return Err(NameError::Interpreted { name: name.into(), env, better });
    }
    if reserved(&env) {
        return Err(NameError::Contract { name: name.into(), env, better });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refused_name_has_a_reason() {
        let reserved = |env: &str| env == "SIZE";
        for (name, says) in [
            ("path", "PATH"),
            ("ld-preload", "LD_PRELOAD"),
            ("size", "SIZE"),
            ("bash.env", "BASH_ENV"),
            ("", "empty"),
            ("a b", "not allowed"),
            ("9lives", "begin with a letter"),
            ("a/../b", "path"),
            ("groups", "GROUPS"),
            ("kubernetes-service-host", "KUBERNETES_SERVICE_HOST"),
        ] {
            let error = check_name(name, reserved).expect_err(name).to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
        for name in ["zone", "use-nfs-server", "fsType", "csi.storage.k8s.io/fstype"] {
            check_name(name, reserved).unwrap_or_else(|e| panic!("{e}"));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_gets_an_answer(name in ".{0,300}") {
            if check_name(&name, |_| false).is_ok() {
                let env = env_name(&name);
                assert!(env.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
                assert!(!file_name(&name).contains('/'));
            }
        }
    }
}

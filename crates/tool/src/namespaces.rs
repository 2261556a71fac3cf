//! The namespaces of users that a command is about, with the flags of kubectl.

use anyhow::bail;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use clap_complete::ArgValueCompleter;

use crate::complete::candidates::namespaces;

/// The namespaces of the claims.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct UserNamespaces {
    /// The namespace of the claims [default: all; for a claim that is named, that of the context].
    #[arg(short = 'n', long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new(), conflicts_with = "all_namespaces", add = ArgValueCompleter::new(namespaces))]
    namespace: Option<String>,
    /// The claims of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

impl UserNamespaces {
    /// Checks whether the command is about claims of this namespace.
    pub(super) fn has(&self, namespace: &str) -> bool {
        self.chosen().is_none_or(|chosen| chosen == namespace)
    }

    /// Returns the namespace to which the command is limited.
    pub(super) fn chosen(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the same for a command about one claim.
    ///
    /// # Errors
    /// If the flags ask for the claims of all namespaces.
    pub(super) fn of_claim(&self, claim: &str) -> anyhow::Result<Option<&str>> {
        if self.all_namespaces {
            bail!("{claim} is one claim: name its namespace (-n), and leave out --all-namespaces");
        }
        Ok(self.chosen())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_about_one_namespace_or_all() {
        let one = UserNamespaces { namespace: Some("team".into()), all_namespaces: false };
        assert_eq!((one.has("team"), one.has("other"), one.of_claim("data").ok()), (true, false, Some(Some("team"))));
        let all = UserNamespaces { namespace: None, all_namespaces: true };
        assert!(all.has("team") && all.has("other"));
        assert!(all.of_claim("data").is_err_and(|why| why.to_string().contains("data is one claim")));
        assert_eq!(UserNamespaces::default().of_claim("data").ok(), Some(None));
    }
}

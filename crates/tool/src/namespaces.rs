//! The namespaces of users that a command is about, with the flags of kubectl.

use anyhow::bail;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use clap_complete::ArgValueCompleter;

use crate::complete::candidates::namespaces;

/// The namespaces of the claims.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct UserNamespaces {
    /// The namespace of the claims [default: that of the context; all for doctor, in a pod, and with --bundle].
    #[arg(short = 'n', long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new(), conflicts_with = "all_namespaces", add = ArgValueCompleter::new(namespaces))]
    namespace: Option<String>,
    /// The claims of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// The namespace without a flag.
    #[arg(skip)]
    usual: Option<String>,
}

impl UserNamespaces {
    /// Takes the namespace of a person's context, which limits the command without a flag. A pod and a bundle have no
    /// context.
    pub(super) fn take_usual(&mut self, has_context: bool, namespace: &str) {
        self.usual = (has_context && !self.all_namespaces && self.namespace.is_none()).then(|| namespace.to_owned());
    }

    /// Checks whether the command is about claims of this namespace.
    pub(super) fn has(&self, namespace: &str) -> bool {
        self.shown().is_none_or(|shown| shown == namespace)
    }

    /// Returns the namespace to which the command is limited, by a flag or without.
    pub(super) fn shown(&self) -> Option<&str> {
        self.chosen().or(self.usual())
    }

    /// Returns the namespace to which a flag limits the command.
    pub(super) fn chosen(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the namespace to which the command is limited because no flag says otherwise.
    pub(super) fn usual(&self) -> Option<&str> {
        self.usual.as_deref()
    }

    /// Returns the namespace that a flag names for a command about one claim.
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
        let flags = |namespace: Option<&str>, all_namespaces| {
            let namespace = namespace.map(str::to_owned);
            UserNamespaces { namespace, all_namespaces, usual: None }
        };
        for (namespace, all, has_context, shown, usual) in [
            (Some("team"), false, true, Some("team"), None),
            (None, true, true, None, None),
            (None, false, true, Some("mine"), Some("mine")),
            (None, false, false, None, None),
        ] {
            let mut namespaces = flags(namespace, all);
            assert_eq!(namespaces.shown(), namespace, "the namespace of the context is not taken yet");
            namespaces.take_usual(has_context, "mine");
            assert_eq!((namespaces.shown(), namespaces.usual()), (shown, usual), "{namespaces:?}");
            assert_eq!(namespaces.has("other"), shown.is_none(), "{namespaces:?}");
        }
        assert_eq!(flags(Some("team"), false).of_claim("data").ok(), Some(Some("team")));
        assert!(flags(None, true).of_claim("data").is_err_and(|why| why.to_string().contains("data is one claim")));
        assert_eq!(flags(None, false).of_claim("data").ok(), Some(None));
    }
}

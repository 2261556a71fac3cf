//! The claim that a command is about.

use anyhow::{Context as _, bail};
use clap::Args;
use clap_complete::ArgValueCompleter;
use flex_core::object::ObjectName;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client};

use crate::complete::candidates::{claims, namespaces};

/// The name of a claim.
#[derive(Clone, Debug, Args)]
pub(super) struct ClaimName {
    /// The claim, as NAME or as NAMESPACE/NAME.
    #[arg(value_name = "CLAIM", add = ArgValueCompleter::new(claims))]
    claim: String,
    /// The namespace of the claim [default: that of the context].
    #[arg(short = 'n', long, value_name = "NAMESPACE", add = ArgValueCompleter::new(namespaces))]
    claim_namespace: Option<String>,
}

impl ClaimName {
    /// Reads the claim. `of_context` is the namespace of the kubeconfig's context.
    ///
    /// # Errors
    /// The name is not that of a claim, the claim does not exist, or it cannot be read.
    pub(super) async fn read(&self, client: &Client, of_context: &str) -> anyhow::Result<PersistentVolumeClaim> {
        let name = claim_name(&self.claim, self.claim_namespace.as_deref(), of_context)?;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &name.namespace);
        let claim = claims.get_opt(&name.name).await.with_context(|| format!("claim {name} cannot be read"))?;
        claim.with_context(|| format!("claim {name} does not exist"))
    }
}

/// Reads the name of a claim, with its namespace where it has one.
pub(super) fn claim_name(text: &str, flag: Option<&str>, of_context: &str) -> anyhow::Result<ObjectName> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    if let (Some(flag), Some(namespace)) = (flag, namespace)
        && flag != namespace
    {
        bail!("{text} is not in namespace {flag}: write the namespace once");
    }
    if name.is_empty() || name.contains('/') || namespace.is_some_and(str::is_empty) {
        bail!("{text} is not the name of a claim: write NAMESPACE/NAME");
    }
    Ok(ObjectName::new(namespace.or(flag).unwrap_or(of_context), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_claim_may_have_its_namespace() {
        let of = |text: &str, flag: Option<&str>| {
            claim_name(text, flag, "default").map(|name| name.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(of("data", None).as_deref(), Ok("default/data"));
        assert_eq!(of("data", Some("team")).as_deref(), Ok("team/data"));
        assert_eq!(of("team/data", None).as_deref(), Ok("team/data"));
        assert_eq!(of("team/data", Some("team")).as_deref(), Ok("team/data"));
        assert!(of("team/data", Some("other")).is_err_and(|why| why.contains("write the namespace once")));
        for wrong in ["", "/data", "team/", "a/b/c"] {
            assert!(of(wrong, None).is_err_and(|why| why.contains("write NAMESPACE/NAME")), "{wrong}");
        }
    }
}

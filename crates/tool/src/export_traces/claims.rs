//! The claims to export.

use anyhow::{Context as _, bail};
use flex_provisioner::api::trimmed::Trimmed;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client};

use crate::claim::Named;
use crate::collect;
use crate::namespaces::UserNamespaces;

/// The largest number of claims in a request to the collector.
pub(super) const CLAIMS: usize = 500;

/// The claims to export.
pub(super) struct Claims {
    /// The namespace; `None` for all namespaces.
    namespace: Option<String>,
    /// The name of the claim; `None` for all claims.
    pub(super) name: Option<String>,
}

impl Claims {
    /// Returns the claims that the flags choose. `of_context` is the namespace of the kubeconfig's context.
    ///
    /// # Errors
    /// The name is not that of a claim.
    pub(super) fn of(claim: Option<&str>, namespaces: &UserNamespaces, of_context: &str) -> anyhow::Result<Self> {
        let Some(claim) = claim else {
            return Ok(Claims { namespace: namespaces.shown().map(str::to_owned), name: None });
        };
        match Named::read(claim, namespaces.of_claim(claim)?, of_context)? {
            Named::Claim(name) => Ok(Claims { namespace: Some(name.namespace), name: Some(name.name) }),
            volume @ Named::Volume(_) => bail!("{volume} has no timeline of its own: name its claim"),
        }
    }

    pub(super) fn api(&self, client: &Client) -> Api<Trimmed<PersistentVolumeClaim>> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        }
    }

    /// Reads the claims.
    pub(super) async fn read(&self, client: &Client) -> anyhow::Result<Vec<PersistentVolumeClaim>> {
        let api = self.api(client);
        if let (Some(namespace), Some(name)) = (&self.namespace, &self.name) {
            let claim = api.get_opt(name).await.with_context(|| format!("claim {namespace}/{name} cannot be read"))?;
            let claim = claim.with_context(|| format!("claim {namespace}/{name} does not exist"))?;
            return Ok(vec![claim.0]);
        }
        Ok(collect::all(api, "").await?.into_iter().map(|claim| claim.0).collect())
    }
}

//! Writes whose answers nobody reads. The returned object is not built, which would take longer than all other work on
//! a request. Only its form as JSON is checked.

use std::result;

use http::Request;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{self, request};
use kube::{Api, Client, Resource, Result};
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Writes to objects of a kind.
pub(super) struct DiscardReply<K>(pub Api<K>);

impl<K: Resource> DiscardReply<K> {
    /// Creates an object.
    pub async fn create(self, params: &PostParams, object: &K) -> Result<()>
    where
        K: Serialize,
    {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request = self.requests().create(params, body);
        sent(self.0.into_client(), request).await
    }

    /// Merges a patch into an object.
    pub async fn patch(self, name: &str, params: &PatchParams, body: Value) -> Result<()> {
        let request = self.requests().patch(name, params, &Patch::Merge(body));
        sent(self.0.into_client(), request).await
    }

    /// Deletes an object.
    pub async fn delete(self, name: &str, params: &DeleteParams) -> Result<()> {
        let request = self.requests().delete(name, params);
        sent(self.0.into_client(), request).await
    }

    fn requests(&self) -> core::Request {
        core::Request::new(self.0.resource_url())
    }
}

async fn sent(client: Client, request: result::Result<Request<Vec<u8>>, request::Error>) -> Result<()> {
    let request = request.map_err(kube::Error::BuildRequest)?;
    client.request::<IgnoredAny>(request).await.map(drop)
}

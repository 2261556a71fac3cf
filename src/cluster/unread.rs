//! Writes whose answers nobody looks at. The object that comes back is not read, which takes longer than all else that is
//! done for a request here.

use std::result;

use http::Request;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{self, request};
use kube::{Api, Client, Resource, Result};
use serde::Serialize;
use serde_json::Value;

/// Objects of a kind, of which none is read.
pub(super) struct Unread<K>(pub Api<K>);

impl<K: Resource> Unread<K> {
    /// Creates an object.
    pub async fn create(self, params: &PostParams, object: &K) -> Result<()>
    where
        K: Serialize,
    {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request = self.all().create(params, body);
        sent(self.0.into_client(), request).await
    }

    /// Patches an object.
    pub async fn patch(self, name: &str, params: &PatchParams, body: Value) -> Result<()> {
        let request = self.all().patch(name, params, &Patch::Merge(body));
        sent(self.0.into_client(), request).await
    }

    /// Deletes an object.
    pub async fn delete(self, name: &str, params: &DeleteParams) -> Result<()> {
        let request = self.all().delete(name, params);
        sent(self.0.into_client(), request).await
    }

    fn all(&self) -> core::Request {
        core::Request::new(self.0.resource_url())
    }
}

async fn sent(client: Client, request: result::Result<Request<Vec<u8>>, request::Error>) -> Result<()> {
    client.request_text(request.map_err(kube::Error::BuildRequest)?).await.map(drop)
}

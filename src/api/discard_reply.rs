//! Writes of whose answers nobody reads more than a UID. The returned object is not built, which would take longer than all
//! other work on a request. Only its form as JSON is checked.

use std::result;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{self, request};
use kube::{Api, Client, Resource, Result};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A created object, of which nobody reads the rest.
#[derive(Deserialize)]
struct Created {
    metadata: CreatedMetadata,
}

#[derive(Deserialize)]
struct CreatedMetadata {
    uid: String,
}

/// A written object, of which nobody reads more than the metadata.
#[derive(Deserialize)]
struct Written {
    metadata: ObjectMeta,
}

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

    /// Creates an object, and returns its UID.
    pub async fn create_with_uid(self, params: &PostParams, object: &K) -> Result<String>
    where
        K: Serialize,
    {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request = self.requests().create(params, body).map_err(kube::Error::BuildRequest)?;
        let created: Created = self.0.into_client().request(request).await?;
        Ok(created.metadata.uid)
    }

    /// Creates an object, and returns its metadata.
    pub async fn create_with_metadata(self, params: &PostParams, object: &K) -> Result<ObjectMeta>
    where
        K: Serialize,
    {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request = self.requests().create(params, body).map_err(kube::Error::BuildRequest)?;
        let created: Written = self.0.into_client().request(request).await?;
        Ok(created.metadata)
    }

    /// Merges a patch into an object, and returns its metadata.
    pub async fn patch_with_metadata(self, name: &str, params: &PatchParams, body: Value) -> Result<ObjectMeta> {
        let request = self.requests().patch(name, params, &Patch::Merge(body)).map_err(kube::Error::BuildRequest)?;
        let patched: Written = self.0.into_client().request(request).await?;
        Ok(patched.metadata)
    }

    /// Applies a JSON patch to an object.
    pub async fn patch_json(self, name: &str, params: &PatchParams, operations: Value) -> Result<()> {
        let request = self.requests().patch(name, params, &Patch::Merge(operations)).map(|mut request| {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json-patch+json"));
            request
        });
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

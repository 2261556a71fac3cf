//! The fence: writes pass only while this replica's term lasts.
//!
//! A leader reads the Lease every few seconds. But a process can stop between a decision and its write for longer than
//! a term: it is suspended, has no CPU time, or waits for an answer. So the fence checks the time once more, right
//! before each write is sent.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use kube::Client;
use kube::client::Body;
use tower::BoxError;

/// The reason why a write was not sent.
#[derive(Debug, thiserror::Error)]
#[error("this replica does not lead any more; it leaves the write to the leader")]
struct NotLeading;

/// The end of the time during which this replica may write. Clones are the same fence.
#[derive(Clone, Debug, Default)]
pub struct Fence(Arc<Mutex<Option<Instant>>>);

impl Fence {
    fn term_end(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().expect("no code panics while it holds the fence")
    }

    /// Lets writes pass until then.
    pub fn open(&self, until: Instant) {
        *self.term_end() = Some(until);
    }

    /// Lets no write pass.
    pub fn close(&self) {
        *self.term_end() = None;
    }

    /// Checks whether writes pass now.
    pub fn is_open(&self) -> bool {
        self.term_end().is_some_and(|until| Instant::now() < until)
    }

    /// Puts a client behind the fence. The client reads at any time, and writes while the fence is open.
    pub fn client(&self, client: &Client) -> Client {
        let (fence, through) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (fence, through) = (fence.clone(), through.clone());
            async move {
                if !request.method().is_safe() && !fence.is_open() {
                    return Err(BoxError::from(NotLeading));
                }
                through.send(request).await.map_err(BoxError::from)
            }
        });
        Client::new(service, client.default_namespace())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::PostParams;

    use super::*;

    #[tokio::test]
    async fn reads_always_pass_and_writes_only_during_the_term() {
        let answer = |_: http::Request<Body>| async {
            let map = serde_json::json!({ "metadata": { "name": "a" } }).to_string();
            Ok::<_, Infallible>(http::Response::new(Body::from(map.into_bytes())))
        };
        let fence = Fence::default();
        let api: Api<ConfigMap> = Api::default_namespaced(fence.client(&Client::new(tower::service_fn(answer), "n")));
        let write = || async { api.create(&PostParams::default(), &ConfigMap::default()).await };

        let refused = write().await.expect_err("nobody leads yet").to_string();
        assert!(refused.contains("does not lead"), "{refused}");
        fence.open(Instant::now() + Duration::from_secs(60));
        write().await.expect("the process leads");
        fence.open(Instant::now());
        write().await.expect_err("the term is over, whoever knows of it");
        fence.open(Instant::now() + Duration::from_secs(60));
        fence.close();
        write().await.expect_err("the Lease is lost");
        api.get("a").await.expect("reads pass");
    }
}

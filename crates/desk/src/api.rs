//! The API server, in memory. Like the ClusterRole of images, it permits to create and to get PersistentVolumes. The Roles in
//! the file of a config permit other objects.

mod answer;
mod objects;
mod reply;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub use self::answer::Store;
use self::answer::{VOLUMES, answer, refused};
pub use self::reply::Asked;
use crate::rights::Rights;

/// The largest body of a request.
const LARGEST: usize = 1 << 20;

/// A moment at which the API stops answering, so that the run can be killed there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Never.
    #[default]
    Never,
    /// When a volume is to be created: it is not.
    BeforeCreate,
    /// When a volume was created: nobody hears of it until [`Api::release`].
    AfterCreate,
    /// Never, but no volume may be created.
    Refuse,
}

#[derive(Default)]
struct Shared {
    store: Mutex<Store>,
    hold: Mutex<Hold>,
    reached: Notify,
    released: Notify,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The API server. It ends with this value.
pub struct Api {
    shared: Arc<Shared>,
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for Api {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Api {
    /// Starts the server on a free port of this machine.
    ///
    /// # Errors
    /// If no port can be had.
    pub async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let app = Router::new().fallback(serve).with_state(shared.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap_or_default() });
        Ok(Api { shared, address, serving })
    }

    /// Returns the address of the API.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns a kubeconfig for the API.
    pub fn kubeconfig(&self) -> String {
        let cluster = serde_json::json!({ "name": "desk", "cluster": { "server": self.url() } });
        let context = serde_json::json!({ "name": "desk", "context": { "cluster": "desk", "user": "desk" } });
        serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "desk",
            "clusters": [cluster], "contexts": [context], "users": [{ "name": "desk", "user": {} }],
        })
        .to_string()
    }

    /// Gives the image rights beside those of each image.
    pub fn permit(&self, rights: &Rights) {
        locked(&self.shared.store).rights = rights.clone();
    }

    /// Sets the moment at which the API stops answering.
    pub fn hold(&self, hold: Hold) {
        *locked(&self.shared.hold) = hold;
    }

    /// Waits until that moment is reached.
    pub async fn reached(&self) {
        self.shared.reached.notified().await;
    }

    /// Gives the answer that was held.
    pub fn release(&self) {
        self.shared.released.notify_one();
    }

    /// Returns a volume.
    pub fn volume(&self, name: &str) -> Option<PersistentVolume> {
        locked(&self.shared.store).volumes.get(name).cloned()
    }

    /// Returns all volumes.
    pub fn volumes(&self) -> Vec<PersistentVolume> {
        locked(&self.shared.store).volumes.values().cloned().collect()
    }

    /// Stores a volume, or removes it.
    pub fn set(&self, name: &str, volume: Option<PersistentVolume>) {
        let mut store = locked(&self.shared.store);
        match volume {
            Some(volume) => drop(store.volumes.insert(name.to_owned(), volume)),
            None => drop(store.volumes.remove(name)),
        }
    }
}

async fn serve(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let Ok(body) = axum::body::to_bytes(request.into_body(), LARGEST).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let creates = method == "POST" && path == VOLUMES;
    let hold = *locked(&shared.hold);
    if creates && hold == Hold::BeforeCreate {
        shared.reached.notify_one();
        std::future::pending::<()>().await;
    }
    let (code, value) = match creates && hold == Hold::Refuse {
        true => refused(&path),
        false => answer(&mut locked(&shared.store), Asked { method: &method, path: &path, body: &body }),
    };
    if creates && hold == Hold::AfterCreate {
        shared.reached.notify_one();
        shared.released.notified().await;
    }
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (code, [("content-type", "application/json")], value.to_string()).into_response()
}

//! A control plane with a node, which the sites of all cut points share, and the check for objects that must not exist
//! there.

use std::fmt;
use std::path::PathBuf;

use cluster::{Cluster, Contents};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

use crate::node::Node;
use crate::site::Site;

/// The kinds of trouble that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// Something is left that nothing will delete, or storage is gone that a claim uses.
    Leaked,
    /// Two objects where one should be.
    Duplicate,
    /// A claim or object did not reach its end.
    Stuck,
}

/// A trouble, with its description.
#[derive(Clone, Debug)]
pub struct Finding {
    pub trouble: Trouble,
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.trouble, self.what)
    }
}

impl From<Finding> for Vec<Finding> {
    fn from(finding: Finding) -> Self {
        vec![finding]
    }
}

/// The control plane and the node on it.
pub struct World {
    pub client: Client,
    pub node: Node,
    cluster: Cluster,
    /// The objects before the first scenario.
    empty: Contents,
    dir: tempfile::TempDir,
}

impl World {
    pub async fn start() -> World {
        let cluster = Cluster::lent_with_snapshots().await.expect("the control plane starts");
        let empty = cluster.contents().await.expect("etcd answers");
        World::on(cluster, empty).await
    }

    async fn on(cluster: Cluster, empty: Contents) -> World {
        let client = cluster.client().await.expect("the API server answers");
        let node = Node::start(client.clone()).await;
        World { client, node, cluster, empty, dir: tempfile::tempdir().unwrap() }
    }

    /// Returns another world on the same control plane, which is reset to its beginning.
    pub async fn renewed(self) -> World {
        let World { cluster, empty, node, .. } = self;
        drop(node);
        cluster.reset(&empty).await.expect("the control plane is emptied");
        World::on(cluster, empty).await
    }

    /// Writes a kubeconfig that leads to the API server without a proxy.
    pub fn kubeconfig(&self) -> PathBuf {
        self.cluster.kubeconfig()
    }

    /// Returns the path of a site's file.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a site, which is usable after [`Site::is_ready`].
    pub async fn site(&self, name: String, binding: &'static str) -> Site<'_> {
        let site = Site::on(self, name, binding);
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        for name in [site.name.clone(), site.admin()] {
            let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
            namespaces.create(&PostParams::default(), &namespace).await.expect("the namespace is created");
        }
        site
    }
}

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
    /// Something is left that nobody answers for, or storage is gone that somebody uses.
    Leaked,
    /// Two where one should be.
    Duplicate,
    /// It did not come to its end.
    Stuck,
}

/// One of them.
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
    /// What is there before anything happens.
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

    /// Another world on the same control plane, on which all that happened is undone.
    pub async fn renewed(self) -> World {
        let World { cluster, empty, node, .. } = self;
        drop(node);
        cluster.reset(&empty).await.expect("the control plane is emptied");
        World::on(cluster, empty).await
    }

    /// A kubeconfig that leads to the API server without detours.
    pub fn kubeconfig(&self) -> PathBuf {
        self.cluster.kubeconfig()
    }

    /// Where files of a site stand.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A site. It is usable when [`Site::is_ready`] has returned.
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

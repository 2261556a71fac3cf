//! Tests of pools, on the whole cluster with pods.

use std::collections::BTreeSet;
use std::time::Instant;

use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::ListParams;

use orchestrator::deployed::{clean, directory, ends_well, local_class, log_of, pod, users, volumes_in};
use orchestrator::ring::{OWN, Ring, uid};
use orchestrator::wait::{unexpected, until};

/// Waits until this many volumes of a class are ready, and all runs for them have ended.
async fn filled(ring: &Ring, class: &str, count: usize) -> BTreeSet<String> {
    until(format!("{count} volumes of class {class} are ready"), || async {
        let (ready, requests) = (ring.ready(class).await, ring.requests().await);
        let of_class = |request: &k8s_openapi::api::core::v1::PersistentVolumeClaim| {
            request.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()) == Some(class)
        };
        let requests: Vec<_> = requests.iter().filter(|request| of_class(request)).map(ResourceExt::name_any).collect();
        let runs = ListParams::default().labels(&format!("{}={class}", names::LABEL_CLASS));
        let jobs = ring.api::<Job>(OWN).list(&runs).await.unwrap().items.len();
        let settled = ready.len() == count && requests.is_empty() && jobs == 0;
        if settled { Ok(ready) } else { unexpected((ready, requests, jobs)) }
    })
    .await
}

#[tokio::test]
async fn a_pod_uses_a_pooled_volume() {
    let ring = users("pools").await;
    let (class, on_node) = ("pools", directory("pools"));
    let before = volumes_in(&on_node);
    local_class(&ring, class, &[("capabilities", "pool"), ("pool", "1Gi=2")]).await;
    let ready = filled(&ring, class, 2).await;
    let names_of = |ids: &BTreeSet<String>| -> BTreeSet<String> { ids.iter().map(|id| names::pv_name(id)).collect() };
    let made: BTreeSet<String> = volumes_in(&on_node).difference(&before).cloned().collect();
    assert_eq!(names_of(&made), ready, "one directory for each volume");

    let began = Instant::now();
    ring.claim("c", class).await;
    let claim = ring.bound("c").await;
    println!("a claim is Bound to a volume that was ready after {:?}", began.elapsed());
    let name = claim.spec.as_ref().unwrap().volume_name.clone().unwrap();
    assert!(ready.contains(&name), "{name} of {ready:?}");
    assert!(ring.jobs(OWN, "provision", &uid(&claim)).await.is_empty());
    pod(&ring, "writer", "c", "echo from a pool > /data/text").await;
    ends_well(&ring, "writer").await;
    pod(&ring, "reader", "c", "cat /data/text").await;
    assert_eq!(log_of(&ring, "reader").await.trim(), "from a pool");
    let again = filled(&ring, class, 2).await;
    assert!(!again.contains(&name));

    local_class(&ring, class, &[("capabilities", "pool")]).await;
    clean(&ring).await;
    ring.volume_gone(&name).await;
    for name in &again {
        ring.volume_gone(name).await;
    }
    filled(&ring, class, 0).await;
    assert_eq!(volumes_in(&on_node), before, "the directories are deleted");
}

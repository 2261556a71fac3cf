//! The pool of a class whose own provisioner a config replaces.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use orchestrator::ring::WHILE;

/// After each start the orchestrator does not know at first whether the other provisioner is at work. Then the class
/// seems to be the other's.
#[tokio::test]
async fn the_pool_of_a_replaced_class_survives_restarts_and_a_replaced_config() {
    let mut ring = Ring::start().await;
    let mut image = Image::default();
    ring.class("c", "driver.test", json!({})).await;
    let data = [ONE[0], ONE[1], ("replaces-provisioner", "driver.test")];
    ring.config("c", "c", &data).await;
    let ready = image.filled(&ring, 1).await;
    ring.restart().await;
    rests_with(&ring, &ready).await;
    let deleted = Instant::now();
    ring.api::<ConfigMap>(ADMIN).delete("c", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(WHILE).await;
    ring.config("c", "c", &data).await;
    // The pool waits for the config for 30 s, and a busy machine may take longer.
    if deleted.elapsed() < Duration::from_secs(20) {
        rests_with(&ring, &ready).await;
        assert_eq!(image.asked.len(), 1, "the one volume was made once");
    }
    image.filled(&ring, 1).await;
    ring.api::<ConfigMap>(ADMIN).delete("c", &DeleteParams::default()).await.unwrap();
    image.filled(&ring, 0).await;
    image.ends_empty(&ring).await;
}

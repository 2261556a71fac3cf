//! Tests of `check` on nodes that pull images.

use orchestrator::commands::{check, lines_of};
use orchestrator::deployed::{IMAGE, kubectl, users};
use orchestrator::ring::OWN;

#[tokio::test]
async fn a_node_pulls_images_for_the_check() {
    let ring = users("check-pull").await;
    let missing = "localhost/flex-provisioner/no-such-image:1";
    let flags = ["--pull", "--image", IMAGE, "--image", missing, "--timeout", "300s"];
    let (code, lines) = check(ring.cluster(), OWN, &flags);
    assert_eq!(code, 2, "{lines:?}");
    let images = lines_of(&lines, "images");
    let found = |image: &str| images.iter().find(|(_, found)| found.contains(image)).copied().unwrap();
    assert_eq!(found(IMAGE).0, "ok", "{images:?}");
    assert_eq!(found(missing).0, "failed", "{images:?}");
    let pods = kubectl(ring.cluster(), &["-n", OWN, "get", "pods", "-o", "name"]);
    assert!(!pods.contains("flex-provisioner-check-"), "the pods of the check are deleted: {pods}");
}

//! Pools and quotas.

use super::*;

#[tokio::test]
async fn pooled_volumes_make_room_for_claims_within_the_quota() {
    let ring = Ring::start().await;
    let mut image = Image { most: Some(2), ..Image::default() };
    ring.config("c", "c", &[TWO[0], TWO[1], ("max-volumes", "2")]).await;
    let ready = image.filled(&ring, 2).await;
    // Existing volumes count already.
    ring.claim("small", "c").await;
    assert!(ready.contains(&ring.volume_of("small").await.name_any()));
    let rest = image.filled(&ring, 1).await;
    rests_with(&ring, &rest).await;
    ring.claim_with("large", "c", size("2Gi")).await;
    let large = image.bound(&ring, "large").await;
    assert_eq!(ring.volume_of("large").await.name_any(), names::pv_name(&uid(&large)));
    image.filled(&ring, 0).await;
    let drained = id_of(rest.first().unwrap());
    assert_eq!(image.asked_for(&drained), [Operation::Provision, Operation::Delete]);
    // No pooled volume is left that could be drained.
    ring.claim("late", "c").await;
    ring.event(USER, "late", reason::LIMIT_REACHED, "may have at most 2 volumes of class c").await;
    rests_with(&ring, &BTreeSet::new()).await;
    // A waiting claim comes before the pool.
    ring.delete_claim("large").await;
    let late = image.bound(&ring, "late").await;
    assert_eq!(ring.volume_of("late").await.name_any(), names::pv_name(&uid(&late)));
    ring.delete_claim("small").await;
    image.filled(&ring, 1).await;
    assert_eq!(image.stored.len(), 2);
    image.ends_empty(&ring).await;
}

#[tokio::test]
async fn a_claim_gets_no_pooled_volume_beyond_the_quota_of_its_namespace() {
    let ring = Ring::start().await;
    let mut image = Image::default();
    ring.config("c", "c", &[TWO[0], TWO[1], ("max-volumes-per-namespace", "1")]).await;
    let ready = image.filled(&ring, 2).await;
    ring.claim("a", "c").await;
    assert!(ready.contains(&ring.volume_of("a").await.name_any()));
    let ready = image.filled(&ring, 2).await;
    ring.claim("b", "c").await;
    ring.event(USER, "b", reason::LIMIT_REACHED, "may have at most 1 volumes of class c").await;
    // A claim cannot name such a volume either, although no other claim can have it.
    let named = json!({ "spec": { "volumeName": ready.first() } });
    ring.claim_with("named", "c", named).await;
    rests_with(&ring, &ready).await;
    assert_ne!(phase(&ring.get_claim("named").await), "Bound");
    ring.delete_claim("a").await;
    image.bound(&ring, "b").await;
    assert!(ready.contains(&ring.volume_of("b").await.name_any()));
    image.filled(&ring, 2).await;
    image.ends_empty(&ring).await;
}

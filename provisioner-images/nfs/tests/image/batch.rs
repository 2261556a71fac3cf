//! Tests of one run for many claims.

use ganesha::{Ganesha, Options};

use crate::run::Run;

#[test]
fn each_claim_of_a_batch_has_its_own_directory_and_outcome() {
    let server = Ganesha::start(Options::default());
    let members: Vec<Run> = (1..=12)
        .map(|number| Run::new(&server, &format!("c0ffee00-0000-4000-8000-{number:012}")))
        .map(|member| member.clone().with("PVC_NAME", &member.directory()))
        .collect();
    let mut wanted = members.clone();
    wanted[4] = wanted[4].clone().with("VOLUME_MODE", "Block");
    let failed = Run::batch("provision", &wanted).outcomes();
    assert_eq!(failed.keys().collect::<Vec<_>>(), [&5], "{failed:?}");
    assert_eq!(failed[&5].0, 65, "{failed:?}");
    assert!(failed[&5].1.contains("volumeMode Block is not possible"), "{failed:?}");
    assert_eq!(server.list("").len(), 11);
    assert_eq!(Run::batch("provision", &members).outcomes(), [].into());
    assert_eq!(server.list("").len(), 12);
    assert_eq!(Run::batch("delete", &members).outcomes(), [].into());
    assert_eq!(server.list(""), Vec::<String>::new());
}

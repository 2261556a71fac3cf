//! Tests with a Cinder and a Keystone whose certificates come from an authority that only the cloud knows.

use openstack::{Authority, Tls};
use serde_json::Value;

use crate::keystone::{conf, servers};
use crate::run::{ONE, Run, cinder};

#[test]
fn a_cinder_with_a_private_authority_is_trusted_by_its_file_alone() {
    let project = cinder().project("tls");
    let (own, other) = (Authority::new("the cloud's"), Authority::new("somebody's"));
    let tls = Tls::start(&own, "127.0.0.1", cinder().port());
    let run = Run::at(tls.port(), &project.id, ONE);
    let run = run.with("OS_CINDER_ENDPOINT", &format!("https://127.0.0.1:{}", tls.port()));
    let file = |name: &str, text: &str| run.secret_file(name, text).display().to_string();
    let good = run.clone().with("OS_CACERT", &file("cloud/ca.pem", &format!("{}{}", other.pem(), own.pem())));
    good.provision().well();
    assert_eq!(project.volume_of(ONE)["status"], "attaching");
    good.delete().well();

    // The failure is reported at once, with the file, the key and the remedy.
    let missing = file("cloud/ca.pem", &own.pem()).replace("ca.pem", "missing.pem");
    for (ca, says) in [
        ("".to_owned(), vec!["has no OS_CACERT", "public authorities", "`secret-volume`", "UnknownIssuer"]),
        (
            file("cloud/other.pem", &other.pem()),
            vec!["OS_CACERT is", "other.pem", "UnknownIssuer", "authority that signed"],
        ),
        (missing, vec!["OS_CACERT is", "missing.pem", "No such file", "`secret-volume`"]),
        (file("cloud/empty.pem", ""), vec!["OS_CACERT is", "empty.pem", "BEGIN CERTIFICATE"]),
        (file("cloud/half.pem", &own.pem()[..90]), vec!["OS_CACERT is", "half.pem", "breaks off before its END"]),
        (
            file("cloud/cloud", "x").replace("/cloud/cloud", "/cloud"),
            vec!["OS_CACERT is", "no certificates that can be read"],
        ),
    ] {
        let ended = run.clone().with("OS_CACERT", &ca).provision();
        for says in says {
            assert!(ended.code == 77 && ended.termination_message.contains(says), "{says} for {ca}: {ended:?}");
        }
        assert!(!ended.log.contains("cinder: POST"), "not asked again and again: {ended:?}");
    }
    // The right authority, and another host.
    let elsewhere = Tls::start(&own, "cinder.example", cinder().port());
    let ended = good.clone().with("OS_CINDER_ENDPOINT", &format!("https://127.0.0.1:{}", elsewhere.port())).provision();
    ended.failed(77, "one that the server's certificate is for");
    // A server without TLS where TLS is expected.
    let plain = good.with("OS_CINDER_ENDPOINT", &format!("https://127.0.0.1:{}", cinder().port())).provision();
    plain.failed(75, "http://");
    assert_eq!(project.volumes(), Vec::<Value>::new());
}

#[test]
fn a_keystone_with_a_private_authority_is_trusted_by_its_file_alone() {
    let (keystone, cinder) = servers();
    let own = Authority::new("the cloud's");
    let (login, volumes) =
        (Tls::start(&own, "127.0.0.1", keystone.port()), Tls::start(&own, "127.0.0.1", cinder.port()));
    let run = Run::without_cloud("c0ffee00-0000-4000-8000-0000000000a1");
    let ca = run.secret_file("cloud/ca.pem", &own.pem());
    let text = conf(keystone, &format!("cinder-endpoint=https://127.0.0.1:{}/v3\n", volumes.port()))
        .replace(&format!("http://127.0.0.1:{}", keystone.port()), &format!("https://127.0.0.1:{}", login.port()));
    let file = run.secret_file("cloud/cloud.conf", &text).display().to_string();
    let ended = run.provision().failed(77, &format!("[Global] of {file} has no ca-file"));
    assert!(ended.termination_message.contains("Keystone at https://"), "{ended:?}");
    run.secret_file("cloud/cloud.conf", &format!("{text}ca-file={}\n", ca.display()));
    let ended = run.provision().well();
    assert!(!ended.log.contains(openstack::Keystone::PASSWORD), "{ended:?}");
    run.delete().well();
    let leftovers = cinder.project("").volumes();
    let mine = |one: &Value| one["metadata"]["flex-provisioner.claim-uuid"] == run.0["CLAIM_UUID"].as_str();
    assert!(!leftovers.iter().any(mine), "{leftovers:?}");
}

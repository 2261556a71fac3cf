//! Tests with a Cinder and a Keystone: a login by each kind of config.

use std::sync::OnceLock;
use std::time::Duration;

use openstack::{Cinder, Keystone, Options, Proxy};
use serde_json::Value;

use crate::run::{ONE, Run};

pub fn servers() -> &'static (Keystone, Cinder) {
    static SERVERS: OnceLock<(Keystone, Cinder)> = OnceLock::new();
    SERVERS.get_or_init(|| {
        let keystone = Keystone::start();
        let cinder = Cinder::start(Options { keystone: Some(&keystone), port: Some(keystone.cinder_port()) });
        (keystone, cinder)
    })
}

pub fn conf(keystone: &Keystone, more: &str) -> String {
    let url = keystone.url().replace("/v3", "/v2.0");
    format!("[Global]\nauth-url={url}\nusername=demo\npassword={}\ntenant-name=demo\n{more}", Keystone::PASSWORD)
}

#[test]
fn every_kind_of_login_leads_to_cinder() {
    let (keystone, cinder) = servers();
    let (id, secret) = keystone.application_credential();
    let by_file = Run::without_cloud(ONE);
    by_file.secret_file("cloud/cloud.conf", &conf(keystone, "region=RegionOne\n"));
    let by_yaml = Run::without_cloud(ONE);
    by_yaml.secret_file(
        "cloud/clouds.yaml",
        &format!(
            "clouds: {{a: {{auth_type: v3applicationcredential, region_name: RegionOne, auth: {{auth_url: '{}', \
             application_credential_id: '{id}', application_credential_secret: '{secret}'}}}}}}",
            keystone.url()
        ),
    );
    let by_env = Run::without_cloud(ONE)
        .with("OS_AUTH_URL", &keystone.url())
        .with("OS_USERNAME", "demo")
        .with("OS_PASSWORD", Keystone::PASSWORD)
        .with("OS_PROJECT_NAME", "demo")
        .with("OS_USER_DOMAIN_NAME", "Default")
        .with("OS_PROJECT_DOMAIN_ID", "default");
    for run in [by_file, by_yaml, by_env] {
        let ended = run.provision().well();
        assert!(!ended.log.contains(Keystone::PASSWORD) && !ended.log.contains(&secret), "{}", ended.log);
        run.delete().well();
    }
    // Tests that count the objects of this project run one after the other.
    let _ = cinder;
}

#[test]
fn a_refused_login_is_reported_with_the_place_of_its_credentials() {
    let (keystone, _) = servers();
    let with = |text: &str| {
        let run = Run::without_cloud(ONE);
        run.secret_file("cloud/cloud.conf", text);
        run.provision()
    };
    let good = conf(keystone, "");
    for (text, code, says) in [
        (good.replace(Keystone::PASSWORD, "wrong-one"), 77, "does not let us in"),
        (good.replace("tenant-name=demo", "tenant-name=admin"), 77, "does not let us in"),
        (conf(keystone, "domain-name=nowhere\n"), 77, "does not let us in"),
        (conf(keystone, "region=Mars\n"), 77, "public in RegionOne"),
        (conf(keystone, "interface=internal\n"), 77, "it has Cinder only as public"),
        (good.replace(&keystone.port().to_string(), "1"), 75, "cannot be reached"),
        (good.replace("password=", "#password="), 77, "password is missing"),
    ] {
        let ended = with(&text).failed(code, says);
        assert!(ended.termination_message.contains("cloud.conf"), "{ended:?}");
        assert!(!ended.log.contains("wrong-one") && !ended.log.contains(Keystone::PASSWORD), "{ended:?}");
    }
    // A Cinder with a Keystone, configured as if it had none.
    let run = Run::at(keystone.cinder_port(), "demo", ONE);
    assert_eq!(run.provision().code, 77);
}

#[test]
fn a_revoked_token_is_renewed() {
    let (keystone, cinder) = servers();
    let proxy = Proxy::start(keystone.cinder_port());
    let run = Run::without_cloud("c0ffee00-0000-4000-8000-000000000009").with("TYPE", "iscsi");
    let endpoint = format!("cinder-endpoint=http://127.0.0.1:{}/v3\n", proxy.port());
    run.secret_file("cloud/cloud.conf", &conf(keystone, &endpoint));
    // Its first call is held back until the token is revoked.
    proxy.hold_answer(Some(1));
    let mut process = run.begin("provision");
    let held = loop {
        match proxy.held_answer(Duration::from_millis(50)) {
            Some(held) => break held,
            None => assert!(process.try_wait().unwrap().is_none(), "{}", run.termination_message()),
        }
    };
    keystone.revoke(proxy.calls()[0].token.as_deref().unwrap());
    proxy.hold_answer(None);
    drop(held);
    let status = process.wait().unwrap();
    assert!(status.success(), "{}", run.termination_message());
    let refused = proxy.calls().into_iter().filter(|call| call.status == Some(401)).count();
    assert!(refused >= 1, "the token was revoked");
    run.delete().well();
    let leftovers = cinder.project("").volumes();
    let mine = |one: &Value| one["metadata"]["flex-provisioner.claim-uuid"] == run.0["CLAIM_UUID"].as_str();
    assert!(!leftovers.iter().any(mine), "{leftovers:?}");
}

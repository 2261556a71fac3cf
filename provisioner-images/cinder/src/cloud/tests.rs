use super::access::Secret;
use super::*;

fn checked(raw: Result<Raw, String>) -> Result<Cloud, String> {
    check::check(&raw?).map_err(|problems| problems.join("\n"))
}

fn of_file(text: &str) -> Result<Cloud, String> {
    checked(file::raw(text, "cloud.conf"))
}

fn of_env(pairs: &[(&str, &str)]) -> Result<Cloud, String> {
    let find = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    checked(Ok(env::raw(find, std::iter::empty())))
}

fn of_yaml(text: &str, chosen: Option<&str>) -> Result<Cloud, String> {
    checked(yaml::raw(text, "clouds.yaml", chosen))
}

#[test]
fn the_keystone_file_and_variables_of_the_old_provisioner_mean_the_same() {
    let by_file = of_file(
        "[Global]\nauth-url=http://keystone-host:5000/v2.0\nusername=admin\npassword=Passw0rd!\nregion=RegionOne\n\
         tenant-id=637b7373213d439d8119285244481456\n",
    )
    .unwrap();
    let by_env = of_env(&[
        ("OS_AUTH_URL", "http://keystone-host:5000/v2.0"),
        ("OS_USERNAME", "admin"),
        ("OS_PASSWORD", "Passw0rd!"),
        ("OS_TENANT_ID", "637b7373213d439d8119285244481456"),
        ("OS_REGION_NAME", "RegionOne"),
    ])
    .unwrap();
    let by_yaml = of_yaml(
        "clouds: {a: {auth: {auth_url: 'http://keystone-host:5000/v2.0', username: admin, password: Passw0rd!, \
         project_id: 637b7373213d439d8119285244481456}, region_name: RegionOne}}",
        None,
    )
    .unwrap();
    assert_eq!((&by_file.access, &by_file.access), (&by_env.access, &by_yaml.access));
    let Access::Keystone(keystone) = by_file.access else { panic!("{by_file:?}") };
    assert_eq!(keystone.auth_url, "http://keystone-host:5000/v3");
    let default = Domain::Id("default".into());
    assert_eq!(
        keystone.identity,
        Identity::Password {
            user: Named::Name("admin".into(), default),
            password: Secret("Passw0rd!".into()),
            project: Named::Id("637b7373213d439d8119285244481456".into()),
        }
    );
    assert_eq!((keystone.region.as_deref(), keystone.interface.as_str()), (Some("RegionOne"), "public"));
}

#[test]
fn the_old_provisioner_s_cinder_without_keystone_is_found() {
    let by_file =
        of_file("[Global]\ncinder-endpoint=http://cinder-host:8776/v2\nusername=admin\ntenant-name=demo\n").unwrap();
    let by_env = of_env(&[
        ("OS_CINDER_ENDPOINT", "http://cinder-host:8776/v2"),
        ("OS_USERNAME", "admin"),
        ("OS_TENANT_NAME", "demo"),
    ])
    .unwrap();
    assert_eq!(by_file.access, by_env.access);
    let expected =
        Access::NoAuth { endpoint: "http://cinder-host:8776/v3".into(), user: "admin".into(), project: "demo".into() };
    assert_eq!(by_file.access, expected);
    let yaml = "clouds: {a: {auth_type: none, block_storage_endpoint_override: 'http://cinder-host:8776/v3/demo', \
                auth: {username: admin, project_name: demo}}}";
    assert_eq!(of_yaml(yaml, None).unwrap().access, expected);
}

#[test]
fn domains_and_application_credentials_are_read() {
    let conf = "[Global]\nauth-url=https://k:5000/v3\nusername=u\npassword=p\ntenant-name=t\ndomain-name=both\n\
                user-domain-id=u-d\nca-file=/etc/flex-secrets/c/ca.pem\nos-endpoint-type=internalURL\n";
    let cloud = of_file(conf).unwrap();
    assert_eq!(cloud.ca_file, Some(PathBuf::from("/etc/flex-secrets/c/ca.pem")));
    let Access::Keystone(keystone) = cloud.access else { panic!() };
    assert_eq!(keystone.interface, "internal");
    let Identity::Password { user, project, .. } = keystone.identity else { panic!() };
    assert_eq!(user, Named::Name("u".into(), Domain::Id("u-d".into())));
    assert_eq!(project, Named::Name("t".into(), Domain::Name("both".into())));

    let yaml = "clouds: {a: {auth_type: v3applicationcredential, auth: {auth_url: 'https://k:5000', \
                application_credential_id: 0123, application_credential_secret: s}}, b: {}}";
    let Access::Keystone(keystone) = of_yaml(yaml, Some("a")).unwrap().access else { panic!() };
    assert!(matches!(keystone.identity, Identity::ApplicationCredential { credential: Credential::Id(_), .. }));
}

#[test]
fn all_missing_values_are_reported_at_once_with_file_key_and_remedy() {
    let problems = of_file("[Global]\nauth-url = keystone\nusername=u\n").unwrap_err();
    for says in [
        "[Global] of cloud.conf: auth-url is wrong: `keystone` is no address",
        "[Global] of cloud.conf: password is missing: the user's password",
        "[Global] of cloud.conf: tenant-name is missing",
    ] {
        assert!(problems.contains(says), "{says} in {problems}");
    }
    for (text, says) in [
        ("[LoadBalancer]\n", "no section [Global]"),
        ("[Global\n", "cloud.conf cannot be read"),
        ("[Global]\ncinder-endpoint=http://c:8776/v3\n", "tenant-name is missing"),
        ("[Global]\ncinder-endpoint=http://c:8776/v3\ntenant-name=a/b\n", "tenant-name is wrong"),
        ("[Global]\ncinder-endpoint=http://c:8776/v3\ntenant-name=a\ntls-insecure=true\n", "ca-file"),
        ("[Global]\nauth-url=http://k/v3\napplication-credential-id=x\n", "application-credential-secret is missing"),
    ] {
        let problems = of_file(text).expect_err(text);
        assert!(problems.contains(says), "{text}: {problems}");
    }
    for (text, chosen, says) in [
        ("clouds: {a: {}, b: {}}", None, "several clouds, a, b"),
        ("clouds: {a: {}}", Some("c"), "no cloud `c`; it has: a"),
        ("{}", None, "has no clouds"),
        ("password: [", None, "is not a clouds.yaml"),
    ] {
        let problems = of_yaml(text, chosen).expect_err(text);
        assert!(problems.contains(says), "{text}: {problems}");
    }
}

#[test]
fn no_printed_text_contains_a_password() {
    let secret = "hunter-two";
    let clouds = [
        of_file(&format!("[Global]\nauth-url=http://k/v3\nusername=u\npassword={secret}\ntenant-id=t\n")),
        of_file(&format!("[Global]\nauth-url=k\nusername=u\npassword={secret}\n")),
        of_file(&format!("[Global\npassword={secret}\n")),
        of_yaml(&format!("clouds: {{a: {{auth: {{password: {secret}, auth_url: [}}}}"), None),
        of_env(&[("OS_AUTH_URL", "x"), ("OS_PASSWORD", secret)]),
    ];
    for cloud in clouds {
        assert!(!format!("{cloud:?}").contains(secret), "{cloud:?}");
    }
}

#[test]
fn a_name_that_resembles_a_key_is_noted_and_one_of_another_program_is_not() {
    let near = |raw: &raw::Raw| -> Vec<String> {
        let names = |note: &String| {
            let (_, names) = note.split_once(" has `").unwrap();
            names.split('`').step_by(2).take(2).collect::<Vec<_>>().join(" ")
        };
        raw.notes(&FORMATS).iter().map(names).collect()
    };
    let conf = "[Global]\nauth-url=http://k/v3\nregoin=RegionTwo\nregion_name=b\nUserName=u\npasword=p\ncacert=/x\n\
                trust-id=t\nuse-clouds=true\nkey-file=/x\n[LoadBalancer]\nregoin=x\n";
    let mut found = near(&file::raw(conf, "cloud.conf").unwrap());
    found.sort();
    assert_eq!(found, ["cacert ca-file", "pasword password", "region_name region", "regoin region"]);
    let names = ["OS_REGION", "OS_TENNANT_NAME", "OS_USERNAME", "OS_TRUST_ID", "OSTYPE", "REGION", "OS_CA_FILE"];
    let found = near(&env::raw(|_| None, names.iter().map(|name| (*name).to_owned())));
    assert_eq!(found, ["OS_REGION OS_REGION_NAME", "OS_TENNANT_NAME OS_TENANT_NAME", "OS_CA_FILE OS_CACERT"]);
    let yaml =
        "clouds: {a: {region: b, identity_api_version: 3, profile: x, auth: {auth_url: 'http://k', usernme: u}}}";
    let mut found = near(&yaml::raw(yaml, "clouds.yaml", None).unwrap());
    found.sort();
    assert_eq!(found, ["auth.usernme auth.username", "region region_name"]);
}

#[test]
fn a_file_is_found_among_the_secrets_and_two_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let secrets = directory.path().display().to_string();
    let read = |more: Option<String>| {
        let env = |name: &str| match name {
            "FLEX_SECRETS_DIRECTORY" => Some(secrets.clone()),
            "CLOUD_CONFIG" => more.clone(),
            _ => None,
        };
        read(env, std::iter::empty())
    };
    let nothing = read(None).unwrap_err();
    assert!(nothing.message.contains("no cloud is configured") && nothing.code == 77, "{nothing:?}");
    std::fs::create_dir_all(directory.path().join("one")).unwrap();
    std::fs::create_dir_all(directory.path().join("two")).unwrap();
    let conf = directory.path().join("one/cloud.conf");
    std::fs::write(&conf, "[Global]\ncinder-endpoint=http://c:8776/v2\ntenant-name=t\n").unwrap();
    assert!(read(None).unwrap().origin.contains("one/cloud.conf"));
    std::fs::write(directory.path().join("two/clouds.yaml"), "clouds: {}").unwrap();
    let both = read(None).unwrap_err();
    assert!(both.message.contains("one/cloud.conf") && both.message.contains("cloud-config"), "{both:?}");
    assert!(read(Some(conf.display().to_string())).is_ok());
    let gone = read(Some("/nowhere/cloud.conf".into())).unwrap_err();
    assert!(gone.message.contains("/nowhere/cloud.conf cannot be read"), "{gone:?}");
}

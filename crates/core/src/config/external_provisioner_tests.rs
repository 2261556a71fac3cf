use super::*;

fn lease(namespace: &str, holder: &str, version: &str) -> Lease {
    Lease {
        name: ObjectName::new(namespace, "ebs-csi-aws-com"),
        holder: holder.into(),
        version: version.into(),
        term: LEASE_TERM,
        renewed: 1000,
    }
}

/// Returns the namespaces whose Leases count in these tests.
fn all() -> BTreeSet<String> {
    ["kube-system", "old", "new", "a"].map(str::to_owned).into()
}

fn elsewhere(lease: &Lease) -> LeaseCheck {
    LeaseCheck { elsewhere: Some(lease.name.clone()), ..ExternalProvisioner::Gone.into() }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(100 + seconds)
}

#[test]
fn the_lease_has_the_name_of_the_driver() {
    for (driver, name) in [
        ("ebs.csi.aws.com", "ebs-csi-aws-com"),
        ("cluster.local/nfs-subdir", "cluster.local-nfs-subdir"),
        ("odd.", "odd-X"),
    ] {
        assert_eq!(lease_name(driver), name);
    }
}

#[test]
fn a_lease_counts_for_one_term_after_its_last_observed_renewal() {
    let mut watched = LeaseWatch::default();
    assert_eq!(watched.check(&[], &all(), at(0)).provisioner, ExternalProvisioner::Gone);
    let held = lease("kube-system", "a", "1");
    assert_eq!(watched.check(std::slice::from_ref(&held), &all(), at(0)).provisioner, held.state());
    assert_eq!(watched.check(std::slice::from_ref(&held), &all(), at(14)).provisioner, held.state());
    let renewed = lease("kube-system", "a", "2");
    assert_eq!(watched.check(std::slice::from_ref(&renewed), &all(), at(14)).provisioner, renewed.state());
    assert_eq!(watched.check(std::slice::from_ref(&renewed), &all(), at(28)).provisioner, renewed.state());
    assert_eq!(watched.check(std::slice::from_ref(&renewed), &all(), at(29)).provisioner, ExternalProvisioner::Gone);
    // Another holder takes the Lease over.
    let other = lease("kube-system", "b", "3");
    assert_eq!(watched.check(std::slice::from_ref(&other), &all(), at(60)).provisioner, other.state());
    // A released Lease is not waited for.
    assert_eq!(watched.check(&[lease("kube-system", "", "4")], &all(), at(61)).provisioner, ExternalProvisioner::Gone);
    // A Lease that was deleted and created again counts as new.
    assert_eq!(watched.check(&[], &all(), at(62)).provisioner, ExternalProvisioner::Gone);
    assert_eq!(watched.check(std::slice::from_ref(&other), &all(), at(90)).provisioner, other.state());
}

#[test]
fn a_stale_lease_of_another_namespace_hides_no_live_one() {
    let mut watched = LeaseWatch::default();
    let (stale, held) = (lease("old", "a", "1"), lease("new", "b", "1"));
    assert_eq!(watched.check(std::slice::from_ref(&stale), &all(), at(0)).provisioner, stale.state());
    for leases in [[stale.clone(), held.clone()], [held.clone(), stale.clone()]] {
        assert_eq!(watched.check(&leases, &all(), at(20)).provisioner, held.state());
    }
}

#[test]
fn a_single_check_goes_by_the_clock() {
    let held = lease("a", "x", "1");
    assert_eq!(check_once(std::slice::from_ref(&held), &all(), 1029).provisioner, held.state());
    assert_eq!(check_once(std::slice::from_ref(&held), &all(), 900).provisioner, held.state());
    assert_eq!(check_once(std::slice::from_ref(&held), &all(), 1030).provisioner, ExternalProvisioner::Gone);
    assert_eq!(check_once(&[lease("a", "", "1")], &all(), 1000).provisioner, ExternalProvisioner::Gone);
}

#[test]
fn without_a_cluster_no_provisioner_runs_and_with_one_it_is_unknown_at_first() {
    assert_eq!(ExternalProvisioners::none().of("d"), &ExternalProvisioner::Gone);
    assert_eq!(ExternalProvisioners::default().of("d"), &ExternalProvisioner::Unknown(None));
    let known = ExternalProvisioners::new([("d".to_owned(), ExternalProvisioner::Gone.into())]);
    assert_eq!((known.of("d"), known.of("e")), (&ExternalProvisioner::Gone, &ExternalProvisioner::Unknown(None)));
}

#[test]
fn a_lease_counts_only_in_a_namespace_that_an_admin_names() {
    let identity = Identity {
        provisioner: "p".into(),
        plugin: "p".into(),
        instance: "i".into(),
        config_namespaces: vec!["admin".into()],
        namespace: "n".into(),
        shell_image: None,
        cluster: String::new(),
    };
    let config = |keys: &[(&str, &str)]| Config {
        name: ObjectName::new("admin", "c"),
        data: keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..Config::default()
    };
    let counted = |configs: &[Config]| replaced_drivers(&identity, configs).remove("d").unwrap_or_default().namespaces;
    let stands = (keys::REPLACES_PROVISIONER.name, "d");
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(counted(&[config(&[stands])]), set(&["admin", "kube-system"]), "without the key");
    let named = config(&[stands, (keys::REPLACES_PROVISIONER_NAMESPACE.name, "rook, ceph")]);
    assert_eq!(counted(std::slice::from_ref(&named)), set(&["ceph", "rook"]), "these alone");
    assert_eq!(counted(&[named, config(&[stands])]), set(&["admin", "ceph", "kube-system", "rook"]), "of all");

    let removed = &drivers_of("rancher.io/local-path", None)["rancher.io/local-path"];
    assert_eq!(removed.of_leases(&[]), set(&["kube-system"]), "not where nobody is any more");
    let there = ObjectName::new("local-path-storage", "local-path-provisioner");
    let there = Deployment { name: there.clone(), account: there, wanted: 0, present: 0 };
    assert_eq!(removed.of_leases(&[there]), set(&["kube-system", "local-path-storage"]));

    let (own, theirs) = (lease("team", "tom", "1"), lease("kube-system", "a", "1"));
    let namespaces = set(&["kube-system"]);
    let elsewhere = elsewhere(&own);
    let mut watched = LeaseWatch::default();
    assert_eq!(watched.check(std::slice::from_ref(&own), &namespaces, at(0)), elsewhere, "a tenant stops no class");
    assert_eq!(check_once(std::slice::from_ref(&own), &namespaces, 1000), elsewhere);
    for both in [[own.clone(), theirs.clone()], [theirs.clone(), own.clone()]] {
        let found = LeaseCheck { provisioner: theirs.state(), ..elsewhere.clone() };
        assert_eq!(watched.check(&both, &namespaces, at(1)), found, "and hides no other Lease");
        assert_eq!(check_once(&both, &namespaces, 1000), found);
    }
    assert_eq!(
        watched.check(std::slice::from_ref(&own), &namespaces, at(30)).elsewhere,
        None,
        "the Lease is not renewed"
    );
    let long = lease("kube-system", &"x\n".repeat(1000), "1").state();
    let ExternalProvisioner::Live { holder, .. } = long else { panic!("{long:?}") };
    assert!(holder.len() <= HOLDER && !holder.contains('\n'), "{holder}");
}

#[test]
fn a_deployment_blocks_while_it_has_or_wants_a_replica() {
    let name = ObjectName::new("a", "b");
    let named = BTreeSet::from([name.clone()]);
    for (wanted, present, blocks) in [(1, 1, true), (0, 1, true), (1, 0, true), (0, 0, false)] {
        let found = Deployment { name: name.clone(), account: ObjectName::new("a", "c"), wanted, present };
        let state = by_deployments("x.io/y", &named, &[found]);
        let ByDeployment::Blocking(state) = state else {
            assert_eq!((state, blocks), (ByDeployment::Stopped, false), "{wanted} wanted, {present} present");
            continue;
        };
        assert!(blocks, "{wanted} wanted, {present} present");
        let why = state.blocking_reason("x.io/y", &[]).unwrap();
        assert!(why.contains("kubectl -n a scale deployment b --replicas=0"), "{why}");
    }
}

#[test]
fn a_deployment_that_does_not_exist_is_reported_and_stops_no_class() {
    let named = BTreeSet::from([ObjectName::new("a", "b")]);
    let missing = by_deployments("x.io/y", &named, &[]);
    assert_eq!(missing, ByDeployment::Missing(named.clone()));
    let check = LeaseCheck::from(ExternalProvisioner::Gone).and(missing);
    let all = ExternalProvisioners::new([("x.io/y".to_owned(), check)]);
    assert_eq!((all.of("x.io/y"), all.missing("x.io/y")), (&ExternalProvisioner::Gone, Some(&named)));
    assert!(is_missing("x.io/y", &named).contains("(a/b)"));
}

#[test]
fn a_provisioner_without_a_known_deployment_is_unknown_unless_it_is_a_driver() {
    assert_eq!(by_deployments("ebs.csi.aws.com", &BTreeSet::new(), &[]), ByDeployment::Stopped);
    let state = by_deployments("x.io/y", &BTreeSet::new(), &[]);
    let ByDeployment::Blocking(ExternalProvisioner::Unknown(Some(why))) = state else { panic!("{state:?}") };
    assert!(why.contains("replaces-deployment"), "{why}");
}

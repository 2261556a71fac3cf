//! The flags of the control plane's components, and the files for them.
//!
//! Each flag that differs from a usual installation has a reason, which `README.md` beside this crate gives.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::authority::{Authority, write};
use crate::component::{ClientLimits, Component};
use crate::kubeconfig::{User, write_kubeconfig};
use crate::state::State;

/// Writes keys, certificates and kubeconfigs of the control plane.
pub(crate) fn write_credentials(state: &State) -> Result<Authority> {
    let authority = Authority::create(&state.pki())?;
    authority.token_key_files()?;
    authority.server_files(
        "kube-apiserver",
        &["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"],
        &state.api_addresses(),
    )?;
    authority.client_files("apiserver-to-kubelet", "kube-apiserver", "system:masters")?;
    let server = format!("https://{}", state.api);
    let mut tokens = String::new();
    let mut write_for = |path: &Path, user: &str, group: &str| -> Result<()> {
        let credential = match state.node {
            Some(_) => User::Certificate(authority.client(user, group)?),
            // Each request verifies a certificate, which takes a tenth of the request's time.
            None => {
                let token = new_token()?;
                tokens.push_str(&format!("{token},{user},{user},{group}\n"));
                User::Token(token)
            }
        };
        write_kubeconfig(path, &state.name, &server, &authority, &credential)
    };
    write_for(&state.kubeconfig(), "flex-cluster-admin", "system:masters")?;
    for (component, user) in [
        (Component::ControllerManager, "system:kube-controller-manager"),
        (Component::Scheduler, "system:kube-scheduler"),
        (Component::Proxy, "system:kube-proxy"),
    ] {
        write_for(&state.kubeconfig_of(component), user, "")?;
    }
    for node in state.nodes() {
        write_for(&state.kubeconfig_of_kubelet(&node), &format!("system:node:{}", node.name), "system:nodes")?;
    }
    if !tokens.is_empty() {
        write(&tokens_file(state), &tokens)?;
    }
    Ok(authority)
}

/// Returns the file of the users with tokens, where there is no node.
fn tokens_file(state: &State) -> PathBuf {
    state.pki().join("tokens.csv")
}

fn new_token() -> Result<String> {
    let mut bytes = [0; 24];
    fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes)).context("make a token")?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Starts etcd.
pub(crate) fn start_etcd(state: &mut State) -> Result<()> {
    let data = state.etcd_data.clone();
    fs::create_dir_all(&data).with_context(|| format!("create {}", data.display()))?;
    let (url, peer) = (state.etcd_url(), state.etcd_peer_url());
    let args = vec![
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--log-level=warn".into(),
        "--logger=zap".into(),
    ];
    state.start(Component::Etcd, Path::new("etcd"), args)
}

/// Starts the API server. `extra` flags come last and so win over the ones here.
pub(crate) fn start_api_server(state: &mut State, extra: &[String]) -> Result<()> {
    let policy = state.root.join("audit-policy.yaml");
    // Metadata: the sender, object and time of each request, without bodies. The stage RequestReceived would only
    // double the lines.
    write(
        &policy,
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n",
    )?;
    let pki = state.pki();
    let pki = pki.display();
    let address = state.api.ip();
    let mut args = vec![
        format!("--etcd-servers={}", state.etcd_url()),
        format!("--bind-address={address}"),
        format!("--advertise-address={address}"),
        format!("--secure-port={}", state.api.port()),
        format!("--service-cluster-ip-range={}", state.service_range()),
        format!("--tls-cert-file={pki}/kube-apiserver.crt"),
        format!("--tls-private-key-file={pki}/kube-apiserver.key"),
        format!("--client-ca-file={pki}/ca.crt"),
        format!("--kubelet-certificate-authority={pki}/ca.crt"),
        format!("--kubelet-client-certificate={pki}/apiserver-to-kubelet.crt"),
        format!("--kubelet-client-key={pki}/apiserver-to-kubelet.key"),
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={pki}/service-accounts.pub"),
        format!("--service-account-signing-key-file={pki}/service-accounts.key"),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--allow-privileged=true".into(),
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}/audit.log", state.logs().display()),
    ];
    if state.node.is_none() {
        args.push(format!("--token-auth-file={}", tokens_file(state).display()));
    }
    if address.is_loopback() {
        // The service `kubernetes` must not point to a loopback address; without nodes nothing would follow it.
        args.push("--endpoint-reconciler-type=none".into());
    }
    args.extend_from_slice(extra);
    state.start_kubernetes(Component::ApiServer, args)
}

/// The controllers that make and bind claims, those for Jobs, and the ones on which these rest. Most others watch pods
/// and more objects, and have nothing to do in a test without a kubelet.
pub(crate) const FEW_CONTROLLERS: [&str; 21] = [
    "clusterrole-aggregation-controller",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
];

/// Starts the controller manager, with further flags.
pub(crate) fn start_controller_manager(state: &mut State, limits: ClientLimits, more: &[String]) -> Result<()> {
    let pki = state.pki();
    let pki = pki.display();
    let mut args = vec![
        format!("--kubeconfig={}", state.kubeconfig_of(Component::ControllerManager).display()),
        format!("--bind-address={}", state.api.ip()),
        format!("--secure-port={}", state.health_address(Component::ControllerManager).port()),
        // Otherwise it makes its default directory under /usr.
        format!("--flex-volume-plugin-dir={}/volume-plugins", state.root.display()),
        format!("--root-ca-file={pki}/ca.crt"),
        format!("--cluster-signing-cert-file={pki}/ca.crt"),
        format!("--cluster-signing-key-file={pki}/ca.key"),
        format!("--service-account-private-key-file={pki}/service-accounts.key"),
        "--use-service-account-credentials=true".into(),
        "--leader-elect=false".into(),
    ];
    if state.node.is_none() {
        // A test's nodes are objects without a kubelet that would renew them: they live as long as the test.
        args.extend(["--node-startup-grace-period=24h".into(), "--node-monitor-grace-period=24h".into()]);
    }
    args.extend(limits.flags());
    args.extend_from_slice(more);
    state.start_kubernetes(Component::ControllerManager, args)
}

/// Starts the scheduler.
pub(crate) fn start_scheduler(state: &mut State, limits: ClientLimits) -> Result<()> {
    let mut args = vec![
        format!("--kubeconfig={}", state.kubeconfig_of(Component::Scheduler).display()),
        format!("--bind-address={}", state.api.ip()),
        format!("--secure-port={}", state.health_address(Component::Scheduler).port()),
        "--leader-elect=false".into(),
    ];
    args.extend(limits.flags());
    state.start_kubernetes(Component::Scheduler, args)
}

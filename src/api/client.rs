//! The connection to the API server, as kubectl makes it: with the same kubeconfig and through the same proxy.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use flex_contract::api::without_field_validation;
use http::header::USER_AGENT;
use http::{HeaderName, HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tower::util::{MapRequestLayer, option_layer};

use super::measure::MeasureLayer;
use super::pages;
use crate::clock::Clock;
use crate::metrics::Metrics;

/// The longest duration of an API request. A hung connection must not block a worker forever. Watches end earlier by
/// themselves, and the server sends bookmarks meanwhile.
const READ: Duration = Duration::from_secs(240);
const CONNECT: Duration = Duration::from_secs(5);

/// The cluster and the user that flags choose, as those of kubectl do.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The kubeconfig, in place of that of the environment.
    pub kubeconfig: Option<PathBuf>,
    /// The context, in place of the kubeconfig's current one.
    pub context: Option<String>,
    /// The user to act as.
    pub user: Option<String>,
    /// The groups to act as.
    pub groups: Vec<String>,
}

/// A connection to a cluster.
pub struct Connection {
    /// The client.
    pub client: Client,
    /// The address of the API server.
    pub address: String,
    /// The namespace of the context, or that of the pod.
    pub namespace: String,
    /// A kubeconfig has chosen the namespace, so that it is a person's.
    pub has_context: bool,
    /// The time in the cluster.
    pub clock: Clock,
}

/// Connects with the kubeconfig of the environment, or as a pod. The metrics count all requests of the client.
///
/// # Errors
/// If neither exists or is readable, or if the environment names an invalid proxy. The message says which were tried.
pub async fn connect(metrics: &Metrics) -> anyhow::Result<(Client, String)> {
    let Connection { client, address, .. } = connection(&Access::default(), Some(metrics)).await?;
    Ok((client, address))
}

/// Connects to the cluster, and as the user, that flags choose. Without flags, connects as [`connect`] does.
///
/// # Errors
/// If the kubeconfig or its context does not exist, or as [`connect`].
pub async fn connect_as(access: &Access) -> anyhow::Result<Connection> {
    connection(access, None).await
}

async fn connection(access: &Access, metrics: Option<&Metrics>) -> anyhow::Result<Connection> {
    // If one binary had two crypto providers, rustls would panic at its first use.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (mut config, kubeconfig) = match (&access.kubeconfig, &access.context) {
        (None, None) => (inferred().await?, Kubeconfig::read().ok()),
        (Some(file), _) => {
            let read = Kubeconfig::read_from(file).with_context(|| {
                format!("the kubeconfig {} cannot be read: name another with --kubeconfig", file.display())
            })?;
            (chosen(&read, access.context.as_deref()).await?, Some(read))
        }
        (None, Some(context)) => {
            let read = Kubeconfig::read().with_context(|| {
                format!("no kubeconfig has context {context}: set KUBECONFIG, or name a file with --kubeconfig")
            })?;
            (chosen(&read, Some(context)).await?, Some(read))
        }
    };
    if let Some(user) = &access.user {
        config.auth_info.impersonate = Some(user.clone());
        config.auth_info.impersonate_groups = Some(access.groups.clone()).filter(|groups| !groups.is_empty());
    }
    let has_context = kubeconfig.is_some();
    let named = kubeconfig.and_then(|kubeconfig| proxy_of(&kubeconfig, access.context.as_deref()));
    let namespace = config.default_namespace.clone();
    let (client, address) = through(config, named, metrics, |name| std::env::var(name).ok())?;
    Ok(Connection { client, address, namespace, has_context, clock: Clock::default() })
}

/// A server that is no API server of Kubernetes.
#[derive(Debug)]
pub struct OtherServer {
    /// The address, without a path.
    pub address: Uri,
    /// The file with the authorities that may have signed its certificate, in place of those of this machine.
    pub authorities: Option<PathBuf>,
    /// Headers of each request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The longest duration of a request.
    pub timeout: Duration,
}

/// Makes a client of a server that is no API server, through the proxy that the environment names.
///
/// # Errors
/// If the file of authorities cannot be read, or the environment names an invalid proxy.
pub fn other_server(server: OtherServer) -> anyhow::Result<Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let OtherServer { address, authorities, headers, timeout } = server;
    let mut config = Config::new(address);
    if let Some(file) = authorities {
        let wrong = || format!("{} has no certificates: name a file with certificates as PEM", file.display());
        let read = CertificateDer::pem_file_iter(&file).with_context(wrong)?;
        let read: Vec<_> = read.map(|one| one.map(|one| one.to_vec())).collect::<Result<_, _>>().with_context(wrong)?;
        anyhow::ensure!(!read.is_empty(), wrong());
        config.root_cert = Some(read);
    }
    config.proxy_url = proxy(&config.cluster_url, None, |name| std::env::var(name).ok())?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(timeout);
    config.default_retry = false;
    config.headers = headers;
    config.headers.push((USER_AGENT, user_agent()));
    Ok(ClientBuilder::try_from(config).context("no client can be made")?.build())
}

/// Returns the config of the environment or of the pod.
async fn inferred() -> anyhow::Result<Config> {
    Config::infer().await.map_err(|error| {
        let what = match is_no_proxy(&error) {
            true => NO_PROXY,
            false => "no access to a cluster: set KUBECONFIG, or run as a pod with a ServiceAccount token",
        };
        anyhow::Error::new(error).context(what)
    })
}

/// Returns the config of a context of a kubeconfig.
async fn chosen(kubeconfig: &Kubeconfig, context: Option<&str>) -> anyhow::Result<Config> {
    let known: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    let among = match known.as_slice() {
        [] => "it has no contexts: name another file with --kubeconfig".to_owned(),
        known => format!("name one of its contexts with --context: {}", known.join(", ")),
    };
    match context.or(kubeconfig.current_context.as_deref()) {
        Some(name) if known.contains(&name) => {}
        Some(name) => bail!("the kubeconfig has no context {name}: {among}"),
        None => bail!("the kubeconfig has no current context: {among}"),
    }
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await.map_err(|error| {
        let what = if is_no_proxy(&error) { NO_PROXY } else { "the kubeconfig cannot be used" };
        anyhow::Error::new(error).context(what)
    })
}

/// The message for a `NO_PROXY` that cannot be read. kubectl ignores such entries. The client reads them before it can be
/// configured not to.
const NO_PROXY: &str = "NO_PROXY cannot be read: write hosts, domains and networks, separated by single commas";

fn is_no_proxy(error: &impl std::fmt::Debug) -> bool {
    format!("{error:?}").contains("ParseNoProxy")
}

/// Returns the proxy that a kubeconfig names for the cluster of a context, or of its current one.
fn proxy_of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|one| one.name == context)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|one| one.name == context.cluster)?.cluster.as_ref()?;
    cluster.proxy_url.clone().filter(|url| !url.is_empty())
}

/// Builds a client from a config, with the proxy that the kubeconfig or the environment names. The metrics count its
/// requests.
fn through(
    mut config: Config,
    named: Option<String>,
    metrics: Option<&Metrics>,
    environment: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<(Client, String)> {
    // The client would derive its own settings from the address of the proxy, and not from that of the cluster.
    config.proxy_url = proxy(&config.cluster_url, named, environment)?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(READ);
    config.headers.push((USER_AGENT, user_agent()));
    let address = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let builder = ClientBuilder::try_from(config).context("the kubeconfig cannot be used")?;
    let client = builder
        .with_layer(&MapRequestLayer::new(without_field_validation::<Body>))
        .with_layer(&option_layer(metrics.map(MeasureLayer::new)))
        .build();
    Ok((pages::bounded(&client), address))
}

/// Returns the proxy for a cluster. A proxy in the kubeconfig always applies. A proxy in the environment applies unless
/// `NO_PROXY` names the cluster or the cluster is on this machine.
fn proxy(
    cluster: &Uri,
    named: Option<String>,
    environment: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<Uri>> {
    let (what, url) = match named {
        Some(url) => ("proxy-url of the kubeconfig".to_owned(), url),
        None => {
            let set = |name: &str| {
                let names = [name.to_owned(), name.to_lowercase()];
                names.into_iter().find_map(|name| Some((environment(&name).filter(|value| !value.is_empty())?, name)))
            };
            let name = if cluster.scheme_str() == Some("http") { "HTTP_PROXY" } else { "HTTPS_PROXY" };
            let Some((url, what)) = set(name) else { return Ok(None) };
            let no = set("NO_PROXY").map(|(no, _)| no).unwrap_or_default();
            if is_here(cluster) || is_excepted(cluster, &no) {
                return Ok(None);
            }
            (what, url)
        }
    };
    let whole = if url.contains("://") { url.clone() } else { format!("http://{url}") };
    let parsed = whole.parse::<Uri>().ok().filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
    // The message does not contain the proxy's address, which may have a password.
    let parsed = parsed.with_context(|| format!("{what} is not the URL of a proxy; write http://HOST:PORT"))?;
    Ok(Some(parsed))
}

fn is_here(cluster: &Uri) -> bool {
    let host = cluster.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Checks whether a cluster is among the exceptions from the proxy. These are hosts, domains, addresses and networks,
/// each also with a port.
fn is_excepted(cluster: &Uri, no: &str) -> bool {
    let port = cluster.port_u16().unwrap_or(if cluster.scheme_str() == Some("http") { 80 } else { 443 });
    let entries = no.split([',', ' ']).map(str::trim).filter(|entry| !entry.is_empty());
    let hosts = entries.filter_map(|entry| match entry.rsplit_once(':') {
        Some((host, of)) if !host.contains(':') => (of.parse::<u16>() == Ok(port)).then_some(host),
        _ => Some(entry),
    });
    // Some write `*.example.com` for `.example.com`.
    let hosts: Vec<_> =
        hosts.map(|host| host.strip_prefix('*').filter(|rest| !rest.is_empty()).unwrap_or(host)).collect();
    let any = "http://proxy";
    Matcher::builder().http(any).https(any).no(hosts.join(",")).build().intercept(cluster).is_none()
}

/// Returns the user agent for the audit log: `flex-provisioner/VERSION (OS/ARCHITECTURE)`.
fn user_agent() -> HeaderValue {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let text = format!("flex-provisioner/{} ({}/{architecture})", env!("CARGO_PKG_VERSION"), std::env::consts::OS);
    HeaderValue::from_str(&text).expect("a version, and names of systems, are plain text")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    fn chosen(cluster: &str, named: Option<&str>, environment: &[(&str, &str)]) -> Result<String, String> {
        let of = |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        proxy(&cluster.parse().unwrap(), named.map(str::to_owned), of)
            .map(|proxy| proxy.map(|proxy| proxy.to_string()).unwrap_or_default())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_proxy_is_chosen_as_kubectl_chooses_it() {
        let https = [("HTTPS_PROXY", "http://proxy:3128")];
        let to = |cluster: &str, no: &str| chosen(cluster, None, &[https[0], ("NO_PROXY", no)]).unwrap();
        const PROXY: &str = "http://proxy:3128/";
        for (cluster, no, expected) in [
            ("https://api.example.com:6443", "", PROXY),
            ("https://api.example.com:6443", "other.example", PROXY),
            ("https://api.example.com:6443", "example.com", ""),
            ("https://api.example.com:6443", ".example.com,", ""),
            ("https://api.example.com:6443", "a, *.example.com", ""),
            ("https://api.example.com:6443", "*", ""),
            ("https://api.example.com:6443", "api.example.com:6443", ""),
            ("https://api.example.com:6443", "api.example.com:443", PROXY),
            ("https://badexample.com", "example.com", PROXY),
            ("https://10.1.2.3:6443", "10.0.0.0/8", ""),
            ("https://10.1.2.3:6443", "10.1.2.3", ""),
            ("https://10.1.2.3:6443", "11.0.0.0/8,proxy", PROXY),
            ("https://[fd00::1]:6443", "fd00::/8", ""),
            ("https://127.0.0.1:6443", "", ""),
            ("https://[::1]:6443", "", ""),
            ("https://localhost:6443", "", ""),
            ("http://api.example.com", "", ""),
        ] {
            assert_eq!(to(cluster, no), expected, "{cluster} without {no:?}");
        }
        let cluster = "https://api.example.com";
        let lower = [("https_proxy", "proxy:1"), ("no_proxy", "other")];
        assert_eq!(chosen(cluster, None, &lower).as_deref(), Ok("http://proxy:1/"), "lower case, and without a scheme");
        let both = [("HTTPS_PROXY", "http://upper"), ("https_proxy", "http://lower")];
        assert_eq!(chosen(cluster, None, &both).as_deref(), Ok("http://upper/"));
        let named = chosen("https://127.0.0.1", Some("socks5://s:1"), &[https[0], ("NO_PROXY", "*")]);
        assert_eq!(named.as_deref(), Ok("socks5://s:1/"), "the proxy of a kubeconfig is for its cluster alone");
        assert_eq!(chosen("http://a", None, &[("HTTP_PROXY", "http://h"), https[0]]).as_deref(), Ok("http://h/"));
        let wrong = chosen(cluster, None, &[("https_proxy", "http://user:secret@")]).unwrap_err();
        assert!(
            wrong.contains("https_proxy") && wrong.contains("http://HOST:PORT") && !wrong.contains("secret"),
            "{wrong}"
        );
    }

    /// Runs a proxy that answers as the server behind it. Returns all lines of both requests that it got.
    async fn asked(environment: impl Fn(String) -> Vec<(String, String)>) -> Vec<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut lines = Vec::new();
            let body = r#"{"metadata":{"name":"a"}}"#;
            let answers = [
                "HTTP/1.1 200 OK\r\n\r\n".to_owned(),
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                ),
            ];
            for answer in answers {
                loop {
                    let mut line = String::new();
                    stream.read_line(&mut line).await.unwrap();
                    if line.trim().is_empty() {
                        break;
                    }
                    lines.push(line.trim().to_owned());
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            lines
        });
        let environment = environment(address);
        let of = |name: &str| environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        let (client, _) = through(Config::new("http://api.example:80".parse().unwrap()), None, None, of).unwrap();
        Api::<ConfigMap>::default_namespaced(client).get("a").await.expect("the proxy leads to the server");
        serving.await.unwrap()
    }

    #[tokio::test]
    async fn requests_use_the_proxy_and_name_the_program() {
        let lines = asked(|address| vec![("http_proxy".into(), format!("http://tom:a%40b@{address}"))]).await;
        assert_eq!(lines[0], "CONNECT api.example:80 HTTP/1.1");
        let has = |name: &str, says: &str| {
            let line =
                lines.iter().find(|line| line.to_lowercase().starts_with(name)).unwrap_or_else(|| panic!("{lines:?}"));
            assert!(line.contains(says), "{line}");
        };
        has("proxy-authorization:", "Basic ");
        has("user-agent:", &format!("flex-provisioner/{} (linux/", env!("CARGO_PKG_VERSION")));
        assert_eq!(lines.iter().filter(|line| line.to_lowercase().starts_with("proxy-authorization")).count(), 1);
    }

    const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: home
clusters:
- {name: near, cluster: {server: "http://near.example:8001"}}
- {name: far, cluster: {server: "http://far.example:8001", proxy-url: "http://proxy.example:3128"}}
users: []
contexts:
- {name: home, context: {cluster: near, user: ""}}
- {name: away, context: {cluster: far, user: "", namespace: team}}
"#;

    #[tokio::test]
    async fn a_context_chooses_cluster_and_namespace_and_proxy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        std::fs::write(&file, KUBECONFIG).unwrap();
        let of = |context: Option<&str>, file: &std::path::Path| Access {
            kubeconfig: Some(file.to_path_buf()),
            context: context.map(str::to_owned),
            ..Access::default()
        };
        for (context, address, namespace) in [
            (None, "http://near.example:8001", "default"),
            (Some("home"), "http://near.example:8001", "default"),
            (Some("away"), "http://far.example:8001", "team"),
        ] {
            let connection = connect_as(&of(context, &file)).await.unwrap();
            assert_eq!((connection.address.as_str(), connection.namespace.as_str()), (address, namespace));
            assert!(connection.has_context);
        }
        let kubeconfig = Kubeconfig::read_from(&file).unwrap();
        assert_eq!(proxy_of(&kubeconfig, None), None);
        assert_eq!(proxy_of(&kubeconfig, Some("away")).as_deref(), Some("http://proxy.example:3128"));
        let error = connect_as(&of(Some("gone"), &file)).await.err().unwrap();
        assert_eq!(
            error.to_string(),
            "the kubeconfig has no context gone: name one of its contexts with --context: home, away"
        );
        let absent = folder.path().join("absent");
        let error = connect_as(&of(None, &absent)).await.err().unwrap().to_string();
        assert!(error.ends_with("absent cannot be read: name another with --kubeconfig"), "{error}");
        std::fs::write(&file, "").unwrap();
        let error = connect_as(&of(None, &file)).await.err().unwrap().to_string();
        assert_eq!(
            error,
            "the kubeconfig has no current context: it has no contexts: name another file with --kubeconfig"
        );
    }
}

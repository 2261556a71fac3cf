//! The connection to the driver: a unix socket, or TCP with mutual TLS.

use std::error::Error;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use flex_image_kit::Failure;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

use crate::endpoint::Endpoint;
use crate::parameters::Parameters;

/// The time for one attempt to connect.
const ATTEMPT: Duration = Duration::from_secs(5);
/// The time that a starting driver has to open its socket to the user of this image.
const DENIED_GRACE: Duration = Duration::from_millis(500);

/// Connects as soon as the driver answers.
///
/// # Errors
/// If the driver does not answer until `until`, or does not accept the image. The message says what to do.
pub async fn connect(parameters: &Parameters, until: Instant) -> Result<Channel, Failure> {
    let tls = match &parameters.endpoint {
        Endpoint::Socket(_) => None,
        Endpoint::Tcp(..) => Some(tls(parameters)?),
    };
    let mut pause = Duration::from_millis(20);
    let mut denied_until = None;
    loop {
        let problem = match (&parameters.endpoint, &tls) {
            (Endpoint::Socket(path), _) => match socket(path).await {
                Ok(channel) => return Ok(channel),
                Err(Ok(problem)) => problem,
                // A driver that starts makes its socket first, and then lets others use it.
                Err(Err(denied))
                    if Instant::now() < *denied_until.get_or_insert_with(|| Instant::now() + DENIED_GRACE) =>
                {
                    denied.to_string()
                }
                Err(Err(denied)) => return Err(denied),
            },
            (Endpoint::Tcp(host, port), Some(tls)) => match tcp(host, *port, tls.clone()).await {
                Ok(channel) => return Ok(channel),
                Err(problem) => problem,
            },
            (Endpoint::Tcp(..), None) => return Err(Failure::config("csi-tls is missing")),
        };
        if Instant::now() + pause > until {
            return Err(Failure::retry(nobody(parameters, &problem)));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(Duration::from_secs(1));
    }
}

/// Describes a driver that does not answer.
pub fn nobody(parameters: &Parameters, problem: &str) -> String {
    let hint = match &parameters.endpoint {
        Endpoint::Socket(_) => {
            "does the driver run on this node, and has the config's `pod-template` a mount of the directory of its socket?"
        }
        Endpoint::Tcp(..) => "does it listen there, and do certificates and csi-tls-server-name go together?",
    };
    let waited = parameters.connect.as_secs();
    format!("no CSI driver answers at {} within {waited} s: {problem}; {hint}", parameters.endpoint)
}

/// Connects to a socket. The outer error is final; the inner one may be temporary.
async fn socket(path: &Path) -> Result<Channel, Result<String, Failure>> {
    // This finds the reason of a failure, which the channel itself does not report.
    if let Err(error) = UnixStream::connect(path).await {
        return Err(match error.kind() {
            ErrorKind::PermissionDenied => Err(Failure::config(format!(
                "the socket {} may not be used by user {}: most drivers' sockets are root's, so write run-as-user: \"0\" in the \
                 config",
                path.display(),
                user()
            ))),
            ErrorKind::NotFound => Ok("there is no such socket".to_owned()),
            _ => Ok(error.to_string()),
        });
    }
    let path = path.to_owned();
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    // The address is only a name for the other side.
    let endpoint = tonic::transport::Endpoint::from_static("http://localhost").connect_timeout(ATTEMPT);
    endpoint.connect_with_connector(connector).await.map_err(|error| Ok(chain(&error)))
}

async fn tcp(host: &str, port: u16, tls: ClientTlsConfig) -> Result<Channel, String> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("https://{host}:{port}"));
    let endpoint = endpoint.and_then(|endpoint| endpoint.connect_timeout(ATTEMPT).tls_config(tls));
    match endpoint {
        Ok(endpoint) => endpoint.connect().await.map_err(|error| chain(&error)),
        Err(error) => Err(chain(&error)),
    }
}

fn tls(parameters: &Parameters) -> Result<ClientTlsConfig, Failure> {
    let directory = Path::new(parameters.tls.as_deref().unwrap_or_default());
    let read = |name: &str| {
        let path = directory.join(name);
        std::fs::read(&path).map_err(|error| {
            Failure::config(format!(
                "{} cannot be read: {error}; csi-tls names the directory of a Secret with ca.crt, tls.crt and tls.key, which \
                 `secret-volume` mounts",
                path.display()
            ))
        })
    };
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read("ca.crt")?))
        .identity(Identity::from_pem(read("tls.crt")?, read("tls.key")?));
    Ok(match &parameters.tls_name {
        Some(name) => config.domain_name(name.clone()),
        None => config,
    })
}

/// Returns the user of this process, as the kernel knows it.
fn user() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or("?").to_owned()
}

/// Writes an error with all its causes.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let says = inner.to_string();
        if !text.contains(&says) {
            text.push_str(": ");
            text.push_str(&says);
        }
        cause = inner.source();
    }
    text
}

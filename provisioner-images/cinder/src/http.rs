//! One exchange over HTTP, in JSON.

use std::path::Path;
use std::time::Duration;

use ::http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kit::Failure;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

/// How long an answer may take. Cinder itself waits up to a minute for a storage system to make a connection.
const PATIENCE: Duration = Duration::from_secs(75);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// More than any answer has.
const LARGEST: usize = 64 << 20;

type Body = Full<std::io::Cursor<Vec<u8>>>;

/// A client.
pub struct Http(Client<HttpsConnector<HttpConnector>, Body>);

/// What came back, whatever its status.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null where it is empty or no JSON, as the page of a proxy.
    pub body: Value,
}

impl Http {
    /// A client that trusts the authorities of a file, or the public ones.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn new(ca_file: Option<&Path>) -> Result<Self, Failure> {
        let mut roots = RootCertStore::empty();
        match ca_file {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(file) => {
                let wrong = |error: &dyn std::fmt::Display| {
                    Failure::permission(format!(
                        "{} has no certificates that can be read: {error}; the file with the authority's certificate (PEM) \
                         must be in a Secret of `secret-volume`",
                        file.display()
                    ))
                };
                for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
                    roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
                }
                if roots.is_empty() {
                    return Err(wrong(&"it is empty"));
                }
            }
        }
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.enforce_http(false);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
        Ok(Self(Client::builder(TokioExecutor::new()).build(connector)))
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// Why there was no answer.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer, String> {
        let mut request = Request::builder().method(method).uri(url).header("Accept", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            None => Vec::new(),
            Some(body) => {
                request = request.header("Content-Type", "application/json");
                body.to_string().into_bytes()
            }
        };
        let request = request.body(Full::new(std::io::Cursor::new(body))).map_err(|error| error.to_string())?;
        let exchange = async {
            let response = self.0.request(request).await.map_err(|error| chain(&error))?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, LARGEST).collect().await.map_err(|error| error.to_string())?.to_bytes();
            Ok(Answer {
                status: parts.status,
                headers: parts.headers,
                body: serde_json::from_slice(&body).unwrap_or_default(),
            })
        };
        match tokio::time::timeout(PATIENCE, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        }
    }
}

/// An error with its causes: the outermost alone says no more than that there is one.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

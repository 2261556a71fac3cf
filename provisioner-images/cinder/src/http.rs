//! HTTP requests with JSON.

use std::error::Error;
use std::time::Duration;

use ::http::{HeaderMap, Method, Request, StatusCode};
use flex_image_kit::Failure;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

use crate::cloud::Cloud;
use crate::trouble::{Kind, Trouble};

/// The time for an answer. Cinder itself waits up to a minute until a storage system has made a connection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(75);
/// The time for making a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The largest answer that is read, in bytes. Real answers are smaller.
const LARGEST: usize = 64 << 20;

type Body = Full<std::io::Cursor<Vec<u8>>>;

/// An HTTP client.
pub struct Http {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    /// The trusted authorities and their source, for messages.
    trusts: String,
}

/// An answer, whatever its status.
#[derive(Debug)]
pub struct Answer {
    /// The status of the answer.
    pub status: StatusCode,
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The body; null if it is empty or no JSON, such as the page of a proxy.
    pub body: Value,
}

impl Http {
    /// Makes a client that trusts the authorities of a file, or the public ones.
    ///
    /// # Errors
    /// If the file is invalid.
    pub fn new(cloud: &Cloud) -> Result<Self, Failure> {
        let mut roots = RootCertStore::empty();
        let (key, origin) = (cloud.ca_key, &cloud.origin);
        let trusts = match &cloud.ca_file {
            None => {
                roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
                format!(
                    "{origin} has no {key}, so the public authorities alone are trusted: put the certificate of the \
                     cloud's own authority (PEM) into a Secret of `secret-volume`, and name its file in {key}"
                )
            }
            Some(file) => {
                let wrong = |error: &dyn std::fmt::Display| {
                    Failure::permission(format!(
                        "{origin}: {key} is {}, which has no certificates that can be read: {error}; it must be the path of a \
                         file with the authority's certificate (PEM), of a Secret in `secret-volume`, such as \
                         /etc/flex-secrets/cinder-cloud/ca.pem",
                        file.display()
                    ))
                };
                for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&of_pem(error)))? {
                    roots.add(certificate.map_err(|error| wrong(&of_pem(error)))?).map_err(|error| wrong(&error))?;
                }
                if roots.is_empty() {
                    return Err(wrong(&"there is no `BEGIN CERTIFICATE` in it"));
                }
                format!(
                    "{origin}: {key} is {}; it must have the certificate of the authority that signed what the server shows, \
                     and the address must be one that the server's certificate is for",
                    file.display()
                )
            }
        };
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.enforce_http(false);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector), trusts })
    }

    /// Sends a request and reads the whole answer. Messages call the server by the text `server`.
    ///
    /// # Errors
    /// If there was no answer.
    pub async fn send(
        &self,
        server: &str,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer, Trouble> {
        let answer = self.exchange(method, url, headers, body).await;
        answer.map_err(|silence| match silence {
            Silence::Distrust(error) => {
                Trouble::new(Kind::Denied, format!("{server} is not trusted: {error}. {}", self.trusts))
            }
            Silence::Other(error) => Trouble::new(Kind::Passing, format!("{server} cannot be reached: {error}")),
        })
    }

    async fn exchange(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer, Silence> {
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
        let request =
            request.body(Full::new(std::io::Cursor::new(body))).map_err(|error| Silence::Other(error.to_string()))?;
        let exchange = async {
            let response = self.client.request(request).await.map_err(|error| Silence::of(&error))?;
            let (parts, body) = response.into_parts();
            let body =
                Limited::new(body, LARGEST).collect().await.map_err(|error| Silence::of(error.as_ref()))?.to_bytes();
            Ok(Answer {
                status: parts.status,
                headers: parts.headers,
                body: serde_json::from_slice(&body).unwrap_or_default(),
            })
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(Silence::Other(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))),
        }
    }
}

/// Describes the problem of a file, without the marker that the error shows as numbers.
fn of_pem(error: pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a certificate in it breaks off before its END line".to_owned(),
        other => other.to_string(),
    }
}

/// The reason why there was no answer.
enum Silence {
    /// The certificate of the other side is not trusted. This lasts until somebody acts.
    Distrust(String),
    /// Any other reason.
    Other(String),
}

impl Silence {
    /// Reads an error with its causes. The outermost alone only says that there is one.
    fn of(error: &(dyn Error + 'static)) -> Self {
        let mut text = error.to_string();
        let mut cause = cause_of(error);
        while let Some(error) = cause {
            if let Some(rustls::Error::InvalidCertificate(why)) = error.downcast_ref() {
                return Silence::Distrust(format!("its certificate is refused ({why})"));
            }
            if let Some(rustls::Error::InvalidMessage(_)) = error.downcast_ref() {
                return Silence::Other("what answers there speaks no TLS: is its address http://…?".to_owned());
            }
            let more = error.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = cause_of(error);
        }
        Silence::Other(text)
    }
}

/// Returns the cause of an error, also that within the error of a system call.
fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let within = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    within.map(|within| within as &(dyn Error + 'static)).or_else(|| error.source())
}

//! The collector of OpenTelemetry: OTLP over HTTP, with protobuf.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use flex_core::text::line;
use flex_provisioner::api::client::{OtherServer, other_server};
use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use percent_encoding::percent_decode_str;
use prost::Message as _;

/// The path of traces below the address of a collector.
const PATH: &str = "/v1/traces";
/// The longest duration of a request, with its answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The part of an answer that a message contains.
const ANSWER: usize = 400;

#[derive(Clone, Debug, Args)]
pub(super) struct CollectorArgs {
    /// The address of the collector, such as http://collector:4318. The path /v1/traces is added if it is missing.
    #[arg(
        long = "otlp",
        value_name = "URL",
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        hide_env_values = true,
        help_heading = "Collector"
    )]
    url: String,
    /// A header of each request, as NAME=VALUE. In the value, write `,` as %2C and `%` as %25. May be given several times.
    #[arg(
        long = "otlp-header",
        value_name = "NAME=VALUE",
        env = "OTEL_EXPORTER_OTLP_HEADERS",
        value_delimiter = ',',
        hide_env_values = true,
        help_heading = "Collector"
    )]
    headers: Vec<String>,
    /// The authorities that may have signed the certificate of the collector, as PEM [default: those of this machine].
    #[arg(long = "otlp-ca", value_name = "FILE", env = "OTEL_EXPORTER_OTLP_CERTIFICATE", help_heading = "Collector")]
    authorities: Option<PathBuf>,
}

impl CollectorArgs {
    /// Makes a client of the collector.
    ///
    /// # Errors
    /// If the address, a header or the file of authorities cannot be used.
    pub(super) fn open(&self) -> anyhow::Result<Collector> {
        let Address { server, path } = Address::read(&self.url)?;
        let headers = self.headers.iter().map(|text| header(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let authorities = self.authorities.clone();
        let client = other_server(OtherServer { address: server.clone(), authorities, headers, timeout: TIMEOUT })?;
        Ok(Collector { client, server, path })
    }
}

/// The address of a collector in its parts.
#[derive(Debug, PartialEq)]
struct Address {
    server: Uri,
    path: String,
}

impl Address {
    fn read(url: &str) -> anyhow::Result<Self> {
        // A password before the `@` is not shown.
        let shown = url.rsplit('@').next().unwrap_or_default();
        let wrong =
            || format!("--otlp {shown} is no address of a collector: write http://HOST:4318 or https://HOST:4318");
        let parsed: Uri = url.parse().with_context(wrong)?;
        let (Some("http" | "https"), Some(authority)) = (parsed.scheme_str(), parsed.authority()) else {
            bail!(wrong())
        };
        if authority.host().is_empty() || authority.as_str().contains('@') || parsed.query().is_some() {
            bail!(wrong());
        }
        let path = parsed.path().trim_end_matches('/');
        let path = if path.ends_with(PATH) { path.to_owned() } else { format!("{path}{PATH}") };
        let server = Uri::builder().scheme(parsed.scheme_str().unwrap_or("http")).authority(authority.clone());
        Ok(Address { server: server.path_and_query("/").build().with_context(wrong)?, path })
    }
}

/// Reads a header. As in the environment variable of OpenTelemetry, the value may have percent escapes.
fn header(text: &str) -> anyhow::Result<(HeaderName, HeaderValue)> {
    // The message does not contain the value, which may be a password.
    let (name, value) = text.split_once('=').context("--otlp-header has no `=`: write NAME=VALUE")?;
    let name: HeaderName =
        name.trim().parse().ok().context("--otlp-header does not begin with a name: write NAME=VALUE")?;
    let wrong = || format!("--otlp-header {name} has no value of HTTP");
    let value = percent_decode_str(value.trim()).decode_utf8().with_context(wrong)?;
    let mut value = HeaderValue::from_str(&value).with_context(wrong)?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// A collector.
pub(super) struct Collector {
    client: Client,
    server: Uri,
    path: String,
}

/// The spans that a collector did not accept, although it accepted the request.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) number: i64,
    pub(super) message: String,
}

/// The body of an answer that refuses a request.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

impl std::fmt::Display for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.server.to_string().trim_end_matches('/'), self.path)
    }
}

impl Collector {
    /// Says what was sent.
    pub(super) fn sent(&self, traces: usize, spans: usize) -> String {
        match traces {
            0 => "nothing to send: no attempt of a claim has ended".to_owned(),
            1 => format!("sent 1 trace with {spans} spans to {self}"),
            _ => format!("sent {traces} traces with {spans} spans to {self}"),
        }
    }

    /// Sends spans. Returns how many of them the collector did not accept.
    ///
    /// # Errors
    /// If no collector answers in time, or it refuses the request.
    pub(super) async fn send(&self, spans: ExportTraceServiceRequest) -> anyhow::Result<Option<Refused>> {
        let request = Request::builder().method(Method::POST).uri(&self.path);
        let request = request.header(header::CONTENT_TYPE, "application/x-protobuf");
        let request = request.body(Body::from(spans.encode_to_vec()))?;
        let answer = async {
            let response = self.client.send(request).await?;
            let (parts, body) = response.into_parts();
            anyhow::Ok((parts.status, body.collect().await?.to_bytes()))
        };
        let answer = tokio::time::timeout(TIMEOUT, answer).await;
        let answer = answer.map_err(|_| anyhow::anyhow!("it did not answer within {} s", TIMEOUT.as_secs()));
        let unreachable = || {
            format!(
                "no collector answers at {self}: check the address, and that the collector receives OTLP over HTTP there"
            )
        };
        let (status, body) = answer.and_then(|answered| answered).with_context(unreachable)?;
        if !status.is_success() {
            bail!("the collector at {self} refuses the spans: HTTP {status}: {}", refusal(&body));
        }
        let answer = ExportTraceServiceResponse::decode(body).with_context(|| {
            format!("{self} does not answer as a collector does: check that it receives OTLP over HTTP there")
        })?;
        let partial = answer.partial_success.filter(|partial| partial.rejected_spans > 0);
        Ok(partial
            .map(|partial| Refused { number: partial.rejected_spans, message: line(&partial.error_message, ANSWER) }))
    }
}

/// Returns the message of an answer that refuses a request: that of its status, or its text.
fn refusal(body: &[u8]) -> String {
    let status = RpcStatus::decode(body).ok().filter(|status| !status.message.is_empty());
    let text = status.map_or_else(|| String::from_utf8_lossy(body).into_owned(), |status| status.message);
    let text = line(text.trim(), ANSWER);
    if text.is_empty() { "no message was given".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_gets_the_path_of_traces_unless_it_has_it() {
        for (url, server, path) in [
            ("http://collector:4318", "http://collector:4318/", "/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/", "/v1/traces"),
            ("https://a.example/otlp/", "https://a.example/", "/otlp/v1/traces"),
            ("https://a.example/otlp/v1/traces", "https://a.example/", "/otlp/v1/traces"),
            ("http://[::1]:4318", "http://[::1]:4318/", "/v1/traces"),
        ] {
            let address = Address::read(url).unwrap();
            assert_eq!((address.server.to_string().as_str(), address.path.as_str()), (server, path), "{url}");
        }
        for url in [
            "",
            "collector:4318",
            "collector",
            "ftp://a",
            "http://",
            "http://a b",
            "http://u:p@a",
            "http://a?b=c",
            "grpc://a:4317",
        ] {
            let error = Address::read(url).unwrap_err();
            assert!(error.to_string().contains("write http://HOST:4318"), "{url}: {error}");
            assert!(!format!("{error:#}").contains("u:p"), "{error:#}");
        }
    }

    #[test]
    fn a_header_may_have_escapes_and_its_value_is_never_shown() {
        let (name, value) = header("Authorization=Basic%20abc=").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("authorization", "Basic abc="));
        for wrong in ["secret", "a b=secret", "x=secret%0a", "Authorization: Basic secret="] {
            let error = header(wrong).unwrap_err();
            assert!(!format!("{error:#}").contains("secret"), "{error:#}");
        }
    }

    #[test]
    fn the_message_of_a_refusal_is_read_from_its_status_or_its_text() {
        let status = RpcStatus { code: 3, message: "too many spans".into() };
        assert_eq!(refusal(&status.encode_to_vec()), "too many spans");
        assert_eq!(refusal(b"404 page not found\n"), "404 page not found");
        assert_eq!(refusal(b""), "no message was given");
    }
}

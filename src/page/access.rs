//! Who may ask for the page: nobody by a foreign name.
//!
//! A site on the internet can give its own name the address 127.0.0.1. A browser that visits the site would then let
//! its scripts read the page, as a page of that site. So the page answers only to addresses and to names of this machine.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, Request, StatusCode};

/// The files that a browser loads for a page: those of the page, and no others.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Adds the headers of each answer.
pub fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Checks the host of a request to a server that listens on an address.
///
/// # Errors
/// If the request names no host or another. The status and the text are for the answer.
pub fn check_host<B>(request: &Request<B>, address: SocketAddr) -> Result<(), (StatusCode, &'static str)> {
    let named = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    match named.or(request.uri().host()) {
        None => Err((StatusCode::BAD_REQUEST, "the request names no host\n")),
        Some(host) if is_own(host, address.ip()) => Ok(()),
        Some(_) => Err((
            StatusCode::MISDIRECTED_REQUEST,
            "this page answers only to localhost and to the address of --status-address\n",
        )),
    }
}

/// Checks whether a host, perhaps with a port, is this machine or the address of the server. A server on all addresses
/// answers to each address, because no name can stand for one.
fn is_own(host: &str, own: IpAddr) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        // An IPv6 address stands in brackets.
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return false;
    }
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    match bare.parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback() || ip == own || own.is_unspecified(),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_answered() {
        let (loopback, all, pod) = ("127.0.0.1", "0.0.0.0", "10.1.2.3");
        for (host, own, expected) in [
            ("localhost", loopback, true),
            ("LOCALHOST:8081", loopback, true),
            ("127.0.0.1:40000", loopback, true),
            ("127.9.9.9", loopback, true),
            ("[::1]:8081", loopback, true),
            ("[::1]", loopback, true),
            ("10.1.2.3:8081", pod, true),
            ("10.1.2.3:8081", all, true),
            ("10.1.2.3:8081", loopback, false),
            ("10.1.2.4", pod, false),
            ("evil.example", loopback, false),
            ("evil.example:8081", all, false),
            ("localhost.evil.example", loopback, false),
            ("localhost:evil", loopback, false),
            ("127.0.0.1.evil.example", loopback, false),
            ("", loopback, false),
        ] {
            assert_eq!(is_own(host, own.parse().unwrap()), expected, "{host} at {own}");
        }
    }
}

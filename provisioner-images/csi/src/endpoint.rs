//! The address of the driver. The functions are pure.

use std::path::{Path, PathBuf};

/// The address of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The absolute path of a unix socket.
    Socket(PathBuf),
    /// Host and port, for TCP with mutual TLS.
    Tcp(String, u16),
}

/// Reads `unix:///path`, `/path` or `tcp://host:port`.
///
/// # Errors
/// If the text has another form.
pub fn parse(text: &str) -> Result<Endpoint, String> {
    let wrong = |what: &str| {
        Err(format!("csi-endpoint is `{text}`: {what}; write unix:///csi/csi.sock or tcp://driver.example:9000"))
    };
    if let Some(address) = text.strip_prefix("tcp://") {
        let Some((host, port)) = address.rsplit_once(':') else { return wrong("it has no port") };
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '[' | ']');
        return match port.parse::<u16>() {
            Ok(port) if port > 0 && !host.is_empty() && host.chars().all(legal) => {
                Ok(Endpoint::Tcp(host.to_owned(), port))
            }
            _ => wrong("it is not tcp://HOST:PORT"),
        };
    }
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text);
    match path {
        "" => wrong("it is empty"),
        _ if path.contains("://") => wrong("only unix and tcp are known"),
        _ if !path.starts_with('/') => wrong("the path of a socket begins with a slash"),
        // The kernel allows no longer path.
        _ if path.len() > 107 => wrong("the path of a socket may have 107 bytes"),
        _ => Ok(Endpoint::Socket(Path::new(path).to_owned())),
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Endpoint::Socket(path) => write!(f, "unix://{}", path.display()),
            Endpoint::Tcp(host, port) => write!(f, "tcp://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_drivers_are_parsed() {
        let socket = |path: &str| Ok(Endpoint::Socket(path.into()));
        for (text, expected) in [
            ("unix:///csi/csi.sock", socket("/csi/csi.sock")),
            ("unix:/csi/csi.sock", socket("/csi/csi.sock")),
            ("/csi/csi.sock", socket("/csi/csi.sock")),
            ("tcp://driver.example:9000", Ok(Endpoint::Tcp("driver.example".into(), 9000))),
            ("tcp://[::1]:9000", Ok(Endpoint::Tcp("[::1]".into(), 9000))),
            ("", Err("empty")),
            ("unix://csi.sock", Err("begins with a slash")),
            ("csi.sock", Err("begins with a slash")),
            ("http://x:1", Err("only unix and tcp")),
            ("tcp://driver", Err("no port")),
            ("tcp://driver:0", Err("HOST:PORT")),
            ("tcp://:1", Err("HOST:PORT")),
            ("tcp://a/b:1", Err("HOST:PORT")),
        ] {
            match (parse(text), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(says), Err(expected)) => assert!(says.contains(expected), "{says}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
        assert!(parse(&format!("/{}", "x".repeat(107))).unwrap_err().contains("107"));
    }
}

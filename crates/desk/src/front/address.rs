//! The addresses of servers in the values of parameters: pure functions.

use std::fmt;
use std::path::{Path, PathBuf};

/// The address of the front, where runs find it.
const HERE: &str = "127.0.0.1";

/// The parameter with the address of a server, and perhaps another one with its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The parameter with the address.
    pub address: String,
    /// The parameter with the port, where the address has none.
    pub port: Option<String>,
}

impl Wanted {
    /// Reads PARAMETER or ADDRESS,PORT.
    ///
    /// # Errors
    /// If the text has not this form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        match names.as_slice() {
            [address] if !address.is_empty() => Ok(Wanted { address: (*address).to_owned(), port: None }),
            [address, port] if !address.is_empty() && !port.is_empty() => {
                Ok(Wanted { address: (*address).to_owned(), port: Some((*port).to_owned()) })
            }
            _ => Err("write the name of the parameter with the server's address, such as array-url, or the names of two parameters, such as server,port".into()),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        match &self.port {
            Some(port) => write!(f, ",{port}"),
            None => Ok(()),
        }
    }
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// A host, with its port.
    Tcp(String, u16),
    /// A socket of the machine.
    Unix(PathBuf),
}

/// The address of a server, with the text around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    before: String,
    /// The server.
    pub server: Server,
    after: String,
    /// Another parameter has the port.
    has_port_apart: bool,
}

impl Address {
    /// Reads the value of a parameter. `port` is the value of the parameter with the port.
    ///
    /// # Errors
    /// If the text is no address. The error says what is missing.
    pub(super) fn read(text: &str, port: Option<&str>) -> Result<Self, String> {
        let text = text.trim();
        for scheme in ["unix://", "unix:", ""] {
            if let Some(path) = text.strip_prefix(scheme).filter(|path| path.starts_with('/')) {
                let (before, server) = (scheme.to_owned(), Server::Unix(path.into()));
                return Ok(Address { before, server, after: String::new(), has_port_apart: false });
            }
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (format!("{scheme}://"), rest),
            None => (String::new(), text),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, after) = rest.split_at(end);
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (format!("{user}@"), place),
            None => (String::new(), authority),
        };
        let (host, own) = host_and_port(place)?;
        // The value of a parameter that was named by mistake may be a secret.
        let number = |text: &str| text.trim().parse::<u16>().map_err(|_| "its port is no number of a port".to_owned());
        let port_number = match (port, own) {
            (Some(_), Some(_)) => return Err("the address has a port itself: name its parameter alone".into()),
            (Some(text), None) | (None, Some(text)) => number(text)?,
            (None, None) => match scheme.as_str() {
                "http://" => 80,
                "https://" => 443,
                _ => {
                    return Err(
                        "its value has no port: name the parameter with the port, too, as in --front ADDRESS,PORT"
                            .into(),
                    );
                }
            },
        };
        Ok(Address {
            before: format!("{scheme}{user}"),
            server: Server::Tcp(host.to_owned(), port_number),
            after: after.to_owned(),
            has_port_apart: port.is_some(),
        })
    }

    /// Returns the same text with a port of this machine in place of the server.
    pub(super) fn at_port(&self, port: u16) -> String {
        let port = if self.has_port_apart { String::new() } else { format!(":{port}") };
        format!("{}{HERE}{port}{}", self.before, self.after)
    }

    /// Returns the same text with another socket.
    pub(super) fn at_socket(&self, path: &Path) -> String {
        format!("{}{}", self.before, path.display())
    }
}

/// Splits `host`, `host:port` and `[address]:port`.
fn host_and_port(place: &str) -> Result<(&str, Option<&str>), String> {
    let parts = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => Some((host, rest.strip_prefix(':'))),
        // An address of IPv6 without brackets has no port.
        None if place.matches(':').count() > 1 => Some((place, None)),
        None => place.split_once(':').map(|(host, port)| (host, Some(port))),
    };
    let (host, port) = parts.unwrap_or((place, None));
    if host.is_empty() || host.contains([',', ' ']) {
        return Err("it is no address of one server: http://HOST:PORT, HOST:PORT or unix:///PATH".into());
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_names_one_parameter_or_two() {
        let wanted =
            |address: &str, port: Option<&str>| Wanted { address: address.into(), port: port.map(str::to_owned) };
        for (text, expected) in [
            ("array-url", Some(wanted("array-url", None))),
            ("server,port", Some(wanted("server", Some("port")))),
            ("", None),
            ("server,", None),
            (",port", None),
            ("a,b,c", None),
        ] {
            assert_eq!(Wanted::parse(text).ok(), expected, "{text}");
        }
        assert_eq!(wanted("server", Some("port")).to_string(), "server,port");
    }

    #[test]
    fn an_address_is_read_and_the_front_takes_the_place_of_the_server() {
        let tcp = |host: &str, port| Server::Tcp(host.into(), port);
        for (text, port, server, instead) in [
            ("http://array:8080/v1", None, tcp("array", 8080), "http://127.0.0.1:7/v1"),
            ("http://array/v1?x=y", None, tcp("array", 80), "http://127.0.0.1:7/v1?x=y"),
            ("https://array", None, tcp("array", 443), "https://127.0.0.1:7"),
            ("http://user:word@array:81", None, tcp("array", 81), "http://user:word@127.0.0.1:7"),
            ("10.0.0.1:3260", None, tcp("10.0.0.1", 3260), "127.0.0.1:7"),
            ("[::1]:3260", None, tcp("::1", 3260), "127.0.0.1:7"),
            ("nas.example", Some("2049"), tcp("nas.example", 2049), "127.0.0.1"),
            ("fd00::1", Some("2049"), tcp("fd00::1", 2049), "127.0.0.1"),
            (" nas.example\n", Some(" 2049 "), tcp("nas.example", 2049), "127.0.0.1"),
        ] {
            let read = Address::read(text, port).unwrap();
            assert_eq!((&read.server, read.at_port(7).as_str()), (&server, instead), "{text}");
        }
        for (text, instead) in [("unix:///csi/csi.sock", "unix:///csi/f"), ("/csi/csi.sock", "/csi/f")] {
            let read = Address::read(text, None).unwrap();
            assert_eq!(read.server, Server::Unix("/csi/csi.sock".into()), "{text}");
            assert_eq!(read.at_socket(Path::new("/csi/f")), instead);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_is_missing() {
        for (text, port, words) in [
            ("nas.example", None, "name the parameter with the port, too"),
            ("nas.example:2049", Some("2049"), "has a port itself"),
            ("nas.example", Some("nfs"), "its port is no number"),
            ("http://", None, "no address of one server"),
            ("a:1,b:1", None, "no address of one server"),
            ("", None, "no address of one server"),
        ] {
            let why = Address::read(text, port).unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
    }
}

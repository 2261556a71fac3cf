//! The smallest HTTP client for tests: one request on one connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its header as text.
    pub head: String,
    /// Its body; null if it is not JSON.
    pub body: Value,
}

/// Sends a request to a port of this machine; returns `None` without an answer.
pub fn ask(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Option<Reply> {
    let body = body.filter(|body| !body.is_null()).map(Value::to_string).unwrap_or_default();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    let answer = forward(port, request.as_bytes())?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Reply { status, head: head.to_owned(), body: serde_json::from_str(body).unwrap_or_default() })
}

/// Sends bytes, and reads until the end of the connection.
pub fn forward(port: u16, request: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(90))).ok()?;
    stream.write_all(request).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    Some(answer).filter(|answer| !answer.is_empty())
}

/// Reads a request with its body, and says that its connection ends with the answer.
pub fn receive(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut part = [0; 65536];
    let end = loop {
        let count = stream.read(&mut part).ok().filter(|count| *count > 0)?;
        request.extend_from_slice(&part[..count]);
        if let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8_lossy(&request[..end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    while request.len() < end + length.unwrap_or(0) {
        let count = stream.read(&mut part).ok().filter(|count| *count > 0)?;
        request.extend_from_slice(&part[..count]);
    }
    let mut lines: Vec<&str> = head.trim_end().lines().collect();
    lines.retain(|line| !line.to_lowercase().starts_with("connection:"));
    let mut whole = lines.join("\r\n").into_bytes();
    whole.extend_from_slice(b"\r\nConnection: close\r\n\r\n");
    whole.extend_from_slice(&request[end..]);
    Some(whole)
}

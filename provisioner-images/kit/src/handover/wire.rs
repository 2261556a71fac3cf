//! The address, the request and the answer, as both ends write them. It is pure.
//!
//! Each connection has one request and one answer. Both are a JSON object on one line.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use crate::Failure;

/// The variable with the address at which a member of a batch hands over its volume.
pub const VARIABLE: &str = "FLEX_PV_SOCKET";
/// The largest request in bytes, with its line end. The API accepts no larger object.
pub(super) const LARGEST: usize = 2 << 20;

/// The address of a member: the abstract name of the socket, and the member's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub name: String,
    pub key: String,
}

impl Address {
    /// Writes the address as the value of [`VARIABLE`].
    pub fn text(&self) -> String {
        format!("{}:{}", self.name, self.key)
    }

    pub fn read(text: &str) -> Option<Self> {
        let (name, key) = text.split_once(':')?;
        let whole = |part: &str| !part.is_empty() && !part.contains(':');
        (whole(name) && whole(key)).then(|| Self { name: name.to_owned(), key: key.to_owned() })
    }
}

/// The volume of a member.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    pub key: String,
    /// The time for which transient errors of the API are retried.
    pub patience: Duration,
    pub volume: PersistentVolume,
}

/// Writes the request for a volume, with its line end.
pub(super) fn request(key: &str, patience: Duration, volume: &PersistentVolume) -> String {
    format!("{}\n", json!({ "key": key, "patience": patience.as_secs(), "volume": volume }))
}

impl Request {
    pub fn read(line: &[u8]) -> Option<Self> {
        let mut fields: Value = serde_json::from_slice(line).ok()?;
        let volume = serde_json::from_value(fields.get_mut("volume")?.take()).ok()?;
        let key = fields.get("key")?.as_str()?.to_owned();
        Some(Self { key, patience: Duration::from_secs(fields.get("patience")?.as_u64()?), volume })
    }
}

/// Writes the answer, with its line end.
pub(super) fn answer(outcome: &Result<(), Failure>) -> String {
    let answer = match outcome {
        Ok(()) => json!({ "code": 0 }),
        Err(Failure { code, message }) => json!({ "code": code, "message": message }),
    };
    format!("{answer}\n")
}

/// Reads an answer. Returns `None` if it is not whole.
pub(super) fn read_answer(line: &str) -> Option<Result<(), Failure>> {
    let fields: Value = serde_json::from_str(line.strip_suffix('\n')?).ok()?;
    let code = i32::try_from(fields.get("code")?.as_i64()?).ok()?;
    if code == 0 {
        return Some(Ok(()));
    }
    Some(Err(Failure { code, message: fields.get("message")?.as_str()?.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        let address = Address { name: "flex-pv-1".into(), key: "2".into() };
        assert_eq!(Address::read(&address.text()), Some(address));
        for bad in ["", ":", "a", "a:", ":b", "a:b:c"] {
            assert_eq!(Address::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_volume_arrives_unchanged() {
        let yaml = "metadata: {name: pvc-1, annotations: {a: \"x\\ny\"}, labels: {}}\n\
                    spec: {capacity: {storage: 3Gi}, nfs: {server: nas, path: /ä}, mountOptions: []}";
        let volume: PersistentVolume = serde_saphyr::from_str(yaml).unwrap();
        let line = request("k", Duration::from_secs(7), &volume);
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let read = Request::read(line.as_bytes()).unwrap();
        assert_eq!(read, Request { key: "k".into(), patience: Duration::from_secs(7), volume });
        for bad in ["", "{}", "[]", "{\"key\":1,\"patience\":1,\"volume\":{}}", "{\"key\":\"k\",\"volume\":{}}"] {
            assert_eq!(Request::read(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn an_answer_is_whole_or_none() {
        for outcome in [Ok(()), Err(Failure::never("not\nthis \"one\"")), Err(Failure::retry(""))] {
            let line = answer(&outcome);
            assert_eq!(read_answer(&line), Some(outcome.clone()));
            for end in 0..line.len() {
                assert_eq!(read_answer(&line[..end]), None, "{}", &line[..end]);
            }
        }
        for bad in ["{\"code\":65}\n", "{}\n", "\n", "{\"code\":\"0\"}\n"] {
            assert_eq!(read_answer(bad), None, "{bad}");
        }
    }
}

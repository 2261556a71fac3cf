//! The objects that a server has made and deleted, as its answers tell: pure functions.
//!
//! A front hears each answer, also one that the program never gets. So it knows of a second volume that neither the program
//! nor its list knows.

use std::collections::BTreeSet;

use serde_json::Value;

/// The names of what tells an object from others, in requests and answers.
const IDS: [&str; 9] = ["id", "uuid", "ID", "Id", "UUID", "uid", "volume_id", "volumeId", "name"];

/// A request that the server has got, and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, perhaps with a query.
    pub path: &'a str,
    /// The body of the request.
    pub asked: &'a [u8],
    /// The status of the answer.
    pub status: u16,
    /// The header `Location` of the answer.
    pub location: Option<&'a str>,
    /// The body of the answer.
    pub body: &'a [u8],
}

/// Something that the server has done.
#[derive(Clone, Debug)]
enum Act {
    /// It has made an object in a collection. The object has these paths.
    Made(String, Vec<String>),
    /// There is no object with one of these paths.
    Gone(Vec<String>),
}

/// What a server has done, with the step of the case.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Vec<(usize, Act)>);

/// Returns a path without host, query and last slash.
fn plain(path: &str) -> String {
    let path = path.split_once("://").map_or(path, |(_, rest)| rest.find('/').map_or("", |at| &rest[at..]));
    path.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/').to_owned()
}

/// Returns the ids of the object in an answer: in the answer itself, or in its only field.
fn ids(body: &[u8]) -> Vec<String> {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return Vec::new() };
    let own = answer.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.values().next());
    let objects = [Some(&answer), own.filter(|inner| inner.is_object())].into_iter().flatten();
    let texts = objects.flat_map(|object| IDS.iter().filter_map(move |id| object.get(*id)));
    let text = |value: &Value| match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    texts.filter_map(text).collect()
}

impl Exchange<'_> {
    fn act(&self) -> Option<Act> {
        let path = plain(self.path);
        match (self.method, self.status) {
            ("POST", 200..=202) => {
                let below = |id: String| format!("{path}/{id}");
                let mut names: Vec<String> =
                    ids(self.body).into_iter().map(below).chain(self.location.map(plain)).collect();
                if names.is_empty() {
                    names.extend(ids(self.asked).into_iter().map(below));
                }
                (!names.is_empty()).then_some(Act::Made(path, names))
            }
            // The client has chosen the name.
            ("PUT", 200 | 201 | 204) => {
                let collection = path.rsplit_once('/').map(|(collection, _)| collection.to_owned());
                Some(Act::Made(collection.unwrap_or_default(), vec![path]))
            }
            ("DELETE", 200..=299 | 404 | 410) => {
                let query = self.path.split_once('?').map_or("", |(_, query)| query);
                let values = query.split('&').filter_map(|pair| Some(pair.split_once('=')?.1.to_owned()));
                let below = values.chain(ids(self.asked)).map(|id| format!("{path}/{id}"));
                Some(Act::Gone(std::iter::once(path.clone()).chain(below).collect()))
            }
            _ => None,
        }
    }
}

impl Ledger {
    /// Notes a request with its answer, in a step of the case.
    pub(super) fn note(&mut self, step: usize, exchange: &Exchange<'_>) {
        self.0.extend(exchange.act().map(|act| (step, act)));
    }

    /// Returns the objects: step, collection, paths, and the step in which each was deleted.
    fn objects(&self) -> impl Iterator<Item = (usize, &String, &Vec<String>, Option<usize>)> {
        self.0.iter().enumerate().filter_map(move |(n, (step, act))| {
            let Act::Made(collection, names) = act else { return None };
            let deleted = self.0[n..].iter().find_map(|(step, act)| match act {
                Act::Gone(paths) if paths.iter().any(|path| names.contains(path)) => Some(*step),
                _ => None,
            });
            Some((*step, collection, names, deleted))
        })
    }

    /// Returns the collections of the storage: all that was made there was deleted, and some of it by a later step. What a
    /// step makes and deletes itself may be a login.
    pub fn collections(&self) -> BTreeSet<String> {
        let all: BTreeSet<&String> = self.objects().map(|(_, collection, ..)| collection).collect();
        let is_storage = |collection: &&String| {
            let objects: Vec<_> = self.objects().filter(|(_, other, ..)| other == collection).collect();
            objects.iter().all(|(.., deleted)| deleted.is_some())
                && objects.iter().any(|(step, _, _, deleted)| deleted.is_some_and(|later| later > *step))
        };
        all.into_iter().filter(is_storage).cloned().collect()
    }

    /// Returns the objects of these collections that nobody has deleted.
    pub fn left(&self, collections: &BTreeSet<String>) -> Vec<String> {
        let is_left = |(_, collection, _, deleted): &(usize, &String, &Vec<String>, Option<usize>)| {
            deleted.is_none() && collections.contains(*collection)
        };
        let names = self.objects().filter(is_left).filter_map(|(_, _, names, _)| names.first());
        names.cloned().collect::<BTreeSet<String>>().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a ledger of these exchanges: step, method, path, status and body.
    fn ledger(all: &[(usize, &str, &str, u16, &str)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (step, method, path, status, body) in all {
            let exchange =
                Exchange { method, path, asked: b"", status: *status, location: None, body: body.as_bytes() };
            ledger.note(*step, &exchange);
        }
        ledger
    }

    #[test]
    fn storage_is_what_a_later_step_deletes() {
        let clean = ledger(&[
            (1, "POST", "/login", 200, r#"{"id":"s1"}"#),
            (1, "POST", "/sessions", 201, r#"{"id":"s2"}"#),
            (1, "GET", "/volumes?name=a", 200, r#"{"id":"x"}"#),
            (1, "POST", "/volumes/", 201, r#"{"volume":{"id":7}}"#),
            (1, "PUT", "/exports/a", 201, ""),
            (1, "DELETE", "/sessions/s2", 204, ""),
            (2, "DELETE", "/exports/a", 204, ""),
            (2, "DELETE", "/volumes/7?force=true", 202, ""),
        ]);
        let collections = clean.collections();
        assert_eq!(collections.iter().map(String::as_str).collect::<Vec<_>>(), ["/exports", "/volumes"]);
        assert!(clean.left(&collections).is_empty());
    }

    #[test]
    fn a_second_object_is_left_and_the_same_one_twice_is_not() {
        let storage: BTreeSet<String> = ["/volumes".to_owned()].into();
        for (what, made, left) in [
            ("one", vec![r#"{"id":1}"#], vec![]),
            ("the same again", vec![r#"{"id":1}"#, r#"{"id":1}"#], vec![]),
            ("another", vec![r#"{"id":2}"#, r#"{"id":1}"#], vec!["/volumes/2"]),
            ("no id", vec!["", "[]", "{}"], vec![]),
        ] {
            let mut all: Vec<_> = made.iter().map(|body| (1, "POST", "/volumes", 201, *body)).collect();
            all.extend([(2, "DELETE", "/volumes/1", 500, ""), (3, "DELETE", "/volumes/1", 404, "")]);
            assert_eq!(ledger(&all).left(&storage), left, "{what}");
        }
        let refused =
            ledger(&[(1, "POST", "/volumes", 409, r#"{"id":3}"#), (1, "POST", "/volumes", 500, r#"{"id":4}"#)]);
        assert!(refused.left(&storage).is_empty());
    }

    #[test]
    fn a_location_names_an_object() {
        let mut ledger = Ledger::default();
        let made = Exchange {
            method: "POST",
            path: "/volumes",
            asked: b"",
            status: 201,
            location: Some("http://array:80/volumes/9"),
            body: b"",
        };
        ledger.note(1, &made);
        let storage = ["/volumes".to_owned()].into();
        assert_eq!(ledger.left(&storage), ["/volumes/9"]);
        ledger.note(2, &Exchange { method: "DELETE", path: "/volumes/9", location: None, status: 204, ..made });
        assert!(ledger.left(&storage).is_empty() && ledger.collections() == storage);
    }

    #[test]
    fn requests_name_objects_where_answers_and_paths_do_not() {
        let storage: BTreeSet<String> = ["/volumes".to_owned()].into();
        let exchange = |method, path, asked: &'static str| Exchange {
            method,
            path,
            asked: asked.as_bytes(),
            status: 200,
            location: None,
            body: b"",
        };
        for (path, asked) in [("/volumes/a", ""), ("/volumes?force=1&name=a", ""), ("/volumes", r#"{"name":"a"}"#)] {
            let mut ledger = Ledger::default();
            ledger.note(1, &exchange("POST", "/volumes", r#"{"name":"a"}"#));
            assert_eq!(ledger.left(&storage), ["/volumes/a"]);
            ledger.note(2, &exchange("DELETE", path, asked));
            assert!(ledger.left(&storage).is_empty(), "{path}");
        }
    }
}

//! Objects in which every text that the API does not bound is very long. The reader of the kind itself names the
//! fields, so that no field is forgotten.

use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

/// The length of each text.
pub const LONG: usize = 100_000;

/// The types of conditions on which a reader acts.
const CONDITIONS: &[&str] = &[
    "Resizing",
    "ControllerResizeError",
    "FileSystemResizePending",
    "ModifyingVolume",
    "ModifyVolumeError",
    "Complete",
    "SuccessCriteriaMet",
    "FailureTarget",
    "Failed",
    "PodScheduled",
];

/// The texts that the API server checks, by the kinds and fields that have them.
const CHECKED: &[(&str, &str, &str)] = &[
    ("ObjectMeta", "name", "n"),
    ("ObjectMeta", "namespace", "n"),
    ("ObjectMeta", "uid", "0f8fad5b-d9cb-469f-a165-70867728950e"),
    ("ObjectMeta", "resourceVersion", "7"),
    ("ObjectMeta", "finalizers", "example.com/finalizer"),
    ("PersistentVolumeClaimSpec", "accessModes", "ReadWriteOnce"),
    ("PersistentVolumeSpec", "accessModes", "ReadWriteOnce"),
    ("NodeSelectorRequirement", "key", "example.com/label"),
    ("NodeSelectorRequirement", "operator", "In"),
    ("NodeSelectorRequirement", "values", "v"),
    ("Taint", "key", "example.com/taint"),
    ("Taint", "value", "v"),
    ("Taint", "effect", "NoExecute"),
];

/// The texts on which it depends whether a reader keeps others.
const DECISIVE: &[(&str, &str, &str)] = &[
    ("ContainerStateWaiting", "reason", "ErrImagePull"),
    ("ContainerStatus", "name", flex_contract::names::CONTAINER),
    ("OwnerReference", "kind", "Job"),
    ("Event", "reason", "FailedCreate"),
    ("ObjectReference", "kind", "Job"),
];

/// Builds an object in which each annotation has this value.
pub fn filled<K: DeserializeOwned>(annotation: &str) -> K {
    let at = Place { kind: "", field: "", depth: 0, item: 0, annotation };
    K::deserialize(at).expect("the reader of a kind accepts its own fields")
}

/// Returns the keys of all annotations and labels that the contract names.
fn known_keys() -> impl Iterator<Item = &'static str> {
    let names = include_str!("../../crates/contract/src/names.rs").split('"').skip(1).step_by(2);
    names.filter(|name| name.contains('/') && !name.contains(char::is_whitespace))
}

/// The place of a value in an object.
#[derive(Clone, Copy)]
struct Place<'a> {
    kind: &'static str,
    field: &'static str,
    depth: usize,
    item: usize,
    annotation: &'a str,
}

impl Place<'_> {
    fn text(&self) -> String {
        let known = |(kind, field, _): &&(&str, &str, &str)| *kind == self.kind && *field == self.field;
        if let Some((_, _, text)) = CHECKED.iter().chain(DECISIVE).find(known) {
            return (*text).to_owned();
        }
        match (self.kind.ends_with("Condition"), self.field) {
            (true, "type") => CONDITIONS[self.item % CONDITIONS.len()].to_owned(),
            // The scheduler's condition matters if it does not hold.
            (true, "status") => if self.item < CONDITIONS.len() { "True" } else { "False" }.to_owned(),
            (_, "annotations") => self.annotation.to_owned(),
            // The API bounds each label, and each key.
            (_, "labels" | "matchLabels" | "nodeSelector") => "l".repeat(63),
            _ => "x".repeat(LONG),
        }
    }
}

/// The items of a list, or the entries or fields of an object.
struct Items<'a> {
    at: Place<'a>,
    left: Vec<String>,
    fields: Option<std::slice::Iter<'static, &'static str>>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(_) = self.left.pop() else { return Ok(None) };
        self.at.item = self.left.len();
        seed.deserialize(self.at).map(Some)
    }
}

impl<'de> MapAccess<'de> for Items<'_> {
    type Error = Error;
    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let key = match &mut self.fields {
            Some(fields) => fields.next().map(|field| {
                self.at.field = field;
                (*field).to_owned()
            }),
            None => self.left.pop(),
        };
        key.map(|key| seed.deserialize(key.into_deserializer())).transpose()
    }
    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.at)
    }
}

impl<'de> Deserializer<'de> for Place<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(if self.field == "Quantity" { "1Gi".into() } else { self.text() })
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(true)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i32(1)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(1)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        let time: StrDeserializer<'_, Error> = "2026-01-01T00:00:00.000000Z".into_deserializer();
        match name {
            "Time" | "MicroTime" => visitor.visit_newtype_struct(time),
            "Quantity" => visitor.visit_newtype_struct(Place { field: "Quantity", ..self }),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let count = if self.field == "conditions" { 2 * CONDITIONS.len() } else { 1 };
        visitor.visit_seq(Items { at: self, left: vec![String::new(); count], fields: None })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let keys: Vec<_> = match self.field {
            "annotations" | "labels" => {
                known_keys().map(str::to_owned).chain(["example.com/mine".to_owned()]).collect()
            }
            "matchLabels" | "nodeSelector" => vec!["example.com/label".to_owned()],
            _ => vec!["storage".to_owned(), "x".repeat(LONG)],
        };
        visitor.visit_map(Items { at: self, left: keys, fields: None })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        // The first two fields of a kind are its own name, which the reader compares.
        let fields = if self.depth == 0 && fields.first() == Some(&"apiVersion") { &fields[2..] } else { fields };
        let at = Place { kind: name, depth: self.depth + 1, ..self };
        visitor.visit_map(Items { at, left: Vec::new(), fields: Some(fields.iter()) })
    }

    serde::forward_to_deserialize_any! {
        i8 i16 u8 u16 u32 u64 i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct enum
        identifier ignored_any
    }
}

//! Objects as they come from the API, but for `metadata.managedFields`: it is often larger than all the rest, nobody here
//! looks at it, and to skip it takes a fraction of what it takes to build it.

use std::borrow::Cow;
use std::fmt;

use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::value::CowStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, forward_to_deserialize_any};

/// An object without `metadata.managedFields`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Lean<K>(pub K);

impl<K: Resource> Resource for Lean<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

impl<'de, K: Deserialize<'de>> Deserialize<'de> for Lean<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        K::deserialize(Part { inner: deserializer, of: Of::Object }).map(Lean)
    }
}

/// Which part of an object is read.
#[derive(Clone, Copy)]
enum Of {
    Object,
    Metadata,
}

/// Reads, or passes on, that part; what is in it is read as ever.
struct Part<T> {
    inner: T,
    of: Of,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Part<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(Part { inner: visitor, of: self.of })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(Part { inner: visitor, of: self.of })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Of what is no object each kind has its own error.
impl<'de, V: Visitor<'de>> Visitor<'de> for Part<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Part { inner: deserializer, of: self.of })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Fields { map, of: self.of, is_metadata: false })
    }
}

/// The fields of that part.
struct Fields<A> {
    map: A,
    of: Of,
    /// The key before was that of the metadata.
    is_metadata: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        while let Some(Key(key)) = self.map.next_key()? {
            if matches!(self.of, Of::Metadata) && key == "managedFields" {
                self.map.next_value::<IgnoredAny>()?;
                continue;
            }
            self.is_metadata = matches!(self.of, Of::Object) && key == "metadata";
            let key: CowStrDeserializer<'_, A::Error> = key.into_deserializer();
            return seed.deserialize(key).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        match self.is_metadata {
            true => self.map.next_value_seed(Part { inner: seed, of: Of::Metadata }),
            false => self.map.next_value_seed(seed),
        }
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Part<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Part { inner: deserializer, of: self.of })
    }
}

/// The name of a field, as it stands in the text where that is possible.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl<'de> Visitor<'de> for Name {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(name)))
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(name.to_owned())))
            }
        }

        deserializer.deserialize_str(Name)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
    use kube::ResourceExt;
    use serde_json::json;

    use super::*;
    use crate::snapshot::api::VolumeSnapshot;

    fn managed() -> serde_json::Value {
        json!([{ "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                 "fieldsV1": { "f:metadata": { "f:labels": {} } } }])
    }

    #[test]
    fn all_is_read_but_who_manages_which_field() {
        let claim = |managed: serde_json::Value| {
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": "a", "managedFields": managed, "annotations": { "managedFields": "mine", "q\"": "\u{e4}\n" },
                    "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"], "later": { "than": ["we"] },
                },
                "spec": { "storageClassName": "s", "resources": { "requests": { "storage": "1Gi" } } },
                "status": { "phase": "Bound", "conditions": [] },
            })
        };
        let whole: PersistentVolumeClaim = serde_json::from_value(claim(json!(null))).unwrap();
        for text in [claim(managed()).to_string(), format!("{:#}", claim(managed()))] {
            let lean: Lean<PersistentVolumeClaim> = serde_json::from_str(&text).unwrap();
            assert_eq!(lean.0, whole);
            assert_eq!(serde_json::to_value(&lean).unwrap(), serde_json::to_value(&whole).unwrap());
        }
        let lean: Lean<PersistentVolumeClaim> = serde_json::from_value(claim(managed())).unwrap();
        assert_eq!((lean.name_any(), lean.0), ("a".into(), whole));
    }

    #[test]
    fn kinds_that_are_read_otherwise_are_too() {
        let snapshot = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": { "name": "s", "managedFields": managed() },
            "spec": { "source": { "persistentVolumeClaimName": "c" } },
        });
        let lean: Lean<VolumeSnapshot> = serde_json::from_value(snapshot.clone()).unwrap();
        assert_eq!((lean.name_any().as_str(), lean.managed_fields()), ("s", &[][..]));
        let list = json!({ "apiVersion": "v1", "kind": "VolumeSnapshotList", "metadata": {}, "items": [snapshot] });
        let list: kube::core::ObjectList<Lean<VolumeSnapshot>> = serde_json::from_value(list).unwrap();
        assert_eq!((list.items.len(), list.items[0].name_any()), (1, lean.name_any()));
    }

    #[test]
    fn without_metadata_or_what_it_should_be_it_is_as_ever() {
        for text in [
            r#"{"data":{"managedFields":"x"}}"#,
            r#"{"metadata":null}"#,
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"managedFields":null}}"#,
            r#"{"metadata":[1]}"#,
            r#"{"metadata":"text"}"#,
            r#"{"metadata":{"name":1}}"#,
            r#"{"kind":"Secret"}"#,
            "[]",
            "7",
            "null",
            "{",
        ] {
            let (whole, lean) =
                (serde_json::from_str::<ConfigMap>(text), serde_json::from_str::<Lean<ConfigMap>>(text));
            assert_eq!(lean.map(|lean| lean.0).ok(), whole.ok(), "{text}");
        }
    }
}

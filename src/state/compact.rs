//! A map of many objects that resemble each other.
//!
//! Most claims and volumes of a cluster are bound, and differ only in their names, UIDs and versions. The map keeps such
//! an object as its own part and a template, which similar objects share. A lookup puts both together again.

use std::borrow::Borrow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// The greatest number of templates of one shape. Further objects are kept as they are, so that nobody can make the
/// search long by objects that differ in a part that the shape leaves out.
const MAX_TEMPLATES: usize = 16;

/// The text of a template in place of the claim's UID. No UID has this form.
pub(super) const CLAIM: &str = "=";

/// Reads a resourceVersion as a number. Returns `None` if the number does not lead back to the same text.
pub(super) fn version(resource_version: &str) -> Option<u64> {
    resource_version.parse().ok().filter(|version: &u64| version.to_string() == resource_version)
}

/// An object that can be kept as its own part and a template. `split` and `join` lose nothing: for each key and object,
/// `join` of what `split` returns is the object.
pub trait Compact: PartialEq + fmt::Debug + Sized {
    /// The key of the object.
    type Key: Clone + Ord + fmt::Debug;
    /// The part that differs from that of similar objects.
    type Own: fmt::Debug;

    /// Splits the object into its own part and a template. `None` for an object that is seldom like others, or about to
    /// change.
    fn split(&self) -> Option<(Self::Own, Self)>;

    /// Puts an object together again.
    fn join(key: &Self::Key, own: &Self::Own, template: &Self) -> Self;

    /// Returns a number that is equal for equal templates, and mostly differs for others.
    fn shape(&self) -> u64;
}

/// A map of objects by their keys.
#[derive(Debug)]
pub struct CompactMap<V: Compact> {
    objects: BTreeMap<V::Key, Kept<V>>,
    templates: Templates<V>,
}

#[derive(Debug)]
enum Kept<V: Compact> {
    Whole(Arc<V>),
    Compact(Box<V::Own>, Arc<V>),
}

impl<V: Compact> Kept<V> {
    fn object(&self, key: &V::Key) -> Arc<V> {
        match self {
            Kept::Whole(object) => object.clone(),
            Kept::Compact(own, template) => Arc::new(V::join(key, own, template)),
        }
    }
}

impl<V: Compact> Default for CompactMap<V> {
    fn default() -> Self {
        CompactMap { objects: BTreeMap::new(), templates: Templates(HashMap::new()) }
    }
}

impl<V: Compact> CompactMap<V> {
    /// Returns an object.
    pub fn get<Q>(&self, key: &Q) -> Option<Arc<V>>
    where
        V::Key: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.objects.get_key_value(key).map(|(key, kept)| kept.object(key))
    }

    /// Returns all objects, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = Arc<V>> + Clone {
        self.objects.iter().map(|(key, kept)| kept.object(key))
    }

    /// Returns the objects that are kept whole, in the order of their keys. These are all that [`Compact::split`] does
    /// not split, and perhaps others. It costs little, however many objects there are.
    pub fn whole(&self) -> impl Iterator<Item = &Arc<V>> + Clone {
        self.objects.values().filter_map(|kept| match kept {
            Kept::Whole(object) => Some(object),
            Kept::Compact(..) => None,
        })
    }

    /// Returns the keys of the other objects: each of them is bound and settled.
    pub fn settled_keys(&self) -> impl Iterator<Item = &V::Key> {
        self.objects.iter().filter(|(_, kept)| matches!(kept, Kept::Compact(..))).map(|(key, _)| key)
    }

    /// Returns all keys.
    pub fn keys(&self) -> impl Iterator<Item = &V::Key> {
        self.objects.keys()
    }

    /// Adds an object, or its new state. Returns the key that the map keeps, and the state before.
    pub fn insert(&mut self, key: V::Key, object: &Arc<V>) -> (V::Key, Option<Arc<V>>) {
        let kept = match object.split().and_then(|(own, template)| Some((own, self.templates.share(template)?))) {
            Some((own, template)) => Kept::Compact(Box::new(own), template),
            None => Kept::Whole(object.clone()),
        };
        match self.objects.entry(key) {
            Entry::Vacant(vacant) => {
                let key = vacant.key().clone();
                vacant.insert(kept);
                (key, None)
            }
            Entry::Occupied(mut occupied) => {
                let before = occupied.get().object(occupied.key());
                let replaced = occupied.insert(kept);
                let key = occupied.key().clone();
                self.templates.release(replaced);
                (key, Some(before))
            }
        }
    }

    /// Removes an object. Returns its last state.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<Arc<V>>
    where
        V::Key: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (key, kept) = self.objects.remove_entry(key)?;
        let last = kept.object(&key);
        self.templates.release(kept);
        Some(last)
    }
}

/// The templates by their shapes.
#[derive(Debug)]
struct Templates<V>(HashMap<u64, Vec<Arc<V>>>);

impl<V: Compact> Templates<V> {
    /// Returns the template that equals this one, which may be this one. `None` if its shape has too many.
    fn share(&mut self, template: V) -> Option<Arc<V>> {
        let of_shape = self.0.entry(template.shape()).or_default();
        if let Some(known) = of_shape.iter().find(|known| ***known == template) {
            return Some(known.clone());
        }
        (of_shape.len() < MAX_TEMPLATES).then(|| {
            let template = Arc::new(template);
            of_shape.push(template.clone());
            template
        })
    }

    /// Forgets the template of an object that was its last.
    fn release(&mut self, kept: Kept<V>) {
        let Kept::Compact(_, template) = kept else { return };
        // This one, and the one of the list.
        if Arc::strong_count(&template) > 2 {
            return;
        }
        let shape = template.shape();
        if let Some(of_shape) = self.0.get_mut(&shape) {
            of_shape.retain(|known| !Arc::ptr_eq(known, &template));
            if of_shape.is_empty() {
                self.0.remove(&shape);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object with a class, of which objects share the template, and a number of its own.
    #[derive(Clone, Debug, PartialEq)]
    struct Thing {
        class: String,
        detail: u32,
        number: u64,
        busy: bool,
    }

    impl Compact for Thing {
        type Key = String;
        type Own = u64;

        fn split(&self) -> Option<(u64, Self)> {
            (!self.busy).then(|| (self.number, Thing { number: 0, ..self.clone() }))
        }

        fn join(_: &String, own: &u64, template: &Self) -> Self {
            Thing { number: *own, ..template.clone() }
        }

        fn shape(&self) -> u64 {
            self.class.len() as u64
        }
    }

    fn thing(class: &str, detail: u32, number: u64) -> Arc<Thing> {
        Arc::new(Thing { class: class.to_owned(), detail, number, busy: false })
    }

    #[test]
    fn an_object_comes_back_as_it_was() {
        let mut map = CompactMap::default();
        let first = thing("a", 1, 7);
        assert_eq!(map.insert("x".into(), &first).1, None);
        let second = Arc::new(Thing { busy: true, ..(*thing("a", 1, 8)).clone() });
        assert_eq!(map.insert("y".into(), &second).1, None);
        assert_eq!((map.get("x"), map.get("y"), map.get("z")), (Some(first.clone()), Some(second), None));
        assert_eq!(map.insert("x".into(), &thing("b", 1, 9)).1, Some(first));
        assert_eq!(map.remove("x"), Some(thing("b", 1, 9)));
        assert_eq!((map.keys().collect::<Vec<_>>(), map.values().count()), (vec![&"y".to_owned()], 1));
        assert!(map.whole().all(|thing| thing.busy) && map.whole().count() == 1);
    }

    #[test]
    fn similar_objects_share_one_template_until_the_last_is_gone() {
        let mut map = CompactMap::default();
        for number in 0..100 {
            map.insert(format!("{number:03}"), &thing("a", number % 2, u64::from(number)));
        }
        assert_eq!(map.templates.0.values().map(Vec::len).sum::<usize>(), 2);
        for number in 0..99 {
            map.remove(format!("{number:03}").as_str());
        }
        assert_eq!(map.templates.0.values().map(Vec::len).sum::<usize>(), 1);
        assert_eq!(map.insert("099".into(), &thing("bb", 1, 1)).1, Some(thing("a", 1, 99)));
        map.remove("099");
        assert!(map.templates.0.is_empty());
    }

    #[test]
    fn objects_of_too_many_kinds_are_kept_as_they_are() {
        let mut map = CompactMap::default();
        for number in 0..100 {
            map.insert(format!("{number:03}"), &thing("a", number, 5));
        }
        assert_eq!(map.templates.0.values().map(Vec::len).sum::<usize>(), MAX_TEMPLATES);
        for number in 0..100 {
            assert_eq!(map.get(format!("{number:03}").as_str()), Some(thing("a", number, 5)));
        }
    }
}

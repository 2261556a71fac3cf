//! Volumes that this process has adopted but for the adoption mark, which it writes with the phase.
//!
//! The ledger can be lost without harm: a process that does not know of the adoption adopts the volume again.

use std::collections::HashMap;
use std::sync::Arc;

use flex_core::model::volume::{Volume, adoption_mark};

use crate::state::watch_change::Changed;

/// The UIDs of the volumes and the marks that are still to be written, by the names of the volumes.
#[derive(Debug, Default)]
pub struct Unmarked(HashMap<String, (String, String)>);

impl Unmarked {
    /// Records a volume as this process has just adopted it.
    pub fn record(&mut self, adopted: &Volume) {
        if let Some(provenance) = &adopted.provenance {
            let mark = adoption_mark(provenance, &adopted.uid);
            self.0.insert(adopted.name.clone(), (adopted.uid.clone(), mark));
        }
    }

    /// Applies a change of a volume: forgets the volume if it is gone, has its mark, or was replaced by another volume.
    pub fn on_volume(&mut self, changed: &Changed<Volume>) {
        let name = &changed.last().name;
        let Some((uid, _)) = self.0.get(name) else { return };
        if changed.now.as_ref().is_none_or(|now| now.is_adopted() || *uid != now.uid) {
            self.0.remove(name);
        }
    }

    /// Returns the volume with the mark that it lacks; `None` if it lacks none. A volume whose provenance somebody has
    /// changed since is not adopted.
    pub fn marked(&self, volume: &Volume) -> Option<Arc<Volume>> {
        let (_, mark) = self.0.get(&volume.name).filter(|(uid, _)| *uid == volume.uid)?;
        let provenance = volume.provenance.as_deref();
        let is_same = provenance.is_some_and(|provenance| adoption_mark(provenance, &volume.uid) == *mark);
        let adoption_mark = Some(mark.clone());
        let lacks_it = is_same && !volume.is_adopted();
        lacks_it.then(|| Arc::new(Volume { adoption_mark, foreign_metadata: None, ..volume.clone() }))
    }

    /// Forgets all volumes, because another term begins.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(provenance: &str) -> Volume {
        let volume = Volume::from(&k8s_openapi::api::core::v1::PersistentVolume::default());
        Volume { name: "pv".into(), provenance: Some(provenance.into()), ..volume }
    }

    #[test]
    fn only_the_volume_as_it_was_adopted_counts_as_marked() {
        let mut unmarked = Unmarked::default();
        assert!(unmarked.marked(&volume("{}")).is_none(), "nobody has adopted it");
        unmarked.record(&volume("{}"));
        let marked = unmarked.marked(&volume("{}")).expect("it lacks only the mark");
        assert!(marked.is_adopted());
        assert!(unmarked.marked(&volume("{ }")).is_none(), "somebody has changed its provenance");
        assert!(unmarked.marked(&Volume { name: "other".into(), ..volume("{}") }).is_none());
        assert!(unmarked.marked(&Volume { uid: "restored".into(), ..volume("{}") }).is_none(), "it was restored");
        assert!(unmarked.marked(&marked).is_none(), "it has its mark");
        let of_another = Volume { adoption_mark: Some(adoption_mark("{}", "another")), ..volume("{}") };
        unmarked.on_volume(&Changed { before: None, now: Some(Arc::new(of_another.clone())) });
        assert!(unmarked.marked(&of_another).is_some_and(|marked| marked.is_adopted()), "it has the mark of another");
    }

    #[test]
    fn a_volume_is_forgotten_with_its_mark_or_its_end() {
        let changed = |now: Volume| Changed { before: None, now: Some(Arc::new(now)) };
        let mut unmarked = Unmarked::default();
        unmarked.record(&volume("{}"));
        unmarked.on_volume(&changed(Volume { phase: "Available".into(), ..volume("{}") }));
        let marked = unmarked.marked(&volume("{}")).expect("another change leaves it");
        unmarked.on_volume(&changed((*marked).clone()));
        assert!(unmarked.marked(&volume("{}")).is_none(), "a mark was written");
        unmarked.record(&volume("{}"));
        unmarked.on_volume(&changed(Volume { uid: "restored".into(), ..volume("{}") }));
        assert!(unmarked.marked(&volume("{}")).is_none(), "another volume has taken its place");
        unmarked.record(&volume("{}"));
        unmarked.on_volume(&Changed::gone(Arc::new(volume("{}"))));
        assert!(unmarked.marked(&volume("{}")).is_none(), "another volume may have the name");
    }
}

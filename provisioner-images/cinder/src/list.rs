//! The list of Cinder's volumes, by their metadata.

use flex_contract::listing::{Entry, State};

use crate::names::{METADATA_VOLUME_ID, is_id};
use crate::run::{Outcome, Run};

impl Run {
    /// Prints a line for each volume of the project whose metadata name a volume id.
    ///
    /// # Errors
    /// Those of Cinder.
    pub async fn list(&self) -> Outcome<()> {
        let volumes = self.cinder.volumes("").await?;
        let mut entries: Vec<Entry> = volumes
            .into_iter()
            .filter_map(|volume| {
                let id = volume.metadata.get(METADATA_VOLUME_ID).filter(|id| is_id(id))?.clone();
                let state = match volume.status.as_str() {
                    "deleting" | "error_deleting" | "error" => State::Rubbish,
                    _ => State::Volume,
                };
                Some(Entry { state, id, bytes: Some(volume.bytes()), place: format!("Cinder volume {}", volume.id) })
            })
            .collect();
        entries.sort();
        Ok(flex_image_kit::listing::print(&entries)?)
    }
}

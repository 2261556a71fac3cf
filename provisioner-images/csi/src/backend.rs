//! The driver's free space and its volumes. Such runs are for no volume.

use std::collections::{BTreeMap, BTreeSet};

use csi_spec::csi::controller_service_capability::rpc::Type;
use csi_spec::csi::{GetCapacityRequest, ListVolumesRequest, Topology, Volume};
use flex_contract::listing::{Entry, State, is_id};
use flex_image_kit::Failure;

use crate::cluster::Owner;
use crate::provision::for_driver;
use crate::run::{Outcome, Run};

/// The number of volumes in a page of a list.
const PAGE: i32 = 500;

impl Run {
    /// Reports the free space for volumes of the class, in the place of the run.
    ///
    /// # Errors
    /// If the driver does not tell it.
    pub async fn capacity(&self) -> Outcome<()> {
        self.driver.must(Type::GetCapacity, "tell how much room it has")?;
        let message = GetCapacityRequest {
            volume_capabilities: Vec::new(),
            parameters: for_driver(&self.request, &self.parameters),
            accessible_topology: self.segment().await?.map(|segments| Topology { segments }),
        };
        let asked = self.driver.call("GetCapacity", "", async {
            self.driver.controller().get_capacity(self.driver.request(message)).await
        });
        let answer = asked.await?;
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or_default();
        let largest = answer.maximum_volume_size.map(bytes).filter(|largest| *largest > 0);
        Ok(flex_image_kit::capacity::print(bytes(answer.available_capacity), largest)?)
    }

    /// Returns the place of the run in the driver's labels.
    async fn segment(&self) -> Outcome<Option<BTreeMap<String, String>>> {
        let request = &self.request;
        if !self.driver.has_topology() || (request.node_name.is_empty() && request.topology.is_empty()) {
            return Ok(None);
        }
        if request.node_name.is_empty() {
            return Ok(Some(request.topology.clone()));
        }
        let nodes = self.cluster.nodes(Some(&request.node_name), &self.driver.name).await?;
        let node = nodes.first().filter(|node| !node.keys.is_empty());
        let node = node.ok_or_else(|| {
            Failure::retry(format!("the driver has said of no topology on the node {}", request.node_name))
        })?;
        let labels = node.labels.iter().filter(|(key, _)| node.keys.contains(key));
        Ok(Some(labels.map(|(key, value)| (key.clone(), value.clone())).collect()))
    }

    /// Prints a line for each volume of the driver that belongs to this provisioner or to nobody.
    ///
    /// # Errors
    /// If the driver does not list all volumes.
    pub async fn list(&self) -> Outcome<()> {
        self.driver.must(Type::ListVolumes, "list its volumes")?;
        let mut volumes = Vec::new();
        let mut token = String::new();
        let mut observed = BTreeSet::new();
        loop {
            let message = ListVolumesRequest { max_entries: PAGE, starting_token: token.clone() };
            let asked = self.driver.call("ListVolumes", &token, async {
                self.driver.controller().list_volumes(self.driver.request(message)).await
            });
            let answer = asked.await?;
            volumes.extend(answer.entries.into_iter().filter_map(|entry| entry.volume));
            if answer.next_token.is_empty() {
                break;
            }
            if !observed.insert(answer.next_token.clone()) {
                return Err(Failure::retry("the CSI driver's list of volumes goes in a circle").into());
            }
            token = answer.next_token;
        }
        // This comes after the list, so that each listed volume already has its PersistentVolume, if it gets one.
        let owners = self.cluster.owners(&self.driver.name).await?;
        Ok(flex_image_kit::listing::print(&entries(&volumes, &owners))?)
    }
}

/// Returns the lines of a list. The driver does not say for which claim a volume was made, but the PersistentVolume
/// does. A volume without one appears with the driver's id, as nobody's. The function is pure.
fn entries(volumes: &[Volume], owners: &BTreeMap<String, Owner>) -> Vec<Entry> {
    let line = |volume: &Volume| {
        let id = match owners.get(&volume.volume_id) {
            Some(Owner::Other) => return None,
            Some(Owner::Ours(id)) => id.clone(),
            None => volume.volume_id.clone(),
        };
        let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
        let id = if is_id(&id) { id } else { format!("csi-{}", id.chars().map(legal).collect::<String>()) };
        let bytes = u64::try_from(volume.capacity_bytes).ok().filter(|bytes| *bytes > 0);
        Some(Entry { state: State::Volume, id, bytes, place: format!("CSI volume {}", volume.volume_id) })
    };
    let mut entries: Vec<Entry> = volumes.iter().filter_map(line).collect();
    entries.sort();
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listed_volume_has_its_claim_or_none() {
        let volume =
            |id: &str, bytes: i64| Volume { volume_id: id.into(), capacity_bytes: bytes, ..Default::default() };
        let volumes = [volume("h1", 10), volume("h2", 0), volume("h3", 5), volume("pool/x y", 1)];
        let owners = [("h1".to_owned(), Owner::Ours("uuid-1".into())), ("h3".to_owned(), Owner::Other)].into();
        let found: Vec<String> = entries(&volumes, &owners).iter().map(|entry| entry.to_string()).collect();
        assert_eq!(
            found,
            [
                "volume csi-pool-x-y 1 CSI volume pool/x y",
                "volume h2 - CSI volume h2",
                "volume uuid-1 10 CSI volume h1"
            ]
        );
    }
}

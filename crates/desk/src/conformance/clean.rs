//! The delete runs that remove what other runs have left on storage that outlives them.

use flex_contract::listing;
use flex_contract::names::pv_name;
use flex_core::config::capability;
use flex_core::model::claim::Claim;
use futures::future::join_all;

use super::place::Place;
use crate::desk::{DeskError, Stop};
use crate::order::Order;
use crate::setting::Setting;

/// Runs an order that deletes something. Returns why it failed.
async fn delete(place: &impl Place, setting: &Setting, order: Order) -> Result<Option<String>, DeskError> {
    let job = setting.job(&order, place.attempt(), &place.kube_api()).map_err(DeskError::Container)?;
    let ended = place.run(setting, job, Stop::Never).await?;
    if ended.is_success() {
        place.succeeded(&order);
        return Ok(None);
    }
    Ok(Some(format!("exit code {}: {}", ended.code, ended.last_words())))
}

async fn delete_volume(place: &impl Place, setting: &Setting, claim: Claim) -> Result<Option<String>, DeskError> {
    let order = match place.volume(&pv_name(&claim.volume_id())).await? {
        Some(volume) => Order::Delete(setting.adopted(&claim, volume)),
        None => Order::Undo { claim },
    };
    delete(place, setting, order).await
}

/// Deletes the storage that runs may have left. Returns what is left nevertheless.
///
/// # Errors
/// If the place cannot run something.
pub async fn delete_storage(place: &impl Place, setting: &Setting) -> Result<Vec<String>, DeskError> {
    let mut left = Vec::new();
    let snapshots = place.leftovers().borrow().snapshots();
    for order in snapshots {
        let Order::DeleteSnapshot(_, id) = order.clone() else { continue };
        if let Some(why) = delete(place, setting, order).await? {
            left.push(format!("the snapshot {id} on the storage: its delete run failed: {why}"));
        }
    }
    let claims = place.leftovers().borrow().volumes();
    let runs = claims.into_iter().map(async |claim| (claim.volume_id(), delete_volume(place, setting, claim).await));
    for (id, deleted) in join_all(runs).await {
        if let Some(why) = deleted? {
            left.push(format!("the volume {id} on the storage: its delete run failed: {why}"));
        }
    }
    Ok(left)
}

/// Returns the volumes whose ids begin with a prefix, and that a list run still shows. Without list runs there are none.
///
/// # Errors
/// If the place cannot run the list, or the list cannot be read.
pub async fn listed(place: &impl Place, setting: &Setting, prefix: &str) -> Result<Vec<String>, DeskError> {
    if !setting.recipe.can(capability::LIST) {
        return Ok(Vec::new());
    }
    let job = setting.job(&Order::List, place.attempt(), &place.kube_api()).map_err(DeskError::Container)?;
    let ended = place.run(setting, job, Stop::Never).await?;
    let entries = listing::read(&ended.log)
        .map_err(|error| DeskError::Machine(format!("the list of what is left cannot be read: {error}")))?;
    let own = entries.into_iter().filter(|entry| entry.id.starts_with(prefix));
    Ok(own.map(|entry| format!("{} on the storage, at {}", entry.id, entry.place)).collect())
}

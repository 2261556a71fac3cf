//! The delete runs that remove what other runs have left on storage that outlives them.

use flex_contract::listing;
use flex_contract::names::pv_name;
use flex_core::config::capability;
use flex_core::model::claim::Claim;
use futures::future::join_all;

use super::patience::patiently;
use super::place::Place;
use crate::desk::{DeskError, Ended, Stop};
use crate::order::Order;
use crate::setting::Setting;

/// Runs an order, and repeats the run while it asks for that.
async fn run(place: &impl Place, setting: &Setting, order: &Order) -> Result<Ended, DeskError> {
    let attempt = async |attempt| {
        let job = setting.job(order, place.attempt(order, attempt), &place.kube_api()).map_err(DeskError::Container)?;
        place.run(setting, job, Stop::Never).await
    };
    patiently(place.repeats(), order.operation().as_str(), false, attempt).await
}

/// Runs an order that deletes something. Returns why the storage may still exist.
async fn delete(place: &impl Place, setting: &Setting, order: Order) -> Result<(), String> {
    let ended = run(place, setting, &order).await.map_err(|error| error.to_string())?;
    if !ended.is_success() {
        return Err(format!("its delete run failed with exit code {}: {}", ended.code, ended.last_words()));
    }
    place.succeeded(&order);
    Ok(())
}

async fn delete_volume(place: &impl Place, setting: &Setting, claim: Claim) -> Result<(), String> {
    let name = pv_name(&claim.volume_id());
    let found = place.volume(&name).await.map_err(|error| error.to_string())?;
    // Without the place of the storage, some images find nothing to delete, and succeed.
    let found = found.or_else(|| place.leftovers().borrow().forgotten(&name));
    let order = match found {
        Some(volume) => Order::Delete(setting.adopted(&claim, volume)),
        None => Order::Undo { claim },
    };
    delete(place, setting, order).await
}

/// Deletes the storage that runs may have left. An error ends no other deletion. Returns what may be left nevertheless.
pub async fn delete_storage(place: &impl Place, setting: &Setting) -> Vec<String> {
    let mut left = Vec::new();
    let snapshots = place.leftovers().borrow().snapshots();
    for order in snapshots {
        let Order::DeleteSnapshot(_, id) = order.clone() else { continue };
        let deleted = delete(place, setting, order).await;
        left.extend(deleted.err().map(|why| format!("the snapshot {id} on the storage, perhaps: {why}")));
    }
    let claims = place.leftovers().borrow().volumes();
    let runs = claims.into_iter().map(async |claim| (claim.volume_id(), delete_volume(place, setting, claim).await));
    for (id, deleted) in join_all(runs).await {
        left.extend(deleted.err().map(|why| format!("the volume {id} on the storage, perhaps: {why}")));
    }
    left
}

/// Returns the volumes whose ids begin with a prefix, and that a list run still shows. Without list runs there are none.
///
/// # Errors
/// If the place cannot run the list, or the list cannot be read.
pub async fn listed(place: &impl Place, setting: &Setting, prefix: &str) -> Result<Vec<String>, DeskError> {
    if !setting.recipe.can(capability::LIST) {
        return Ok(Vec::new());
    }
    let ended = run(place, setting, &Order::List).await?;
    let entries = listing::read(&ended.log)
        .map_err(|error| DeskError::Machine(format!("the list of what is left cannot be read: {error}")))?;
    let own = entries.into_iter().filter(|entry| entry.id.starts_with(prefix));
    Ok(own.map(|entry| format!("{} on the storage, at {}", entry.id, entry.place)).collect())
}

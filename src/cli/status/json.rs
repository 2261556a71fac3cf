//! The overview for scripts.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::overview::{Overview, PoolRow, pools, states};
use crate::capacity::{CapacityRecord, Published};
use crate::class_health::health::Health;
use crate::class_health::row::Row;
use crate::config::classes::Class;
use crate::model::volume::Volume;
use crate::policies;

/// Returns the overview as a document.
pub(super) fn document(overview: &Overview<'_>) -> Value {
    let surroundings = overview.surroundings;
    let policies = surroundings.policies.as_ref().ok().map(|states| policies::to_json(states));
    let left: BTreeMap<_, _> = overview.table.all_left_to_external_provisioners().collect();
    json!({
        "leader": surroundings.leader.as_ref().ok(),
        "noLeader": surroundings.leader.as_ref().err(),
        "classes": overview.classes.iter().map(|class| of_class(overview, class)).collect::<Vec<_>>(),
        "claims": overview.rows.iter().map(of_claim).collect::<Vec<_>>(),
        "volumes": overview.volumes.iter().map(of_volume).collect::<Vec<_>>(),
        "pools": pools(&overview.classes, &overview.volumes).iter().map(of_pool).collect::<Vec<_>>(),
        "configs": of_configs(overview),
        "capacities": surroundings.capacities.as_ref().ok().map(|published| of_capacities(published)),
        "left": left,
        "policies": policies,
        "ignoredConfigs": surroundings.unseen_configs.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn of_class(overview: &Overview<'_>, class: &Class) -> Value {
    let Health { failing, undeleted, slow, .. } =
        Health::of(&class.name, &overview.table, &overview.rows, &overview.volumes);
    let class_use = overview.use_of(&class.name);
    let recipe = class.recipe.as_ref().ok();
    json!({
        "name": class.name,
        "storageClassObject": class.has_object,
        "config": recipe.map(|recipe| recipe.version()),
        "lastGood": class.last_good,
        "failing": failing,
        "undeleted": undeleted,
        "slow": slow,
        "error": class.recipe.as_ref().err(),
        "claims": states(&overview.rows, &class.name).into_iter().collect::<BTreeMap<_, _>>(),
        "capabilities": recipe.map(|recipe| &recipe.capabilities),
        "runs": class_use.runs,
        "maxInFlight": recipe.map(|recipe| recipe.max_in_flight),
        "usedVolumes": class_use.quota.volumes,
        "maxVolumes": recipe.and_then(|recipe| recipe.quota.volumes),
        "usedBytes": u64::try_from(class_use.quota.bytes).unwrap_or(u64::MAX),
        "maxBytes": recipe.and_then(|recipe| recipe.quota.bytes),
        "madeLastMinute": class_use.last_minute,
        "madeLastHour": class_use.last_hour,
    })
}

fn of_pool(kept: &PoolRow<'_>) -> Value {
    let (low, high) = (kept.watermarks.low, kept.watermarks.high);
    json!({ "class": kept.class, "bytes": kept.size, "ready": kept.ready, "low": low, "high": high })
}

fn of_claim(row: &Row) -> Value {
    json!({
        "claim": row.claim, "class": row.class, "state": row.state, "attempt": row.attempt, "ageSeconds": row.age,
        "lastFailure": row.describe(), "nextTrySeconds": row.next_try,
    })
}

fn of_volume(volume: &Arc<Volume>) -> Value {
    json!({
        "volume": volume.name, "class": volume.class, "phase": volume.phase.as_str(),
        "lastFailure": volume.last_failure, "expansion": volume.last_failed_expansion,
        "modification": volume.pending_modification,
    })
}

fn of_configs(overview: &Overview<'_>) -> Vec<Value> {
    let verdicts = overview.table.verdicts.iter();
    verdicts
        .map(|(name, verdict)| {
            json!({ "config": name.to_string(), "problems": verdict.problems, "warnings": verdict.warnings })
        })
        .collect()
}

fn of_capacities(published: &[Published]) -> Vec<Value> {
    let known = published.iter().filter_map(|published| Some((published, published.record.as_ref()?)));
    let entry = |(published, record): (&Published, &CapacityRecord)| {
        json!({
            "class": published.class, "topology": published.topology, "bytes": published.bytes,
            "unlimited": published.is_unlimited(), "largest": published.largest, "lastFailure": record.message,
        })
    };
    known.map(entry).collect()
}

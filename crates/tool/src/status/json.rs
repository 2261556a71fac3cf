//! The overview for scripts.

use flex_core::capacity::{CapacityRecord, Published};
use flex_core::policies;
use flex_provisioner::class_health::row::Row;
use flex_provisioner::overview::{ClassRow, ConfigRow, PoolRow, VolumeRow};
use serde_json::{Value, json};

use super::surroundings::Shown;

/// Returns the overview as a document.
pub(super) fn document(shown: Shown<'_>) -> Value {
    let Shown { surroundings, overview, .. } = shown;
    let policies = surroundings.policies.as_ref().ok().map(|states| policies::to_json(states));
    let pools = overview.classes.iter().flat_map(|class| class.pools.iter().map(|pool| of_pool(&class.name, pool)));
    json!({
        "leader": surroundings.leader.as_ref().ok(),
        "noLeader": surroundings.leader.as_ref().err(),
        "classes": overview.classes.iter().map(of_class).collect::<Vec<_>>(),
        "claims": overview.claims.iter().map(of_claim).collect::<Vec<_>>(),
        "volumes": overview.volumes.iter().map(of_volume).collect::<Vec<_>>(),
        "pools": pools.collect::<Vec<_>>(),
        "configs": overview.configs.iter().map(of_config).collect::<Vec<_>>(),
        "capacities": surroundings.capacities.as_ref().ok().map(|published| of_capacities(published)),
        "left": overview.left,
        "kept": overview.kept,
        "policies": policies,
        "ignoredConfigs": surroundings.unseen_configs.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn of_class(class: &ClassRow) -> Value {
    let recipe = class.recipe.as_ref().ok();
    json!({
        "name": class.name,
        "storageClassObject": class.has_object,
        "config": recipe.map(|recipe| &recipe.version),
        "lastGood": class.last_good,
        "failing": class.health.failing,
        "undeleted": class.health.undeleted,
        "slow": class.health.slow,
        "error": class.recipe.as_ref().err(),
        "claims": class.claims,
        "capabilities": recipe.map(|recipe| &recipe.capabilities),
        "runs": class.runs,
        "maxInFlight": recipe.map(|recipe| recipe.max_in_flight),
        "usedVolumes": class.used_volumes,
        "maxVolumes": recipe.and_then(|recipe| recipe.max_volumes),
        "usedBytes": class.used_bytes,
        "maxBytes": recipe.and_then(|recipe| recipe.max_bytes),
        "madeLastMinute": class.last_minute,
        "madeLastHour": class.last_hour,
    })
}

fn of_pool(class: &str, pool: &PoolRow) -> Value {
    json!({ "class": class, "bytes": pool.size, "ready": pool.ready, "low": pool.low, "high": pool.high })
}

fn of_claim(row: &Row) -> Value {
    json!({
        "claim": row.claim, "class": row.class, "state": row.state, "attempt": row.attempt, "ageSeconds": row.age,
        "lastFailure": row.describe(), "nextTrySeconds": row.next_try,
    })
}

fn of_volume(volume: &VolumeRow) -> Value {
    json!({
        "volume": volume.name, "class": volume.class, "phase": volume.phase,
        "lastFailure": volume.last_failure, "expansion": volume.expansion, "modification": volume.modification,
    })
}

fn of_config(config: &ConfigRow) -> Value {
    json!({ "config": config.name, "problems": config.problems, "warnings": config.warnings })
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

//! The check of the keys of pools.

use std::collections::BTreeMap;

use flex_contract::quantity;

use super::reader::Reader;
use crate::config::Recipe;
use crate::config::capability;
use crate::config::keys;
use crate::config::pool::{MAX_POOLED, Pool, Watermarks};
use crate::config::values::{map, number, size};

/// Reads the keys of a class's pool.
pub(super) fn pool(r: &mut Reader<'_>) -> Option<Pool> {
    let max_bytes = r.read(&keys::POOL_MAX_BYTES, size);
    let in_flight = r.read(&keys::POOL_IN_FLIGHT, |text| number(text, 1, 10_000)).map(|n| n as usize);
    let kept = r.read(&keys::POOL, sizes);
    if r.text(&keys::POOL).is_none() {
        for key in [&keys::POOL_MAX_BYTES, &keys::POOL_IN_FLIGHT] {
            if !r.data.contains_key(key.name) {
                continue;
            }
            r.fail(
                key,
                "says how to fill a pool, but the config has no pool: write `pool`, such as 10Gi=5, or remove this key",
            );
        }
    }
    kept.map(|sizes| Pool { sizes, max_bytes, in_flight, hash: String::new() })
}

/// Reads sizes, each with its low and high watermark.
fn sizes(text: &str) -> Result<BTreeMap<u64, Watermarks>, String> {
    let mut sizes = BTreeMap::new();
    for (key, watermarks) in map(text)? {
        let bytes = size(&key)?;
        let explain =
            |_| format!("`{watermarks}` is not a number of volumes; write for example {key}=5, or {key}=2..8");
        let (low, high) = match watermarks.split_once("..") {
            Some((low, high)) => (number(low.trim(), 1, MAX_POOLED), number(high.trim(), 1, MAX_POOLED)),
            None => (number(watermarks.trim(), 1, MAX_POOLED), number(watermarks.trim(), 1, MAX_POOLED)),
        };
        let watermarks = Watermarks { low: low.map_err(explain)? as usize, high: high.map_err(explain)? as usize };
        if watermarks.low > watermarks.high {
            return Err(format!(
                "{key}={}..{} ends before it begins; write the smaller number first",
                watermarks.low, watermarks.high
            ));
        }
        if bytes == 0 {
            return Err(format!("`{key}` is not a size that a claim can ask for"));
        }
        if sizes.insert(bytes, watermarks).is_some() {
            return Err(format!("the size {} appears twice; keep one", quantity::quantity(bytes).0));
        }
    }
    match sizes.is_empty() {
        true => Err("names no size; write for example 10Gi=5".into()),
        false => Ok(sizes),
    }
}

/// Checks whether the rest of a config allows a pool.
pub(super) fn check(r: &mut Reader<'_>, recipe: &Recipe, pool: &Pool) {
    if !recipe.can(capability::POOL) {
        r.fail(
            &keys::POOL,
            "needs `pool` among the `capabilities`: only an image that needs nothing from a claim but its size can make volumes before a claim exists",
        );
    }
    if !recipe.claim_metadata.is_empty() {
        r.fail(
            &keys::CLAIM_METADATA,
            "cannot be used with `pool`: a volume that is made before its claim gets none of the claim's labels and annotations; remove one of the two",
        );
    }
    for bytes in pool.sizes.keys() {
        let small = recipe.min_size.is_some_and(|min| *bytes < min);
        if small || recipe.max_size.is_some_and(|max| *bytes > max) {
            let size = quantity::quantity(*bytes).0;
            r.fail(
                &keys::POOL,
                format!("the size {size} is not between min-size and max-size: no claim may ask for it"),
            );
        }
    }
}

//! The free space of Cinder for volumes of the class.

use flex_image_kit::Failure;

use crate::api::{GIB, Pool};
use crate::run::{Outcome, Run};
use crate::trouble::Kind;

impl Run {
    /// Reports the free space of the pools of the volume type's backend, limited by what the project's quota has left.
    ///
    /// # Errors
    /// Those of Cinder. Also if neither pools nor quota say how much is free.
    pub async fn capacity(&self) -> Outcome<()> {
        let quota = self.cinder.quota_left().await?;
        let backend = match &self.parameters.volume_type {
            Some(name) => self.cinder.backend_of_type(name).await?,
            None => None,
        };
        let pools = match self.cinder.pools().await {
            Ok(pools) => Some(pools),
            // Only admins may see the pools.
            Err(trouble) if trouble.kind == Kind::Denied => None,
            Err(trouble) => return Err(trouble.into()),
        };
        let free_gib = free_gib(pools.as_deref(), backend.as_deref(), quota);
        let Some(FreeGib { sum: free, largest }) = free_gib else {
            return Err(Failure::permission(
                "nothing says how much room Cinder has: the project has no quota of gigabytes, and the pools are for admins to \
                 see; give the project a quota, or take `capacity` out of the `capabilities` of the config",
            )
            .into());
        };
        Ok(flex_image_kit::capacity::print(free.saturating_mul(GIB), Some(largest.saturating_mul(GIB)))?)
    }
}

/// Free space, in GiB.
#[derive(Debug, PartialEq)]
struct FreeGib {
    /// The free space of all pools.
    sum: u64,
    /// The free space of the largest pool.
    largest: u64,
}

/// Returns the free space; `None` if neither pools nor quota say. The function is pure.
fn free_gib(pools: Option<&[Pool]>, backend: Option<&str>, quota: Option<u64>) -> Option<FreeGib> {
    let of_quota = || quota.map(|quota| FreeGib { sum: quota, largest: quota });
    let of_type: Option<Vec<Option<u64>>> = pools.map(|pools| {
        let fits = |pool: &&Pool| backend.is_none_or(|backend| pool.backend == backend);
        pools.iter().filter(fits).map(|pool| pool.free).collect()
    });
    let most = quota.unwrap_or(u64::MAX);
    match of_type {
        None => of_quota(),
        // If one pool is infinite, the others do not matter.
        Some(free) if free.contains(&None) => of_quota(),
        Some(free) => {
            let free: Vec<u64> = free.into_iter().flatten().collect();
            let (sum, largest) = (free.iter().sum::<u64>(), free.iter().max().copied().unwrap_or(0));
            Some(FreeGib { sum: sum.min(most), largest: largest.min(most) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_that_of_the_type_s_pools_within_the_quota() {
        let pool = |backend: &str, free: Option<u64>| Pool { backend: backend.into(), free };
        let pools = [pool("a", Some(10)), pool("a", Some(30)), pool("b", Some(500)), pool("c", None)];
        for (pools, backend, quota, expected) in [
            (Some(&pools[..]), Some("a"), None, Some((40, 30))),
            (Some(&pools[..]), Some("a"), Some(35), Some((35, 30))),
            (Some(&pools[..]), Some("a"), Some(0), Some((0, 0))),
            (Some(&pools[..]), Some("c"), Some(7), Some((7, 7))),
            (Some(&pools[..]), Some("c"), None, None),
            (Some(&pools[..]), Some("none"), None, Some((0, 0))),
            (Some(&pools[..3]), None, None, Some((540, 500))),
            (None, Some("a"), Some(7), Some((7, 7))),
            (None, None, None, None),
        ] {
            let expected = expected.map(|(sum, largest)| FreeGib { sum, largest });
            assert_eq!(free_gib(pools, backend, quota), expected, "{backend:?} {quota:?}");
        }
    }
}

//! The sizes of volumes, as list runs of the program and devices of this machine tell them.

use super::bench::{Bench, Step, check};
use super::content::device_size;
use super::listed::list;
use crate::order::Made;

/// Checks that a volume has at least so many bytes, as far as a list run or its device tells. Returns what they tell: that
/// of the device, if it has one.
pub(super) async fn at_least(bench: &Bench, made: &Made, bytes: u64) -> Step<Option<u64>> {
    // On a cluster, a run takes seconds.
    if bench.desk().is_err() {
        return Ok(None);
    }
    let id = made.claim.volume_id();
    let entries = list(bench).await?.unwrap_or_default();
    // Some storage systems say 0 for a size that they do not know.
    let listed = entries.iter().find(|entry| entry.id == id).and_then(|entry| entry.bytes).filter(|bytes| *bytes != 0);
    let device = device_size(bench, &made.volume);
    for (size, whose) in [(listed, "a list run says that it"), (device, "its device")] {
        check(size.is_none_or(|size| size >= bytes), || {
            format!("the volume must have {bytes} bytes, and {whose} has {}", size.unwrap_or_default())
        })?;
    }
    Ok(device.or(listed))
}

/// Checks that a volume has not become smaller.
pub(super) fn not_smaller(before: Option<u64>, now: Option<u64>) -> Step<()> {
    let shrunk = before.zip(now).filter(|(before, now)| now < before);
    check(shrunk.is_none(), || {
        let (before, now) = shrunk.unwrap_or_default();
        format!("the run has made the volume smaller: it had {before} bytes, and has {now}")
    })
}

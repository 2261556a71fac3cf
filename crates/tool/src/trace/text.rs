//! A trace as text.

use flex_contract::operation::Operation;
use flex_contract::reason;
use flex_core::claim::failed_attempts::FailedAttempt;
use flex_core::claim::progress::{Progress, progress};
use flex_core::claim::standing::Obstacle;
use flex_core::claim::timeline::{Reached, Stage, Timeline};
use flex_core::run::failure::LastFailure;
use flex_provisioner::age::age;
use flex_provisioner::api::claim_events::ClaimEvent;

use super::observation::Trace;
use crate::markdown::unlinked;
use crate::name::{name, told};

/// The width of the column with the bars.
const BAR: i64 = 40;
/// The shortest time that is called the longest, in milliseconds. Kubernetes tells most times in whole seconds.
const LONG: i64 = 1000;
/// The largest number of events in the text.
const EVENTS: usize = 5;

/// Returns a trace as text, with ages at `now`, in seconds since 1970: first the state, its cause and the next try.
pub(super) fn text(trace: &Trace, now: i64) -> String {
    let mut lines = vec![headline(trace, now)];
    lines.extend(trace.idle.iter().map(|why| format!("Nobody works on it: {}", told(why))));
    lines.extend(cause(trace, now));
    lines.extend(waiting(trace, now));
    lines.extend(earlier(trace));
    lines.extend(stages(&trace.timeline, trace.begin()));
    if let Some(Reached { stage, took, .. }) =
        trace.timeline.slowest(trace.begin()).filter(|slowest| slowest.took >= LONG)
    {
        let worker = match stage {
            Stage::Stamped if trace.begin() > trace.timeline.created => {
                ": the delay after a failure, and the limits of the class".to_owned()
            }
            stage => format!(", the work of {}", stage.worker()),
        };
        lines.push(format!("Longest: {} for {}{worker}.", seconds(took), stage.awaited()));
    }
    let (ours, others): (Vec<_>, Vec<_>) =
        trace.events.iter().filter(|event| !is_harmless(event, trace)).partition(|event| event.is_ours);
    let events = ours.into_iter().chain(others).take(EVENTS);
    lines.extend(events.map(|event| event_text(event, trace.is_bound(), now)));
    lines.extend(trace.unseen.iter().map(|what| format!("Not seen: {}", told(what))));
    lines.join("\n") + "\n"
}

fn headline(trace: &Trace, now: i64) -> String {
    let claim = &trace.claim;
    let class = claim.class.as_deref().map_or(String::new(), |class| format!(" of class {}", told(class)));
    let created = age(now - claim.created);
    let state = match (&claim.volume_name, trace.is_bound(), claim.terminating) {
        (_, _, true) => "is being deleted".to_owned(),
        (Some(volume), true, _) => format!("is bound to volume {}", told(volume)),
        // A user may have named any volume.
        (Some(volume), false, _) => format!("waits for volume {}", told(volume)),
        (None, ..) => match (trace.refused(), trace.warning(), &trace.obstacle) {
            (Some(why), ..) => format!("is refused: {}", told(why)),
            (None, Some(ClaimEvent { message: why, .. }), _) | (None, None, Some(Obstacle { why, .. })) => {
                format!("has no volume yet: {}", told(why))
            }
            (None, None, None) => "has no volume yet".to_owned(),
        },
    };
    let failed = failure(trace).map(|failure| {
        let ago = age(now - failure.at);
        match failure.operation {
            Operation::Provision => format!("; attempt {} failed {ago} ago", failure.attempt),
            operation => format!("; {operation} run {} failed {ago} ago", failure.attempt),
        }
    });
    format!("Claim {}{class}, created {created} ago, {state}{}.", claim.name, failed.unwrap_or_default())
}

/// Returns the last failure of a claim, unless the next attempt has begun.
fn failure(trace: &Trace) -> Option<&LastFailure> {
    let is_over = !trace.claim.is_bound() && progress(&trace.claim) != Progress::Running;
    trace.claim.last_failure.as_ref().filter(|_| is_over)
}

/// Returns the cause of the last failure, and the time of the next try.
fn cause(trace: &Trace, now: i64) -> Vec<String> {
    let Some(failure) = failure(trace) else { return Vec::new() };
    let (reason, message) = (told(&failure.reason), told(&failure.message));
    let mut lines = vec![format!("Cause: {reason}: {message}")];
    let is_repeated = matches!(progress(&trace.claim), Progress::Failed | Progress::Deleting);
    if is_repeated && trace.refused().is_none() {
        let now_by = format!("to try again now: {} retry {}", name(), trace.claim.name);
        lines.push(match trace.next_try {
            Some(due) if due > now => format!("Next try: in {}; {now_by}", age(due - now)),
            Some(_) => "Next try: now".to_owned(),
            None => format!("Next try: not known; {now_by}"),
        });
    }
    lines
}

/// Returns a line for each failed attempt before the last attempt, with its cause.
fn earlier(trace: &Trace) -> Vec<String> {
    let (first, last) = trace.earlier();
    let mut lines: Vec<_> = first.iter().map(attempt).collect();
    match trace.failed.left_out() {
        0 => {}
        1 => lines.push("One more failed attempt is left out.".to_owned()),
        number => lines.push(format!("{number} more failed attempts are left out.")),
    }
    lines.extend(last.iter().map(attempt));
    lines
}

/// Returns the line of a failed attempt: how long after the creation of the claim it failed, and why.
fn attempt(attempt: &FailedAttempt) -> String {
    let FailedAttempt { timeline, reason, message } = attempt;
    let after = timeline.stages().last().map_or(0, |last| last.after);
    let (reason, message) = (told(reason), told(message));
    format!("Attempt {} failed after {}: {reason}: {message}", attempt.number(), seconds(after))
}

/// Returns a line for each stage: when it was reached, how long it took, and a bar. The first stage took the time since
/// `begin`, in milliseconds since 1970. The bars begin there.
fn stages(timeline: &Timeline, begin: i64) -> Vec<String> {
    let stages = timeline.stages_since(begin);
    let (Some(first), Some(last)) = (stages.first(), stages.last()) else { return Vec::new() };
    let begin = first.after - first.took;
    let total = (last.after - begin).max(1);
    let attempt = match timeline.attempt {
        0 => "POOLED VOLUME".to_owned(),
        number => format!("ATTEMPT {number}"),
    };
    let mut lines = vec![format!("{attempt:<16}{:>10}{:>10}", "AFTER", "TOOK")];
    lines.extend(stages.iter().map(|reached| {
        let Reached { stage, after, took } = *reached;
        let text = format!(
            "{:<16}{:>10}{:>10}  {}",
            stage.words(),
            seconds(after),
            seconds(took),
            bar(after - begin, took, total)
        );
        text.trim_end().to_owned()
    }));
    lines
}

/// Draws the time from `after - took` to `after` on a line of `total`.
fn bar(after: i64, took: i64, total: i64) -> String {
    let column = |at: i64| usize::try_from((at.saturating_mul(BAR) + total / 2) / total).unwrap_or_default();
    let (from, to) = (column(after - took), column(after));
    let width = if took > 0 { (to - from).max(1) } else { 0 };
    format!("{}{}", " ".repeat(from), "█".repeat(width))
}

fn seconds(milliseconds: i64) -> String {
    match milliseconds {
        ..60_000 => format!("{}.{:02} s", milliseconds / 1000, milliseconds % 1000 / 10),
        _ => age(milliseconds / 1000),
    }
}

/// Says for whom the claim waits, and since when, unless the headline says it.
fn waiting(trace: &Trace, now: i64) -> Option<String> {
    let is_told = trace.idle.is_some() || trace.obstacle.is_some() || trace.warning().is_some();
    let waits = !trace.is_bound() && !trace.claim.terminating && !is_told;
    let next = trace.timeline.next().filter(|_| waits)?;
    let since = trace.timeline.stages().last().map_or(0, |last| last.after / 1000) + trace.timeline.created / 1000;
    Some(format!(
        "Waits for {} since {}, the work of {}.",
        next.awaited(),
        age(now - since),
        trace.timeline.next_worker()
    ))
}

/// Checks whether an event is the warning of the PV controller on claims of a class without a StorageClass object.
fn is_harmless(event: &ClaimEvent, trace: &Trace) -> bool {
    let class = trace.claim.class.as_deref().unwrap_or_default();
    let is_served = trace.idle.is_none() && trace.unseen.is_empty();
    is_served && !event.is_ours && event.message == format!("storageclass.storage.k8s.io \"{class}\" not found")
}

/// Returns an event with what its reader can do, unless the claim is bound already.
fn event_text(event: &ClaimEvent, is_bound: bool, now: i64) -> String {
    let ClaimEvent { reason, message, warning, is_ours, count, at } = event;
    let kind = if *warning { "Warning" } else { "Event" };
    let times = if *count > 1 { format!(", {count} times") } else { String::new() };
    let (name, message) = (told(reason), told(message));
    let text = format!("{kind} {name}, {} ago{times}: {message}", age(now - at));
    match remedy(reason, *is_ours).filter(|_| !is_bound) {
        Some(remedy) => format!("{text}\n  To do: {}", told(&remedy)),
        None => text,
    }
}

/// Returns what the reader of an event can do; `None` if nothing is to be done, or nobody knows.
fn remedy(name: &str, is_ours: bool) -> Option<String> {
    let of_kubernetes = match name {
        "WaitForFirstConsumer" => Some("Create a pod that uses the claim."),
        "WaitForPodScheduled" => Some("See why the claim's pod is not scheduled: kubectl describe pod."),
        _ => None,
    };
    let ours = || reason::ALL.iter().find(|reason| reason.name == name).map(|reason| reason.remedy);
    let remedy = if is_ours { ours() } else { of_kubernetes }?;
    (!remedy.to_lowercase().starts_with("nothing")).then(|| unlinked(remedy))
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;

//! The opening of pods: a pod starts only by the word of the process that has created its Job.

use std::collections::BTreeSet;

use super::{Guarantee, Violation};
use crate::store::{Kind, Store, text, uid};
use crate::wire::{Request, Verb};
use crate::world::{has_start_gate, owner_uid};

/// The Jobs whose creation was answered to a process: the number of the process, and the UID of the Job.
pub type Answered = BTreeSet<(usize, String)>;

/// Checks a request before it is carried out. A process opens only pods of Jobs whose creation was answered to it, and
/// no second pod of a Job unless the first has ended.
pub fn request(store: &Store, answered: &Answered, from: usize, request: &Request) -> Option<Violation> {
    let Request { verb: Verb::Patch, kind: Kind::Pod, name, body, .. } = request else { return None };
    let pod = store.get(Kind::Pod, name).filter(|pod| body.is_array() && has_start_gate(&pod["spec"]))?;
    let (id, job) = (uid(pod), owner_uid(pod));
    let wrong = |what: String| Some(Violation { guarantee: Guarantee::Duplicate, what });
    if !answered.contains(&(from, job.to_owned())) {
        return wrong(format!("{from} opens pod {name}, and has no answer to the creation of Job {job}"));
    }
    let mut others = store.opened.iter().filter(|(other, of)| of.as_str() == job && other.as_str() != id);
    let (other, _) = others.find(|(other, _)| !has_ended(store, other))?;
    wrong(format!("pod {name} is opened, and pod {other} of its Job was opened and has not ended"))
}

/// Returns whether a pod had ended when it was last seen.
fn has_ended(store: &Store, pod: &str) -> bool {
    let last = store.log(Kind::Pod).iter().rev().find(|change| uid(&change.object) == pod);
    last.is_some_and(|change| matches!(text(&change.object, "/status/phase"), "Succeeded" | "Failed"))
}

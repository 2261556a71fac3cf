//! The life of a volume behind the front: all operations of the config, each with a fault at one of its requests.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use flex_contract::exit::{Reaction, reaction};
use flex_contract::listing::{self, Entry, State};
use flex_contract::volume::volume_source;
use flex_core::config::capability;
use flex_core::model::claim::Claim;

use super::bench::{Bench, Halt, Step, check, shown};
use super::fronted::Act;
use super::listed::list;
use super::sample::{Sample, fill_if_seen};
use super::told::at_least;
use crate::desk::{Ended, Stop};
use crate::front::{Armed, Fault, Front, Plan};
use crate::order::{Content, Made, Order};

/// The largest number of faults that a message names.
const NAMED: usize = 3;
/// The number of ids that a life may use.
pub(super) const IDS: u32 = 8;

/// A life of a volume.
pub(super) struct Life<'a> {
    /// The bench, whose program speaks to the front.
    pub bench: &'a Bench,
    /// The front.
    pub front: &'a Front,
    /// The fault.
    pub fault: Fault,
    /// The number of the request that the fault meets, by act. Other acts are left out, unless another one needs them.
    pub at: BTreeMap<Act, usize>,
    /// The number of the first id.
    pub first: u32,
    /// The ids that a list run has shown before.
    pub before: &'a BTreeSet<String>,
    /// The collections of the server with the storage.
    pub collections: &'a BTreeSet<String>,
    /// The values that no run may tell, with their names.
    pub secrets: Vec<(String, String)>,
    /// The requests of each act.
    pub counts: RefCell<BTreeMap<Act, usize>>,
    /// The faults so far, in words.
    pub moments: RefCell<Vec<String>>,
}

impl Life<'_> {
    /// Lives the life, and judges what each run leaves.
    pub(super) async fn live(&self) -> Step<()> {
        drop(self.front.take_ledger());
        let claim = self.bench.numbered(self.first);
        let made = self.provisioned(Act::Provision, &claim, Content::Empty).await?;
        self.has(&[&claim]).await?;
        let sample = self.after(fill_if_seen(self.bench, &made).await)?;
        self.again(&made, sample.as_ref()).await?;
        self.copied(&made, sample.as_ref()).await?;
        self.changed(&made, sample.as_ref()).await?;
        self.disturbed(Act::Delete, &Order::Delete(made)).await?;
        self.has(&[]).await?;
        self.bench.forget(&claim).await?;
        self.nothing_left()
    }

    fn is_clean(&self) -> bool {
        self.fault == Fault::None
    }

    fn leaves_out(&self, act: Act) -> bool {
        !self.is_clean() && !self.at.contains_key(&act)
    }

    fn can(&self, capability: &str) -> bool {
        self.bench.setting.recipe.can(capability)
    }

    /// Says what has happened to a request.
    fn moment(&self, act: Act, at: usize, what: &str) -> String {
        let what = if what.is_empty() { String::new() } else { format!(" ({what})") };
        let request = format!("request {at} of the {}{what}", act.words());
        match &self.fault {
            Fault::None => request,
            Fault::AnswerLost => format!("the server acted on {request}, and its answer was lost"),
            Fault::Status(_) if what.is_empty() => format!("the line was closed before {request} reached the server"),
            Fault::Status(status) => format!("the server answered {status} to {request}, and did nothing"),
            Fault::Outage(_) => format!("the server failed at {request}, and at all that followed for a while"),
            Fault::Cut => format!("the line was cut in the middle of the answer to {request}"),
            Fault::Held => format!("the run was killed when the server had acted on {request}"),
            Fault::Late(time) => format!("the server answered {} s late, from {request} on", time.as_secs()),
        }
    }

    /// Says in the reason of a failure which faults were before it.
    fn after<T>(&self, step: Step<T>) -> Step<T> {
        step.map_err(|halt| {
            let moments = self.moments.borrow();
            let last = &moments[moments.len().saturating_sub(NAMED)..];
            if last.is_empty() { halt } else { halt.during(&last.join("; ")) }
        })
    }

    /// Makes the first attempt of an order, with the fault of the act. The plan of the front ends with the second value.
    async fn first(&self, act: Act, order: &Order) -> Step<(Ended, Armed<'_>)> {
        let at = self.at.get(&act).copied();
        let fault = if at.is_some() { self.fault.clone() } else { Fault::None };
        let stop = if fault == Fault::Held { Stop::kill(self.front.held()) } else { Stop::Never };
        let armed = self.front.arm(Plan { fault, at: at.unwrap_or_default() });
        let ended = self.bench.attempt(order, 1, stop).await?;
        let struck = armed.struck();
        if let (Some(at), Some(what)) = (at, &struck) {
            self.moments.borrow_mut().push(self.moment(act, at, what));
        }
        self.after(self.judged(act, &ended, struck.is_some()))?;
        Ok((ended, armed))
    }

    /// Judges the end of a run by itself.
    fn judged(&self, act: Act, ended: &Ended, is_struck: bool) -> Step<()> {
        check(!ended.timed_out, || format!("the {} took too long", act.words()))?;
        for (text, place) in [(ended.last_words(), "last words"), (ended.log.clone(), "log")] {
            let found = self.secrets.iter().find(|(_, value)| text.contains(value.as_str()));
            check(found.is_none(), || {
                let name = found.map_or("", |(name, _)| name.as_str());
                format!("the {place} of the {} have the value of {name}, which is a Secret of the config", act.words())
            })?;
        }
        let is_never = is_struck && act.can_be_given_up() && reaction(ended.code) == Reaction::Never;
        check(!is_never, || {
            format!("the {} {}: that is for requests that can never succeed", act.words(), shown(ended))
        })
    }

    /// Checks whether the orchestrator repeats no more run of an order.
    async fn is_over(&self, order: &Order, ended: &Ended) -> Step<bool> {
        match order {
            _ if ended.is_success() => Ok(true),
            // The claim is bound as soon as the volume exists.
            Order::Provision { claim, .. } => Ok(self.bench.volume(claim).await?.is_some()),
            _ => Ok(false),
        }
    }

    /// Runs an order with the fault of the act, and repeats the run as the orchestrator does.
    async fn disturbed(&self, act: Act, order: &Order) -> Step<Ended> {
        let (mut first, armed) = self.first(act, order).await?;
        // A server that is away for a while may still be away for the next attempt.
        if matches!(self.fault, Fault::Outage(_)) && armed.struck().is_some() && !self.is_over(order, &first).await? {
            first = self.bench.attempt(order, 1, Stop::Never).await?;
            self.after(self.judged(act, &first, true))?;
        }
        // Other faults are for one attempt. Without a fault, the requests of all attempts count.
        let armed = Some(armed).filter(|_| self.is_clean());
        let ended = match self.is_over(order, &first).await? {
            true => first,
            false => {
                let repeated = self.bench.succeed(order).await;
                self.after(repeated.map_err(|halt| halt.during("the repeated run")))?
            }
        };
        if let Some(armed) = armed {
            self.counts.borrow_mut().insert(act, armed.requests());
        }
        Ok(ended)
    }

    /// Makes a volume.
    async fn provisioned(&self, act: Act, claim: &Claim, content: Content) -> Step<Made> {
        let order = Order::Provision { claim: claim.clone(), content };
        let ended = self.disturbed(act, &order).await?;
        if ended.is_success() {
            return self.after(self.bench.fitting(claim, &ended).await);
        }
        let volume = self.bench.volume(claim).await?;
        let volume = volume.ok_or_else(|| Halt::Failed("there is no volume".into()))?;
        Ok(self.bench.setting.adopted(claim, volume))
    }

    /// Checks that a volume has its content, where that can be seen.
    async fn same(&self, made: &Made, sample: Option<&Sample>) -> Step<()> {
        let Some(sample) = sample else { return Ok(()) };
        self.after(sample.check_made(self.bench, made).await)
    }

    /// Checks that a list run prints the volumes of these claims, and nothing else of the case.
    async fn has(&self, claims: &[&Claim]) -> Step<()> {
        let Some(entries) = self.after(list(self.bench).await)? else { return Ok(()) };
        let wanted: Vec<String> = claims.iter().map(|claim| claim.volume_id()).collect();
        let wrong = unexpected(&entries, &wanted, self.bench.ids.prefix(), self.before);
        self.after(check(wrong.is_none(), || wrong.unwrap_or_default()))
    }

    /// Repeats the run that has made a volume, as if the orchestrator had not heard of it.
    async fn again(&self, made: &Made, sample: Option<&Sample>) -> Step<()> {
        if self.leaves_out(Act::Again) {
            return Ok(());
        }
        self.bench.forget(&made.claim).await?;
        let again = self.provisioned(Act::Again, &made.claim, Content::Empty).await?;
        let is_same = volume_source(&again.volume) == volume_source(&made.volume);
        self.after(check(is_same, || "the repeated run has made another volume".into()))?;
        self.has(&[&made.claim]).await?;
        self.same(made, sample).await
    }

    /// Makes a volume with the content of another one.
    async fn copy(&self, act: Act, n: u32, content: Content, sample: Option<&Sample>) -> Step<Made> {
        let made = self.provisioned(act, &self.bench.numbered(self.first + n), content).await?;
        self.same(&made, sample).await?;
        Ok(made)
    }

    /// Makes and removes copies of a volume. A list run is disturbed while they are there.
    async fn copied(&self, made: &Made, sample: Option<&Sample>) -> Step<()> {
        let (mut copies, mut snapshot) = (Vec::new(), None);
        let of_snapshots = [Act::Snapshot, Act::Restore, Act::DeleteSnapshot];
        if self.can(capability::SNAPSHOT) && !of_snapshots.into_iter().all(|act| self.leaves_out(act)) {
            let id = self.bench.ids.numbered(self.first + 3);
            self.disturbed(Act::Snapshot, &Order::Snapshot(made.clone(), id.clone())).await?;
            let content = Content::Snapshot(Box::new(made.clone()), id.clone());
            copies.push(self.copy(Act::Restore, 1, content, sample).await?);
            snapshot = Some(id);
        }
        if self.can(capability::CLONE) && !self.leaves_out(Act::Clone) {
            let content = Content::CloneOf(Box::new(made.clone()));
            copies.push(self.copy(Act::Clone, 2, content, sample).await?);
        }
        let claims: Vec<&Claim> = std::iter::once(made).chain(&copies).map(|made| &made.claim).collect();
        if !copies.is_empty() {
            self.has(&claims).await?;
        }
        self.listed(&claims).await?;
        for copy in &copies {
            self.after(self.bench.remove(&copy.claim).await)?;
        }
        if let Some(id) = snapshot {
            self.disturbed(Act::DeleteSnapshot, &Order::DeleteSnapshot(made.clone(), id)).await?;
        }
        Ok(())
    }

    /// Disturbs a list run. Its list has all volumes, or is none.
    async fn listed(&self, claims: &[&Claim]) -> Step<()> {
        if !self.can(capability::LIST) || self.leaves_out(Act::List) {
            return Ok(());
        }
        let (ended, armed) = self.first(Act::List, &Order::List).await?;
        if self.is_clean() {
            self.counts.borrow_mut().insert(Act::List, armed.requests());
        }
        drop(armed);
        let read = listing::read(&ended.log).ok().filter(|_| ended.is_success());
        let Some(entries) = read else { return Ok(()) };
        let is_there = |id: &String| entries.iter().any(|entry| entry.state == State::Volume && entry.id == *id);
        let missing = claims.iter().map(|claim| claim.volume_id()).find(|id| !is_there(id));
        self.after(check(missing.is_none(), || {
            let id = missing.unwrap_or_default();
            format!("the list run exits 0, and its list lacks {id}: the orchestrator reports such a volume as lost")
        }))
    }

    /// Makes a volume larger, and gives it a class.
    async fn changed(&self, made: &Made, sample: Option<&Sample>) -> Step<()> {
        if self.can(capability::EXPAND) && !self.leaves_out(Act::Expand) {
            let double = made.claim.size.clone().unwrap_or_default().saturating_mul(2);
            self.disturbed(Act::Expand, &Order::Expand(made.clone(), double)).await?;
            self.after(at_least(self.bench, made, double).await)?;
            self.same(made, sample).await?;
        }
        let classes = self.bench.setting.attribute_classes();
        if let (true, Some(class)) = (self.can(capability::MODIFY) && !self.leaves_out(Act::Modify), classes.first()) {
            self.disturbed(Act::Modify, &Order::Modify(made.clone(), class.clone())).await?;
            self.same(made, sample).await?;
        }
        Ok(())
    }

    /// Checks that the server has deleted all that it has made for the storage, also what the program never heard of.
    fn nothing_left(&self) -> Step<()> {
        if self.is_clean() {
            return Ok(());
        }
        let left = self.front.take_ledger().left(self.collections);
        check(left.is_empty(), || {
            let left = left.join(", ");
            format!(
                "{}: everything is deleted, and the server still has {left}, which it made for these runs",
                self.moments.borrow().join("; ")
            )
        })
    }
}

/// Checks whether a text is a UUID, as the ids of volumes are.
fn is_uuid(text: &str) -> bool {
    let is_digit = |(n, byte): (usize, u8)| match n {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(is_digit)
}

/// Says what a list has that it must not have, or lacks. `wanted` are all volumes of the case, whose ids have a prefix;
/// `before` are the ids before the case. A new UUID may be the volume of somebody else.
fn unexpected(entries: &[Entry], wanted: &[String], prefix: &str, before: &BTreeSet<String>) -> Option<String> {
    for id in wanted {
        let is_volume = |entry: &&Entry| entry.state == State::Volume && entry.id == *id;
        match entries.iter().filter(is_volume).count() {
            0 => return Some(format!("a list run does not print the volume {id}")),
            1 => {}
            count => return Some(format!("a list run prints the volume {id} {count} times: there are several")),
        }
    }
    let more = entries.iter().find(|entry| match entry.id.starts_with(prefix) {
        true => !wanted.contains(&entry.id),
        false => !before.contains(&entry.id) && !is_uuid(&entry.id),
    });
    more.map(|entry| {
        let at = if entry.place.is_empty() { String::new() } else { format!(" ({})", entry.place) };
        match entry.id.starts_with(prefix) {
            true => format!("a list run still prints {}{at}, which was deleted", entry.id),
            false => format!("a list run prints {}{at}, which was not there before, and is no volume", entry.id),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_each_volume_once_and_nothing_that_was_deleted() {
        let id = |n: u32| format!("12345678-0001-4000-8000-{n:012}");
        let entry = |id: &str| Entry { state: State::Volume, id: id.into(), bytes: None, place: "/p".into() };
        let before: BTreeSet<String> = ["old-name".to_owned()].into();
        let of_others = "0badcafe-0000-4000-8000-000000000001";
        for (ids, wanted, expected) in [
            (vec![id(1)], vec![id(1)], None),
            (vec![], vec![], None),
            (vec![id(1), "old-name".into(), of_others.into()], vec![id(1)], None),
            (vec![], vec![id(1)], Some("does not print the volume")),
            (vec![id(1), id(1)], vec![id(1)], Some("2 times")),
            (vec![id(1), id(2)], vec![id(1)], Some("(/p), which was deleted")),
            (vec![id(1), "tmp-7".into()], vec![id(1)], Some("prints tmp-7 (/p), which was not there before")),
        ] {
            let entries: Vec<Entry> = ids.iter().map(|id| entry(id)).collect();
            let wrong = unexpected(&entries, &wanted, "12345678-0001", &before);
            match expected {
                None => assert_eq!(wrong, None, "{ids:?}"),
                Some(words) => assert!(wrong.as_ref().is_some_and(|wrong| wrong.contains(words)), "{ids:?}: {wrong:?}"),
            }
        }
    }

    #[test]
    fn only_whole_uuids_are_ids_of_others() {
        assert!(is_uuid("0badcafe-0000-4000-8000-000000000001"));
        for text in
            ["", "tmp-0badcafe", "0badcafe-0000-4000-8000-00000000000x", "0badcafe000000-4000-8000-000000000001"]
        {
            assert!(!is_uuid(text), "{text}");
        }
    }
}

//! Faults of the orchestrator's processes: they die, restart, take over, and pause; and clocks are set.

use super::{History, StepResult};
use crate::actors::snapshot_classes;
use crate::replica::Replica;
use crate::store::{KINDS, Kind};
use crate::trace::{count, line};

/// A paused watch, or a paused process.
#[derive(Debug)]
pub(super) struct Stall {
    /// The number of the replica.
    of: usize,
    /// The kind of the paused watch, or `None` for the whole process.
    kind: Option<Kind>,
    /// The step at which it continues.
    until: usize,
}

impl History {
    /// Starts a process.
    pub(super) fn start(&mut self) {
        self.created += 1;
        line(|| format!("orchestrator {} starts", self.created));
        let clock = self.time.clock();
        let mut replica = Replica::new(
            self.created,
            &self.wire,
            &self.identity,
            clock,
            self.profile.binding,
            self.metrics.clone(),
            &snapshot_classes(&self.profile),
        );
        self.profile.left.into_iter().for_each(|most| replica.set_most_left(most));
        crate::check::records::note_missed(&self.store, &mut self.world, 0);
        replica.list_all(&self.store);
        self.replicas.push(replica);
    }

    /// Makes one replica lead, by the Lease; if the history has that fault, the others do not know it.
    pub(super) fn elect(&mut self) -> StepResult {
        if self.replicas.is_empty() {
            return Ok(());
        }
        let leader = self.rng.below(self.replicas.len());
        self.hand_over(self.replicas[leader].number)?;
        for (at, replica) in self.replicas.iter_mut().enumerate() {
            replica.lead(at == leader || self.profile.old_leader_continues);
        }
        line(|| format!("orchestrator {} leads", self.replicas[leader].number));
        Ok(())
    }

    /// Ends pauses whose time is over.
    pub(super) fn wake(&mut self) {
        self.steps += 1;
        self.stalls.retain(|stall| stall.until > self.steps);
    }

    /// Returns whether a process is paused, or its watch of a kind.
    pub(super) fn is_stalled(&self, replica: usize, kind: Option<Kind>) -> bool {
        self.stalls.iter().any(|stall| stall.of == replica && (stall.kind.is_none() || stall.kind == kind))
    }

    /// Returns whether a watch of a replica has a change to show, and is not paused.
    pub(super) fn shows(&self, replica: &Replica, kind: Kind) -> bool {
        replica.is_behind(&self.store, kind) && !self.is_stalled(replica.number, Some(kind))
    }

    /// Lists the replicas that can begin a reconciliation.
    pub(super) fn ready(&mut self) -> Vec<usize> {
        let awake: Vec<bool> = self.replicas.iter().map(|replica| !self.is_stalled(replica.number, None)).collect();
        (0..self.replicas.len()).filter(|at| awake[*at] && self.replicas[*at].is_ready()).collect()
    }

    pub(super) fn fault(&mut self) -> StepResult {
        let profile = &mut self.profile;
        let weights = [
            if self.replicas.is_empty() { 0 } else { profile.crashes as u32 },
            if self.replicas.len() < profile.replicas { 5 } else { 0 },
            profile.handovers as u32,
            profile.jumps as u32,
            if self.replicas.is_empty() { 0 } else { profile.stalls as u32 },
        ];
        match self.rng.weighted(&weights) {
            Some(0) => {
                profile.crashes -= 1;
                count("crashes");
                let at = self.rng.below(self.replicas.len());
                let replica = self.replicas.remove(at);
                line(|| format!("orchestrator {} dies", replica.number));
                let led = replica.leads;
                let dead = replica.number;
                replica.kill();
                // Requests that it had sent may arrive, or not.
                let mut waiting = self.wire.waiting();
                let sent: Vec<u64> =
                    waiting.requests.iter().filter(|(_, p)| p.from == dead).map(|(number, _)| *number).collect();
                for number in sent {
                    if let Some(pending) = waiting.requests.remove(&number)
                        && pending.answer.is_none()
                        && self.rng.permille(300)
                    {
                        self.late_requests.push((&pending).into());
                    }
                }
                drop(waiting);
                if led {
                    self.elect()?;
                }
            }
            Some(1) => {
                self.start();
                if !self.replicas.iter().any(|replica| replica.leads) || self.profile.old_leader_continues {
                    self.elect()?;
                }
            }
            Some(2) => {
                profile.handovers -= 1;
                count("handovers");
                self.elect()?;
            }
            Some(3) => {
                profile.jumps -= 1;
                let by = *self.rng.pick(&[-1800, -30, 30, 1800]);
                line(|| format!("the clock is set by {by} s"));
                count("clock jumps");
                self.time.jump(by);
            }
            Some(4) => {
                profile.stalls -= 1;
                let of = self.rng.pick(&self.replicas).number;
                let watched: Vec<Kind> = match self.profile.snapshots {
                    true => KINDS.into_iter().filter(|kind| *kind != Kind::Event).collect(),
                    false => KINDS[..Kind::Event as usize].to_vec(),
                };
                let kind = (!self.rng.permille(300)).then(|| *self.rng.pick(&watched));
                let steps = *self.rng.pick(&[30, 100, 300]);
                line(|| format!("orchestrator {of} is paused for {steps} steps: {kind:?}"));
                count("pauses of a watch or a process");
                self.stalls.push(Stall { of, kind, until: self.steps + steps });
            }
            _ => {}
        }
        Ok(())
    }
}

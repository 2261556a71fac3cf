//! Processes of the orchestrator that die, come back and take over; clocks that are set.

use super::{Going, History};
use crate::replica::Replica;
use crate::trace::{count, line};

impl History {
    /// A process begins.
    pub(super) fn start(&mut self) {
        self.born += 1;
        line(|| format!("orchestrator {} starts", self.born));
        let clock = self.time.clock();
        let mut replica =
            Replica::new(self.born, &self.wire, &self.identity, clock, self.profile.binding, self.metrics.clone());
        replica.list_all(&self.store);
        self.replicas.push(replica);
    }

    /// One leads, by the Lease; where that is the history's fault, the others do not know it.
    pub(super) fn elect(&mut self) -> Going {
        if self.replicas.is_empty() {
            return Ok(());
        }
        let leader = self.rng.below(self.replicas.len());
        self.hand_over(self.replicas[leader].number)?;
        for (at, replica) in self.replicas.iter_mut().enumerate() {
            replica.lead(at == leader || self.profile.unaware);
        }
        line(|| format!("orchestrator {} leads", self.replicas[leader].number));
        Ok(())
    }

    pub(super) fn fault(&mut self) -> Going {
        let profile = &mut self.profile;
        let weights = [
            if self.replicas.is_empty() { 0 } else { profile.crashes as u32 },
            if self.replicas.len() < profile.replicas { 5 } else { 0 },
            profile.handovers as u32,
            profile.jumps as u32,
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
                // What it had sent may arrive, or not.
                let mut waiting = self.wire.waiting();
                let sent: Vec<u64> =
                    waiting.requests.iter().filter(|(_, p)| p.from == dead).map(|(number, _)| *number).collect();
                for number in sent {
                    if let Some(pending) = waiting.requests.remove(&number)
                        && pending.answer.is_none()
                        && self.rng.permille(300)
                    {
                        self.late.push((&pending).into());
                    }
                }
                drop(waiting);
                if led {
                    self.elect()?;
                }
            }
            Some(1) => {
                self.start();
                if !self.replicas.iter().any(|replica| replica.leads) || self.profile.unaware {
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
            _ => {}
        }
        Ok(())
    }
}

//! The profile of a history: how fast its parts are, and how often each fault occurs. Each history is extreme in some
//! ways and tame in others, which finds more than a mixture of everything.

use flex_provisioner::api::writes::Binding;

use crate::rng::Rng;
use crate::store::KINDS;

/// The kinds of things that can happen next.
pub const ACTIONS: usize = 9;

/// What kind of history it is.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The faults are over: everything that is tried works.
    pub is_calm: bool,
    /// How many orchestrators run.
    pub replicas: usize,
    /// Who does not lead any more does not know it, as paused processes do not: it goes on, behind its fence.
    pub old_leader_continues: bool,
    /// How bindings are made.
    pub binding: Binding,
    /// How fast each part is, by [`crate::history::Action`].
    pub speed: [u32; ACTIONS],
    /// How fast each watch is, by kind.
    pub watches: [u32; KINDS.len()],
    /// A process is killed, at each of its steps.
    pub kill: u32,
    /// A process ends whose pod is deleted, at each of its steps.
    pub dying: u32,
    /// A run goes wrong.
    pub bad_image: u32,
    /// A request gets an error, and is not carried out.
    pub refused: u32,
    /// A request is carried out, and its answer is lost.
    pub lost_answer: u32,
    /// A request is given up, and carried out later.
    pub late: u32,
    /// A watch is interrupted and lists anew.
    pub relist: u32,
    /// A watch says something twice.
    pub twice: u32,
    /// Processes of the orchestrator that die.
    pub crashes: usize,
    /// Leaders that change.
    pub handovers: usize,
    /// Times that the clock is set.
    pub jumps: usize,
    /// Things that users and admins do.
    pub actor_actions: usize,
    /// Claims that are created at the most.
    pub claims: usize,
    /// Persons remove Jobs and pods by hand.
    pub manual_removals: bool,
    /// Persons delete volumes and change their policy.
    pub volumes: bool,
    /// Admins edit, break and delete configs.
    pub configs: bool,
    /// Users ask for more.
    pub growth: bool,
    /// Nodes go and come back.
    pub nodes: bool,
    /// The admission policies are installed: a volume is reserved at its birth.
    pub policies: bool,
    /// Runs of a class at one time.
    pub most: usize,
    /// Of them for one namespace, and on one node; none for no limits of their own.
    pub each: Option<usize>,
    /// Volumes of a class at one time; none for no limit.
    pub share: Option<usize>,
    /// The classes; none knows more than the others.
    pub classes: Vec<&'static str>,
    /// Times that a watch, or a whole process, stands still for a while.
    pub stalls: usize,
    /// Nodes do not come back.
    pub lost_nodes: bool,
    /// What configs say about nodes that are gone.
    pub node_gone: &'static str,
    /// Classes are replaced by others of their name.
    pub swaps: bool,
    /// Configs stand in a namespace that an admin deletes.
    pub vendor: bool,
    /// Other controllers put finalizers of their own on claims and volumes.
    pub others: bool,
    /// Users make snapshots.
    pub snapshots: bool,
    /// The snapshot-controller runs too.
    pub snapshot_controller: bool,
    /// Claims that one run may be for; none for runs of their own.
    pub batch: Option<usize>,
    /// Volumes that each class keeps ready; none for no pools.
    pub pool: Option<usize>,
    /// Configs name images that are not there.
    pub typos: bool,
    /// Claims with their volumes are lost and restored from backups.
    pub restores: bool,
}

/// The classes that there are.
const CLASSES: &[&str] = &["shared", "local", "kept", "pure", "script"];

impl Profile {
    /// One by chance.
    pub fn new(rng: &mut Rng) -> Self {
        let mut often = |levels: &[u32]| *rng.pick(levels);
        let kill = often(&[0, 0, 0, 30, 120]);
        let bad_image = often(&[0, 0, 200, 500]);
        let refused = often(&[0, 0, 0, 20, 100]);
        let lost_answer = often(&[0, 0, 20, 100]);
        let late = often(&[0, 0, 0, 20]);
        let relist = often(&[0, 0, 10, 100]);
        let twice = often(&[0, 0, 50]);
        let mut speed = [0; ACTIONS];
        speed.iter_mut().for_each(|speed| *speed = *rng.pick(&[3, 10, 10, 30]));
        let mut watches = [10; KINDS.len()];
        watches.iter_mut().take(9).for_each(|speed| *speed = *rng.pick(&[1, 5, 10, 10]));
        Profile {
            is_calm: false,
            replicas: *rng.pick(&[1, 1, 1, 2]),
            old_leader_continues: rng.permille(300),
            binding: *rng.pick(&[Binding::Direct, Binding::Direct, Binding::Controller]),
            speed,
            watches,
            kill,
            dying: 500,
            bad_image,
            refused,
            lost_answer,
            late,
            relist,
            twice,
            crashes: *rng.pick(&[0, 0, 1, 3]),
            handovers: rng.below(3),
            jumps: *rng.pick(&[0, 0, 0, 2]),
            actor_actions: *rng.pick(&[2, 4, 6, 10]),
            claims: *rng.pick(&[1, 1, 2, 3]),
            manual_removals: rng.permille(150),
            volumes: rng.permille(200),
            configs: rng.permille(200),
            growth: rng.permille(250),
            nodes: rng.permille(150),
            policies: rng.permille(500),
            most: *rng.pick(&[1, 2, 100]),
            each: None,
            share: None,
            classes: Vec::new(),
            stalls: 0,
            lost_nodes: false,
            node_gone: "hold",
            swaps: false,
            vendor: false,
            others: false,
            snapshots: false,
            snapshot_controller: false,
            batch: None,
            pool: None,
            restores: false,
            typos: false,
        }
        .with_classes(rng)
    }

    fn with_classes(mut self, rng: &mut Rng) -> Self {
        for _ in 0..1 + rng.below(2) {
            let name = *rng.pick(CLASSES);
            if !self.classes.contains(&name) {
                self.classes.push(name);
            }
        }
        self
    }

    /// What came to the histories later has a chance of its own, so that those without it stay as they were.
    pub fn and_more(mut self, rng: &mut Rng) -> Self {
        self.stalls = *rng.pick(&[0, 0, 0, 1, 4]);
        self.others = rng.permille(200);
        if rng.permille(150) {
            self.classes.push("loose");
        }
        if rng.permille(150) {
            self.lose_nodes(rng);
        }
        self.swaps = rng.permille(150);
        if rng.permille(150) {
            self.vendor = true;
            self.classes.push("vendor");
        }
        if rng.permille(200) {
            self.share = Some(*rng.pick(&[1, 1, 2]));
        }
        if rng.permille(120) {
            self.make_snapshots();
            self.snapshot_controller = rng.permille(300);
            self.watches[9..].iter_mut().for_each(|speed| *speed = *rng.pick(&[1, 5, 10, 10]));
        }
        if rng.permille(250) {
            self.make_batches(*rng.pick(&[2, 3, 100]));
        }
        if rng.permille(200) {
            self.pool = Some(*rng.pick(&[1, 1, 2, 3]));
        }
        if rng.permille(200) {
            self.each = Some(*rng.pick(&[1, 1, 2]));
        }
        let alone = !self.manual_removals
            && !self.others
            && !self.snapshots
            && !self.nodes
            && !self.volumes
            && !self.configs
            && !self.swaps;
        self.restores = rng.permille(200) && self.share.is_none() && self.pool.is_none() && alone;
        if self.restores {
            self.actor_actions += 6;
        }
        if rng.permille(150) && !self.swaps && !self.vendor && self.pool.is_none() {
            (self.typos, self.configs) = (true, true);
            self.actor_actions += 4;
        }
        self
    }

    /// What one process decides, it knows of: nothing is forgotten or seen late by another one. And no claim gets what was
    /// made for another, in whose place one more is made.
    pub fn respects_limits(&self) -> bool {
        self.replicas == 1 && self.crashes == 0 && self.policies
    }

    /// Nodes go for good, and volumes are on them.
    pub fn lose_nodes(&mut self, rng: &mut Rng) {
        (self.nodes, self.lost_nodes) = (true, true);
        self.node_gone = *rng.pick(&["hold", "forget", "run-elsewhere"]);
        if !self.classes.contains(&"local") {
            self.classes.push("local");
        }
    }

    /// Users make snapshots, and have the time for it.
    pub fn make_snapshots(&mut self) {
        self.snapshots = true;
        self.claims = self.claims.max(2);
        self.actor_actions += 6;
    }

    /// Users create claims together, and one run may be for several of them.
    pub fn make_batches(&mut self, size: usize) {
        self.batch = Some(size);
        self.claims = self.claims.max(2);
        if self.most == 1 {
            self.most = 100;
        }
    }

    /// A run is removed only because it is over, or because its claim goes.
    pub fn leaves_runs(&self) -> bool {
        !(self.manual_removals || self.nodes || self.swaps || self.vendor || self.configs || self.volumes)
    }

    /// Requests or their answers are lost.
    pub fn is_lossy(&self) -> bool {
        self.refused + self.lost_answer + self.late > 0
    }

    /// The same after its faults.
    pub fn is_calm(&mut self) {
        self.is_calm = true;
        (self.kill, self.bad_image, self.refused, self.lost_answer, self.late) = (0, 0, 0, 0, 0);
        (self.relist, self.twice, self.crashes, self.handovers, self.jumps, self.actor_actions) = (0, 0, 0, 0, 0, 0);
        self.stalls = 0;
        self.old_leader_continues = false;
    }
}

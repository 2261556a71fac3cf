//! The profile of a history: how fast its parts are, and how often each fault occurs. Each history is extreme in some
//! ways and tame in others, which finds more than a mixture of everything.

use flex_provisioner::api::writes::Binding;

use crate::rng::Rng;
use crate::store::KINDS;

/// The number of kinds of steps.
pub const ACTIONS: usize = 9;

/// The properties of a history.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Whether the faults are over: everything that is tried works.
    pub is_calm: bool,
    /// The number of orchestrators.
    pub replicas: usize,
    /// Whether a former leader does not know that it lost the Lease, as after a pause: it continues, behind its fence.
    pub old_leader_continues: bool,
    /// The way of binding.
    pub binding: Binding,
    /// The weight of each kind of step, by [`crate::history::Action`].
    pub speed: [u32; ACTIONS],
    /// The weight of each watch, by kind.
    pub watches: [u32; KINDS.len()],
    /// How often a process of an image is killed, at each of its steps.
    pub kill: u32,
    /// How often a process ends whose pod is deleted, at each of its steps.
    pub dying: u32,
    /// How often a run fails.
    pub bad_image: u32,
    /// Whether each of these runs says that there is no room for the volume, so that the next attempt may be on another node.
    pub no_room: bool,
    /// Whether runs read their sources for long.
    pub slow_reads: bool,
    /// How often a request gets an error, and is not carried out.
    pub refused: u32,
    /// How often a request is carried out, and its answer is lost.
    pub lost_answer: u32,
    /// How often a request is cancelled, and carried out later.
    pub late: u32,
    /// How often a watch is interrupted and lists again.
    pub relist: u32,
    /// How often a watch shows a change twice.
    pub twice: u32,
    /// How many processes of the orchestrator die.
    pub crashes: usize,
    /// How often the leader changes.
    pub handovers: usize,
    /// How often a clock is set.
    pub jumps: usize,
    /// How many actions users and admins take.
    pub actor_actions: usize,
    /// The most claims that are created.
    pub claims: usize,
    /// Whether people delete Jobs and pods by hand.
    pub manual_removals: bool,
    /// Whether people delete volumes and change their policy.
    pub volumes: bool,
    /// Whether admins edit, break and delete configs.
    pub configs: bool,
    /// Whether users request larger sizes.
    pub in_place: bool,
    /// Whether nodes disappear and come back.
    pub nodes: bool,
    /// Whether the admission policies are installed: a volume is reserved when it is created.
    pub policies: bool,
    /// The most runs of a class at one time.
    pub most: usize,
    /// The most of these runs for one namespace, and on one node; `None` for no such limit.
    pub each: Option<usize>,
    /// The most volumes of a class at one time; `None` for no quota.
    pub share: Option<usize>,
    /// The most claims of one namespace and class that are gone while first attempts begin there; `None` for the limit that
    /// users have.
    pub left: Option<usize>,
    /// The classes of this history.
    pub classes: Vec<&'static str>,
    /// How often a watch, or a whole process, is paused.
    pub stalls: usize,
    /// Whether nodes disappear for good.
    pub lost_nodes: bool,
    /// The configs' setting for deleted nodes.
    pub node_gone: &'static str,
    /// Whether classes are replaced by others of their name.
    pub swaps: bool,
    /// Whether configs are in a namespace that an admin deletes.
    pub vendor: bool,
    /// Whether other controllers add finalizers to claims and volumes.
    pub others: bool,
    /// Whether users make snapshots.
    pub snapshots: bool,
    /// Whether the snapshot-controller runs too.
    pub snapshot_controller: bool,
    /// The most members of a batch; `None` for single runs.
    pub batch: Option<usize>,
    /// The size of each class's pool; `None` for no pools.
    pub pool: Option<usize>,
    /// Whether configs name missing images.
    pub typos: bool,
    /// Whether claims and their volumes are lost and restored from backups.
    pub restores: bool,
    /// Whether people remove pods by force, and the Job controller makes second pods of Jobs.
    pub second_pods: bool,
    /// Whether people copy Jobs.
    pub copies: bool,
    /// Whether backup tools restore the records of runs.
    pub records: bool,
    /// Whether the API server may carry out requests of a former leader in a later term.
    pub late_over_terms: bool,
    /// Whether the backend is down at the beginning.
    pub outages: bool,
}

/// All classes.
const CLASSES: &[&str] = &["shared", "local", "kept", "pure", "script"];

impl Profile {
    /// Draws a profile.
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
            no_room: false,
            slow_reads: false,
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
            in_place: rng.permille(250),
            nodes: rng.permille(150),
            policies: rng.permille(500),
            most: *rng.pick(&[1, 2, 100]),
            each: None,
            share: None,
            left: None,
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
            second_pods: false,
            copies: false,
            records: false,
            late_over_terms: false,
            outages: false,
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

    /// Draws the later additions from a chance of their own, so that histories without them stay the same.
    pub fn with_additions(mut self, rng: &mut Rng) -> Self {
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
        self.second_pods = rng.permille(150) && !self.nodes && !self.restores;
        self.copies = rng.permille(150) && !self.restores;
        if self.second_pods || self.copies {
            self.actor_actions += 4;
        }
        self.late_over_terms = rng.permille(250) && self.handovers + self.crashes > 0;
        if rng.permille(100) && self.share.is_none() && self.pool.is_none() {
            self.begin_with_outage();
        }
        self.records = rng.permille(200);
        if self.records {
            self.actor_actions += 3;
        }
        if rng.permille(150) {
            self.left = Some(*rng.pick(&[1, 1, 2]));
            self.claims = self.claims.max(2);
            self.actor_actions += 2;
        }
        self
    }

    /// Makes users create many claims while the backend is down.
    pub fn begin_with_outage(&mut self) {
        (self.outages, self.jumps, self.most) = (true, 0, 100);
        self.claims = self.claims.max(2);
        self.actor_actions += 4;
    }

    /// Returns whether quotas hold at all times: one process decides all, and no other process forgets or misses its
    /// decisions. No claim gets the volume of another, whose attempts would count beside it.
    pub fn respects_limits(&self) -> bool {
        self.replicas == 1 && self.crashes == 0 && self.policies
    }

    /// Makes nodes with volumes disappear for good.
    pub fn lose_nodes(&mut self, rng: &mut Rng) {
        (self.nodes, self.lost_nodes) = (true, true);
        self.node_gone = *rng.pick(&["hold", "forget", "run-elsewhere"]);
        if !self.classes.contains(&"local") {
            self.classes.push("local");
        }
    }

    /// Makes users create snapshots, and gives them the time for it.
    pub fn make_snapshots(&mut self) {
        self.snapshots = true;
        self.claims = self.claims.max(2);
        self.actor_actions += 6;
    }

    /// Makes users create claims together, and lets one run have several of them.
    pub fn make_batches(&mut self, size: usize) {
        self.batch = Some(size);
        self.claims = self.claims.max(2);
        if self.most == 1 {
            self.most = 100;
        }
    }

    /// Leaves users who create and delete claims: nobody meddles, no run fails, and no request is lost.
    pub fn simplify(&mut self) {
        (self.manual_removals, self.configs, self.in_place, self.nodes) = (false, false, false, false);
        (self.others, self.swaps, self.vendor, self.typos) = (false, false, false, false);
        (self.volumes, self.snapshots, self.restores, self.records) = (false, false, false, false);
        (self.second_pods, self.copies, self.late_over_terms) = (false, false, false);
        (self.share, self.batch, self.each) = (None, None, None);
        (self.kill, self.bad_image, self.refused, self.lost_answer, self.late) = (0, 0, 0, 0, 0);
        (self.relist, self.twice) = (0, 0);
    }

    /// Returns whether a run is removed only when it is over, or when its claim is deleted.
    pub fn leaves_runs(&self) -> bool {
        !(self.manual_removals || self.nodes || self.swaps || self.vendor || self.configs || self.volumes)
    }

    /// Returns whether requests or their answers are lost.
    pub fn is_lossy(&self) -> bool {
        self.refused + self.lost_answer + self.late > 0 || self.late_over_terms
    }

    /// Ends the faults.
    pub fn calm_down(&mut self) {
        self.is_calm = true;
        (self.kill, self.bad_image, self.refused, self.lost_answer, self.late) = (0, 0, 0, 0, 0);
        (self.relist, self.twice, self.crashes, self.handovers, self.jumps, self.actor_actions) = (0, 0, 0, 0, 0, 0);
        self.stalls = 0;
        (self.old_leader_continues, self.second_pods, self.copies, self.records) = (false, false, false, false);
    }
}

//! The worlds of the planted bugs.

use super::Bug;
use crate::history::Action;
use crate::profile::{ACTIONS, Profile};
use crate::store::{KINDS, Kind};

impl Bug {
    /// Changes the profile so that the bug can do its harm: the situation that it needs is frequent, and no other fault
    /// hides it.
    pub fn prepare(self, profile: &mut Profile) {
        let Profile { classes, claims, actor_actions, pool, outages, .. } = profile;
        (*claims, *actor_actions, *pool, *outages) = (3, 12, None, false);
        profile.left = None;
        match self {
            Bug::UnguardedWrites => {
                *classes = vec!["script", "shared"];
                (profile.others, profile.policies) = (true, false);
            }
            Bug::StaleReads | Bug::EmptyLists => {
                *classes = vec!["shared"];
                (profile.replicas, profile.stalls, profile.handovers) = (2, 6, 3);
                (profile.bad_image, profile.kill) = (500, 0);
            }
            // Pods outlive their Jobs, and their end is reported late.
            Bug::BackgroundDeletion => {
                *classes = vec!["shared"];
                (profile.replicas, profile.bad_image, profile.kill, profile.dying) = (1, 500, 0, 10);
                profile.watches = [10; KINDS.len()];
                profile.watches[Kind::Pod as usize] = 1;
                profile.speed = [10; ACTIONS];
                profile.speed[Action::Watch as usize] = 3;
            }
            Bug::NoAffinity => {
                *classes = vec!["local"];
                profile.bad_image = 500;
            }
            // What a claim that is gone left is in the records of all its attempts. So the bug harms a claim alone whose volume is
            // made on another node than the storage that an earlier attempt left.
            Bug::NoNodes => {
                *classes = vec!["local"];
                (profile.bad_image, profile.no_room) = (500, true);
            }
            Bug::NoVolumeFinalizer | Bug::EarlyRelease | Bug::EarlyRemoval => profile.bad_image = 500,
            Bug::RecordGoneEarly => {
                *classes = vec!["shared"];
                profile.bad_image = 500;
            }
            // The copy counts when an admin has set a volume to Retain, and has deleted it to keep its storage. A class that keeps
            // storage would not show it: what a claim left that was deleted unseen is never deleted there.
            Bug::CopiedRecordCounts => {
                *classes = vec!["shared"];
                *actor_actions = 24;
                profile.simplify();
                (profile.records, profile.volumes) = (true, true);
            }
            // A record that was not armed is deleted, and created again for the same attempt.
            Bug::UnguardedRecordEnd => {
                *classes = vec!["shared"];
                (profile.late, profile.lost_answer, profile.refused, profile.crashes) = (0, 0, 150, 0);
                (profile.bad_image, profile.kill, profile.typos, profile.nodes) = (0, 0, false, false);
            }
            // The Jobs of single attempts have the same names for both processes. A batch is known to the process alone that has
            // created it.
            Bug::NoFence => {
                *classes = vec!["shared"];
                profile.make_batches(3);
                (profile.replicas, profile.old_leader_continues) = (2, true);
                (profile.stalls, profile.handovers, profile.bad_image) = (6, 4, 300);
                (profile.manual_removals, profile.nodes, profile.swaps, profile.vendor) = (false, false, false, false);
                (profile.configs, profile.volumes, profile.share, profile.restores) = (false, false, None, false);
            }
            Bug::NewestVersion => {
                (profile.configs, profile.bad_image) = (true, 300);
            }
            // A user deletes a claim while its snapshot is made, and the run reads so long that the delete run meets it. The second
            // run of a snapshot is no danger: none begins without the finalizer.
            Bug::SourceLetGo => {
                *classes = vec!["shared"];
                profile.simplify();
                profile.make_snapshots();
                (profile.claims, profile.actor_actions, profile.most) = (6, 40, 100);
                (profile.replicas, profile.slow_reads, profile.snapshot_controller) = (1, true, false);
                profile.speed = [10; ACTIONS];
            }
            Bug::EarlyContentRelease | Bug::EmptyRestore => {
                *classes = vec!["shared"];
                profile.make_snapshots();
                profile.bad_image = if self == Bug::EmptyRestore { 0 } else { 300 };
            }
            Bug::TwoJobs | Bug::RemovedForOne => {
                *classes = vec!["shared"];
                profile.make_batches(3);
                (profile.manual_removals, profile.nodes, profile.swaps, profile.vendor) = (false, false, false, false);
                (profile.configs, profile.volumes, profile.share, profile.dying) = (false, false, None, 500);
            }
            Bug::RestoredAsHalfMade => {
                *classes = vec!["shared"];
                (profile.restores, profile.share, profile.bad_image, profile.kill) = (true, None, 0, 0);
                (profile.others, profile.swaps, profile.snapshots, profile.in_place) = (false, false, false, false);
            }
            Bug::AllAttemptsIdle => {
                *classes = vec!["shared"];
                profile.bad_image = 500;
            }
            Bug::RetainLost => {
                *classes = vec!["shared", "script"];
                profile.volumes = true;
            }
            Bug::OpenedUnanswered => {
                *classes = vec!["shared"];
                (profile.copies, profile.restores) = (true, false);
            }
            // A process outlives its pod until after the Job controller has made the second.
            Bug::OpenedTwice => {
                *classes = vec!["shared"];
                (profile.second_pods, profile.restores, profile.nodes) = (true, false, false);
                (profile.bad_image, profile.kill, profile.dying) = (0, 0, 30);
            }
            Bug::InheritedNotClosed => {
                *classes = vec!["shared"];
                (profile.replicas, profile.crashes, profile.handovers) = (2, 3, 3);
                (profile.bad_image, profile.kill, profile.typos, profile.nodes) = (0, 0, false, false);
            }
            // Users create claims, and do nothing that ends the outage. Many runs must fail before the steps are used up.
            Bug::OutageUnknown => {
                *classes = vec!["shared"];
                profile.simplify();
                profile.begin_with_outage();
                profile.actor_actions = 3;
                (profile.replicas, profile.crashes, profile.handovers, profile.stalls) = (1, 0, 0, 0);
                (profile.speed, profile.watches) = ([10; ACTIONS], [10; KINDS.len()]);
            }
            // An admin sets Retain after the delete run was requested, and before its pod is opened.
            Bug::RetainedLetGo => {
                *classes = vec!["shared"];
                *claims = 8;
                profile.simplify();
                (profile.volumes, profile.actor_actions, profile.stalls) = (true, 30, 0);
                profile.speed = [10; ACTIONS];
            }
            Bug::SettledUnmarked => {
                *classes = vec!["shared"];
                *claims = 2;
                profile.simplify();
            }
            Bug::NoClaimUid => profile.policies = false,
            Bug::Silence => (profile.crashes, profile.refused, profile.lost_answer, profile.late) = (0, 0, 0, 0),
            _ => {}
        }
    }
}

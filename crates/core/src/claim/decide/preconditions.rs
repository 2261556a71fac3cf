//! The preconditions of an attempt, in their order. The first that does not hold decides.

use flex_contract::reason;
use strum::IntoStaticStr;

use super::data_source::{leave_to_populator, wait_for_data_source, wait_for_source_kind};
use super::observed::{Candidate, ClassCertainty, Observed};
use super::placement::{nodes_from, reschedule_from_unfit};
use super::pooled::{assigned, bind_assigned};
use super::rule::{Decision, Rule, run};
use super::step::Step;
use crate::claim::admit::admit;
use crate::config::Recipe;
use crate::config::classes::Class;
use crate::limits;
use crate::model::claim::WRITE_OUTCOME_AFTER;
use crate::rules::Rule as _;
use crate::run::backoff::seconds;
use crate::run::rule::{Rule as RunRule, Target};
use crate::run::slot_wait::until_slot_is_free;

/// The part of an attempt that is about to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Beginning {
    /// The first attempt, with its stamp.
    First,
    /// The attempt after the stamped one, with its stamp.
    Next,
    /// The run of the stamped attempt, with its Job.
    Run,
}

impl Beginning {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A precondition.
pub struct Precondition {
    /// The condition, in words.
    pub condition: &'static str,
    /// The parts of an attempt before which it must hold.
    pub before: &'static [Beginning],
    /// The rules that decide while it does not hold.
    pub rules: &'static [Rule],
    pub(super) unmet: fn(&Attempt<'_>) -> Option<Decision>,
}

use self::Beginning::{First, Next, Run};

/// All preconditions, in the order in which they are checked.
pub const PRECONDITIONS: &[Precondition] = &[
    Precondition {
        condition: "no populator fills the claim",
        before: &[First],
        rules: &[Rule::LeftToPopulator],
        unmet: |attempt| leave_to_populator(attempt.o),
    },
    Precondition {
        condition: "the StorageClass is known, or the API has none",
        before: &[First],
        rules: &[Rule::ClassObjectMayFollow, Rule::ConfirmNoClassObject],
        unmet: wait_for_class_object,
    },
    Precondition {
        condition: "the class has a valid config",
        before: &[First, Next],
        rules: &[Rule::ConfigUnusable],
        unmet: config_unusable,
    },
    Precondition {
        condition: "no volume is assigned to the claim",
        before: &[First],
        rules: &[Rule::BindPooledVolume, Rule::NameVolume, Rule::WaitForBinding],
        unmet: |attempt| Some(bind_assigned(attempt.o, assigned(attempt.o)?)),
    },
    Precondition {
        condition: "no volume is reserved for the claim by name",
        before: &[First],
        rules: &[Rule::VolumeReserved],
        unmet: volume_reserved,
    },
    Precondition {
        condition: "a node is selected, or the class binds immediately",
        before: &[Run],
        rules: &[Rule::WaitForFirstConsumer],
        unmet: wait_for_first_consumer,
    },
    // A pod that uses the claim changes none of the next three, so a first attempt checks them before its node.
    Precondition {
        condition: "the class can serve the claim",
        before: &[First, Next, Run],
        rules: &[Rule::ClaimRefused],
        unmet: refused,
    },
    Precondition {
        condition: "the claim can have its attributes",
        before: &[First, Next, Run],
        rules: &[Rule::AttributesUnavailable],
        unmet: attributes_unavailable,
    },
    Precondition {
        condition: "the cluster has the kind of the data source",
        before: &[First],
        rules: &[Rule::SourceNotReady],
        unmet: |attempt| wait_for_source_kind(attempt.o),
    },
    Precondition {
        condition: "a node is selected, or the class binds immediately",
        before: &[First],
        rules: &[Rule::WaitForFirstConsumer],
        unmet: wait_for_first_consumer,
    },
    Precondition {
        condition: "the data source is ready, and its node exists",
        before: &[First, Next, Run],
        rules: &[Rule::SourceNotReady, Rule::ConfirmSourceNode, Rule::SourceNodeGone],
        unmet: |attempt| wait_for_data_source(attempt.o),
    },
    Precondition {
        condition: "the selected node exists, and the class allows it",
        before: &[First, Run],
        rules: &[Rule::ConfirmSelectedNode, Rule::SelectedNodeForbidden, Rule::SelectedNodeGone],
        unmet: |attempt| reschedule_from_unfit(attempt.o, attempt.class),
    },
    Precondition {
        condition: "no pooled volume fits",
        before: &[First],
        rules: &[Rule::AssignPooledVolume],
        unmet: assign_pooled,
    },
    Precondition {
        condition: "the quotas allow another volume",
        before: &[First, Next],
        rules: &[Rule::QuotaReached],
        unmet: quota_reached,
    },
    Precondition {
        condition: "nothing is left of an earlier claim of this name",
        before: &[First],
        rules: &[Rule::NamesakeNotUndone],
        unmet: namesake_not_undone,
    },
    Precondition {
        condition: "not too much is left of claims that are gone",
        before: &[First],
        rules: &[Rule::TooMuchLeft],
        unmet: |attempt| {
            Some(Rule::TooMuchLeft.warn(reason::LIMIT_REACHED, attempt.o.preconditions.left_refusal.as_ref()?))
        },
    },
    Precondition {
        condition: "a node takes the run",
        before: &[First, Next],
        rules: &[Rule::NoNodeForRun],
        unmet: |attempt| Some(Rule::NoNodeForRun.warn(reason::WAITING_FOR_PROVISIONER, attempt.nodes().err()?)),
    },
    Precondition {
        condition: "attempts may have left storage on few nodes only",
        before: &[Next],
        rules: &[Rule::TooManyNodes],
        unmet: too_many_nodes,
    },
    Precondition {
        condition: "the revision of the recipe is stored",
        before: &[First, Next],
        rules: &[Rule::RevisionNotStored],
        // The revision's event will arrive.
        unmet: |attempt| (!attempt.o.preconditions.has_revision).then(|| Rule::RevisionNotStored.nothing()),
    },
    Precondition {
        condition: "there is a free slot",
        before: &[First, Next],
        rules: &[Rule::Run(Target::Volume, RunRule::NoFreeSlot)],
        unmet: no_free_slot,
    },
];

/// An attempt that may begin, or its run.
pub(super) struct Attempt<'a> {
    o: &'a Observed<'a>,
    class: &'a Class,
    /// The recipe with which it would begin.
    recipe: Option<&'a Recipe>,
    begins: Beginning,
    now: i64,
}

impl<'a> Attempt<'a> {
    pub(super) fn of(begins: Beginning, o: &'a Observed<'a>, class: &'a Class, now: i64) -> Self {
        let recipe = match begins {
            First | Next => class.recipe.as_deref().ok(),
            Run => o.runs.recipe.as_deref(),
        };
        Attempt { o, class, recipe, begins, now }
    }

    /// Decides by the first precondition that does not hold.
    pub(super) fn unmet(&self) -> Option<Decision> {
        PRECONDITIONS.iter().filter(|of| of.before.contains(&self.begins)).find_map(|of| (of.unmet)(self))
    }

    /// Begins the attempt on its nodes, if all preconditions hold.
    pub(super) fn begin(&self, on: impl FnOnce(Vec<String>) -> Decision) -> Decision {
        self.unmet().unwrap_or_else(|| on(self.nodes().unwrap_or_default()))
    }

    /// Returns the nodes where the attempt may leave storage, or the reason why no node takes its run.
    fn nodes(&self) -> Result<Vec<String>, String> {
        self.recipe.map_or_else(|| Ok(Vec::new()), |recipe| nodes_from(self.o, self.class, recipe))
    }
}

/// The time until the next look for a StorageClass that may follow its config, in seconds.
const CLASS_OBJECT_LOOK: i64 = 1;

fn wait_for_class_object(attempt: &Attempt<'_>) -> Option<Decision> {
    match attempt.o.preconditions.class_certainty {
        ClassCertainty::Certain => None,
        ClassCertainty::Unasked => Some(Rule::ConfirmNoClassObject.step(Step::ConfirmNoClassObject)),
        ClassCertainty::MayFollow => {
            Some(Rule::ClassObjectMayFollow.nothing().requeue_at(attempt.now + CLASS_OBJECT_LOOK))
        }
    }
}

fn config_unusable(attempt: &Attempt<'_>) -> Option<Decision> {
    let why = attempt.class.recipe.as_ref().err()?;
    Some(Rule::ConfigUnusable.warn(reason::WAITING_FOR_PROVISIONER, why.clone()))
}

fn volume_reserved(attempt: &Attempt<'_>) -> Option<Decision> {
    let volume = attempt.o.volumes.reserved.as_ref()?;
    let message = format!(
        "volume {volume} is reserved for this claim, so the provisioner makes no other; Kubernetes binds the two"
    );
    Some(Rule::VolumeReserved.nothing().with_event(reason::WAITING_FOR_PROVISIONER, message))
}

fn wait_for_first_consumer(attempt: &Attempt<'_>) -> Option<Decision> {
    let awaits_node = attempt.class.awaits_node(attempt.o.claim.selected_node.as_deref());
    awaits_node.then(|| Rule::WaitForFirstConsumer.nothing())
}

/// Refuses a claim that the class cannot serve. Users can write a stamp too, and such a stamp must not get them past the
/// limits.
fn refused(attempt: &Attempt<'_>) -> Option<Decision> {
    let (o, recipe) = (attempt.o, attempt.recipe?);
    // As the class is now, whatever version of its config a stamp names.
    let of_namespace = o.preconditions.namespace_refusal.clone();
    let why = of_namespace.or_else(|| admit(o.claim, recipe, o.pool.is_request).err())?;
    Some(Rule::ClaimRefused.warn(reason::PROVISIONING_FAILED, why))
}

fn attributes_unavailable(attempt: &Attempt<'_>) -> Option<Decision> {
    let why = attempt.o.preconditions.attributes.as_ref().err()?;
    Some(Rule::AttributesUnavailable.warn(reason::PROVISIONING_FAILED, why))
}

/// Assigns a pooled volume. A volume of the claim shows that the claim's stamp has not been seen yet. The write of another
/// stamp then conflicts. A record shows that somebody has removed the stamp: what its attempts have made would be
/// forgotten.
fn assign_pooled(attempt: &Attempt<'_>) -> Option<Decision> {
    let o = attempt.o;
    let names_it = |candidate: &Candidate| candidate.volume.claim_ref_uid() == Some(&o.claim.uid);
    if o.runs.recorded.last > 0 || o.volumes.all.iter().any(names_it) {
        return None;
    }
    let volume = o.pool.volume?.to_owned();
    Some(Rule::AssignPooledVolume.step(Step::AssignPooledVolume { volume }))
}

/// Waits for quota. A stamp whose write may have failed counts for a while.
fn quota_reached(attempt: &Attempt<'_>) -> Option<Decision> {
    // An attempt that the orchestrator has given up no longer counts against the quota.
    let wait = Rule::QuotaReached.warn(reason::LIMIT_REACHED, attempt.o.preconditions.quota_refusal.as_ref()?);
    Some(match attempt.begins == First && attempt.o.preconditions.has_pending_charge {
        true => wait.requeue_at(attempt.now + seconds(WRITE_OUTCOME_AFTER)),
        false => wait,
    })
}

/// The time until the next look at an earlier claim of the same name, in seconds.
const NAMESAKE_LOOK: i64 = 30;

fn namesake_not_undone(attempt: &Attempt<'_>) -> Option<Decision> {
    let message =
        "what the attempts for an earlier claim of this name left is being deleted; then the first attempt begins";
    let wait = || Rule::NamesakeNotUndone.nothing().requeue_at(attempt.now + NAMESAKE_LOOK);
    attempt.o.preconditions.has_namesake.then(|| wait().with_event(reason::WAITING_FOR_PROVISIONER, message))
}

fn too_many_nodes(attempt: &Attempt<'_>) -> Option<Decision> {
    let message = || {
        format!(
            "attempts of this claim may have left something on {} nodes, so the provisioner tries no further node; find out why they fail, then delete the claim and create it again: its deletion removes what they left",
            limits::NODES
        )
    };
    let is_many = attempt.nodes().is_ok_and(|nodes| nodes.len() > limits::NODES);
    is_many.then(|| Rule::TooManyNodes.warn(reason::PROVISIONING_FAILED, message()))
}

fn no_free_slot(attempt: &Attempt<'_>) -> Option<Decision> {
    let why = attempt.o.preconditions.no_slot?;
    let wait = run(RunRule::NoFreeSlot).step(Step::WaitForSlot { nodes: attempt.nodes().unwrap_or_default() });
    Some(until_slot_is_free(wait, why, attempt.o.claim.created, attempt.now))
}

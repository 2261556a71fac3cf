//! The reasons why a volume of another provisioner cannot move in.

use std::fmt::{self, Display};

use flex_contract::names;

use crate::object::ObjectName;

/// The reason why a volume cannot move in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another provisioner made the volume, by this annotation.
    OtherProvisioner(Option<String>),
    /// An image of this orchestrator made the volume.
    Own,
    /// The orchestrator with this instance id has written on the volume.
    OtherOrchestrator(String),
    /// The volume has moved in.
    Moved,
    /// The volume has provenance without the mark, which says that another provisioner made it. It is
    /// `None` if the volume was imported.
    OtherRecord(Option<String>),
    /// The volume is terminating.
    Terminating,
    /// The phase of the volume is not Bound.
    Phase(String),
    /// No claim is bound to the volume, or the claim is gone.
    NoClaim,
    /// The claim in claimRef is a newer one of the same name, or is bound to another volume.
    OtherClaim(ObjectName),
    /// The claim is terminating.
    ClaimTerminating(ObjectName),
    /// The orchestrator is provisioning for the claim.
    ClaimBusy(ObjectName),
    /// The name of the volume is not `pvc-UID`, so that no run could delete it.
    Name,
    /// The config does not serve the class of the volume.
    Class {
        /// The class of the volume.
        class: String,
        /// The config.
        config: ObjectName,
    },
    /// Another volume leads to the same directory, or to one in it or around it.
    Overlaps(String),
    /// Another volume has an overlapping path on a server with another name.
    OtherServer(String),
    /// The size of the volume cannot be read.
    Size(String),
    /// The former provisioner makes no volumes of this kind of source.
    SourceKind(Option<&'static str>),
    /// The config does not allow the volume's source.
    Source(String),
    /// The config makes volumes on nodes, and the volume's node affinity does not name exactly one node.
    Node,
    /// No node, or more than one, has the host name in the volume's node affinity.
    NoNode(String),
    /// The storage is on one node, and runs of the config may be on any.
    OnOneNode(String),
    /// The class and the config do different things with the storage of a deleted volume.
    OnDelete(String),
}

impl Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::OtherProvisioner(Some(name)) => {
                write!(f, "provisioner {name} made it: name that provisioner with --provisioner")
            }
            Refusal::OtherProvisioner(None) => write!(f, "it does not say which provisioner made it: use import"),
            Refusal::Own => write!(f, "the image of its class made it: there is nothing to move in"),
            Refusal::OtherOrchestrator(instance) => {
                write!(f, "the orchestrator with --instance {instance} has written on it: use that --instance")
            }
            Refusal::Moved => write!(f, "it has moved in already: nothing is left to do"),
            Refusal::OtherRecord(None) => {
                write!(f, "it has the record of an import without the mark: run import again")
            }
            Refusal::OtherRecord(Some(from)) => {
                write!(f, "its record, which has no mark, names the provisioner {from}: use --provisioner {from}")
            }
            Refusal::Terminating => write!(f, "it is being deleted: wait for the end"),
            Refusal::Phase(phase) => write!(f, "its phase is {phase}, not Bound: wait until it is bound to its claim"),
            Refusal::NoClaim => write!(
                f,
                "no claim is bound to it, so its storage would be deleted at once: bind it to a claim, or let the former provisioner delete it"
            ),
            Refusal::OtherClaim(claim) => {
                write!(f, "claim {claim} is not the one that it was bound to: correct its claimRef first")
            }
            Refusal::ClaimTerminating(claim) => write!(f, "claim {claim} is being deleted: wait for the end"),
            Refusal::ClaimBusy(claim) => {
                write!(f, "the orchestrator is making a volume for claim {claim}: wait for the end")
            }
            Refusal::Name => write!(
                f,
                "its name is not {}UID, and a volume cannot be renamed: retain it, delete it, and use import",
                names::PV_PREFIX
            ),
            Refusal::Class { class, config } => write!(
                f,
                "its class {class} is not served by the config {config}: a claim cannot change its class, so let the config serve the class"
            ),
            Refusal::Overlaps(other) => write!(f, "volume {other} may have the same files"),
            Refusal::OtherServer(other) => write!(
                f,
                "volume {other} has the same path on a server with another name, and may have the same files: add --servers-differ if the names lead to different servers"
            ),
            Refusal::Size(why) => write!(f, "{why}"),
            Refusal::SourceKind(Some(kind)) => write!(f, "that provisioner makes no volumes of the kind {kind}"),
            Refusal::SourceKind(None) => write!(f, "it does not have exactly one volume source"),
            Refusal::Source(why) => write!(f, "the config does not allow it: {why}"),
            Refusal::Node => write!(
                f,
                "the config makes volumes on nodes, but its node affinity does not name exactly one node by {}",
                names::HOSTNAME
            ),
            Refusal::NoNode(host) => {
                write!(f, "not exactly one node has the label {}={host} of its node affinity", names::HOSTNAME)
            }
            Refusal::OnOneNode(host) => write!(
                f,
                "its storage is on the node {host}, but runs of the config may be on any node: use a config with `placement: selected-node`"
            ),
            Refusal::OnDelete(why) => write!(f, "{why}"),
        }
    }
}

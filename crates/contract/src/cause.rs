//! The causes of failed runs that the orchestrator names itself, each with its documentation.
//!
//! A cause is one word before the message of a failure, as commands and the record on the object show it. The other causes
//! are the reasons of Kubernetes, such as `DeadlineExceeded` and `OOMKilled`. The table of `docs/troubleshooting.md` is
//! printed from here.

use crate::documented::documented;

documented! {
    /// The image ended with an exit code. The message says what the code means, and has the last words.
    EXIT_CODE = "ExitCode";
    /// The image exited 0, and made no volume.
    NO_VOLUME = "NoVolume";
    /// A process of the image could not be started.
    START_ERROR = "StartError";
    /// The pod failed before the image ended, and Kubernetes gives no reason.
    POD_FAILED = "PodFailed";
    /// A member of a batch failed. The message is that of the member.
    MEMBER_FAILED = "MemberFailed";
    /// Kubernetes refuses the Job of the run.
    JOB_REFUSED = "JobRefused";
    /// The namespace of the config is gone, or is being deleted.
    NAMESPACE_GONE = "NamespaceGone";
    /// The provisioner config of the attempt is not known any more.
    CONFIG_LOST = "ConfigLost";
    /// The script of the attempt is not stored any more.
    SCRIPT_LOST = "ScriptLost";
    /// The claim was deleted before a container of the attempt had started.
    NEVER_STARTED = "NeverStarted";
}

//! The meaning of a gRPC code for the run. The functions are pure.
//!
//! | code | meaning | exit code |
//! |---|---|---|
//! | `ABORTED`, `CANCELLED`, `DEADLINE_EXCEEDED`, `UNAVAILABLE` | the call may still be in progress: repeated for a while, then | 75 |
//! | `RESOURCE_EXHAUSTED` | there is no room here: if the driver has topology and a node is selected | 69, else 75 |
//! | `INVALID_ARGUMENT`, `OUT_OF_RANGE`, `ALREADY_EXISTS` | never for this request: tried again every 30 minutes | 65 |
//! | `UNIMPLEMENTED` | the driver cannot do it | 78 |
//! | `PERMISSION_DENIED`, `UNAUTHENTICATED` | the credentials are not sufficient | 77 |
//! | all others | the call failed, and nothing is in progress: tried again by the config's `backoff` | 75 |

use flex_image_kit::Failure;
use tonic::{Code, Status};

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The driver may have got the call, and may still work on it.
    UnderWay,
    /// The place of the volume has no room.
    Capacity,
    /// The request is impossible.
    Refused,
    /// The driver does not have the operation.
    Unable,
    /// The credentials lack a permission.
    Denied,
    /// The call failed, and nothing is in progress.
    Failed,
}

/// A call that failed.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// The name of the call in CSI.
    pub call: &'static str,
    /// The status from the driver, or from the connection to it.
    pub status: Status,
}

/// Returns the kind of a code.
pub fn kind(code: Code) -> Kind {
    match code {
        Code::Aborted | Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable => Kind::UnderWay,
        Code::ResourceExhausted => Kind::Capacity,
        Code::InvalidArgument | Code::OutOfRange | Code::AlreadyExists => Kind::Refused,
        Code::Unimplemented => Kind::Unable,
        Code::PermissionDenied | Code::Unauthenticated => Kind::Denied,
        Code::Ok | Code::Unknown | Code::NotFound | Code::FailedPrecondition | Code::Internal | Code::DataLoss => {
            Kind::Failed
        }
    }
}

/// Returns the name of a code, as CSI and gRPC spell it.
pub fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

impl flex_image_kit::patience::Trouble for Trouble {
    fn passes(&self) -> bool {
        self.kind() == Kind::UnderWay
    }
}

impl Trouble {
    /// Returns the kind of the problem.
    pub fn kind(&self) -> Kind {
        kind(self.status.code())
    }

    /// Returns the exit code and last words of a run that cannot solve the problem. `elsewhere` says that another node
    /// may have room.
    pub fn failure(&self, elsewhere: bool) -> Failure {
        let text = format!(
            "the CSI driver answers {} with {}: {}",
            self.call,
            name(self.status.code()),
            self.status.message()
        );
        match self.kind() {
            Kind::UnderWay => Failure::retry(format!("{text}. It may still be under way, and is asked for again")),
            Kind::Capacity if elsewhere => Failure::no_capacity(text),
            Kind::Capacity | Kind::Failed => Failure::retry(text),
            Kind::Refused => Failure::never(text),
            Kind::Unable => Failure::config(format!("{text}. The driver cannot do that")),
            Kind::Denied => Failure::permission(format!(
                "{text}. Look at the Secret that the parameters of the class name for this call"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_exit_code() {
        for (code, exit, elsewhere) in [
            (Code::Cancelled, 75, 75),
            (Code::Unknown, 75, 75),
            (Code::InvalidArgument, 65, 65),
            (Code::DeadlineExceeded, 75, 75),
            (Code::NotFound, 75, 75),
            (Code::AlreadyExists, 65, 65),
            (Code::PermissionDenied, 77, 77),
            (Code::ResourceExhausted, 75, 69),
            (Code::FailedPrecondition, 75, 75),
            (Code::Aborted, 75, 75),
            (Code::OutOfRange, 65, 65),
            (Code::Unimplemented, 78, 78),
            (Code::Internal, 75, 75),
            (Code::Unavailable, 75, 75),
            (Code::DataLoss, 75, 75),
            (Code::Unauthenticated, 77, 77),
        ] {
            let trouble = Trouble { call: "CreateVolume", status: Status::new(code, "why") };
            assert_eq!(trouble.failure(false).code, exit, "{code:?}");
            assert_eq!(trouble.failure(true).code, elsewhere, "{code:?}");
            let text = trouble.failure(false).message;
            assert!(text.contains(name(code)) && text.contains("CreateVolume") && text.contains("why"), "{text}");
        }
    }

    #[test]
    fn only_calls_that_may_be_in_progress_are_repeated_at_once() {
        let all = (0..=16).map(Code::from).filter(|code| kind(*code) == Kind::UnderWay);
        let in_progress = [Code::Cancelled, Code::DeadlineExceeded, Code::Aborted, Code::Unavailable];
        assert_eq!(all.collect::<Vec<_>>(), in_progress);
    }
}

//! The error of a program whose environment is not that of a run.

/// The reason why an environment is not that of a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// These variables are absent or empty.
    #[error(
        "these variables are missing: {0}; they are set in the pods that the flex provisioner starts (to try by hand, set them yourself)"
    )]
    Missing(String),
    /// The run is a batch.
    #[error(
        "this run is for a batch of claims, and this program makes one volume: the image has to start it by `flex-pv each -- PROGRAM`"
    )]
    Batch,
    /// A variable has an invalid value.
    #[error("{variable}=`{value}` is not {expected}")]
    Invalid {
        /// The name of the variable.
        variable: &'static str,
        /// The value of the variable.
        value: String,
        /// The expected form of the value.
        expected: &'static str,
    },
}

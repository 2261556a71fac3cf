//! The reason why a desk could not run a container.

/// The reason why the desk could not run a container.
#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    /// A cluster would not start the container either.
    #[error("the container cannot start: {0}")]
    Container(String),
    /// This machine does not do what the desk needs.
    #[error("{0}")]
    Machine(String),
}

impl From<std::io::Error> for DeskError {
    fn from(error: std::io::Error) -> Self {
        DeskError::Machine(error.to_string())
    }
}

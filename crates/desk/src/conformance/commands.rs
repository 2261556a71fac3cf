//! Commands of a person that write and read the content of volumes, where the desk does not see it.

/// The commands, for a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commands {
    /// Prints the content of a volume.
    pub read: String,
    /// Gives a volume the content that it gets on its standard input.
    pub write: String,
}

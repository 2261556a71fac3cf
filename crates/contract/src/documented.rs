//! The form of a table of names, each with its documentation. Pages are printed from such tables.

/// A name with its documentation.
#[derive(Clone, Copy, Debug)]
pub struct Documented {
    /// The name.
    pub name: &'static str,
    /// The meaning, as lines of Markdown.
    pub doc: &'static [&'static str],
}

/// Declares a constant for each name, with its comment as documentation, and the list of all.
macro_rules! documented {
    ($($(#[doc = $doc:literal])+ $constant:ident = $name:literal;)*) => {
        $($(#[doc = $doc])+ pub const $constant: &str = $name;)*

        /// All names, in the order of their documentation.
        pub const ALL: &[$crate::documented::Documented] =
            &[$($crate::documented::Documented { name: $name, doc: &[$($doc),+] }),*];
    };
}
pub(crate) use documented;

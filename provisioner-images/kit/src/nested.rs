//! Paths of directories as text: which directory is in which. The paths have no slash at the end.

/// Checks whether a path is in a folder.
pub fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Checks whether two directories are the same, or one is in the other.
pub fn overlap(one: &str, other: &str) -> bool {
    one == other || is_below(one, other) || is_below(other, one)
}

/// Divides a path into that of the folder around it, which is empty without one, and the name in it.
pub fn divided(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_beginning_of_names_is_no_overlap() {
        for (one, other, expected) in
            [("a", "a", true), ("a/b", "a", true), ("a", "a/b/c", true), ("a", "ab", false), ("a/b", "a/c", false)]
        {
            assert_eq!((overlap(one, other), overlap(other, one)), (expected, expected), "{one} {other}");
        }
        assert!(is_below("a/b", "a") && !is_below("a", "a/b") && !is_below("a", "a"));
        assert_eq!((divided("a/b/c"), divided("a")), (("a/b", "c"), ("", "a")));
    }
}

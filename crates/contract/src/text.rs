//! Texts that Kubernetes or a kubelet stores only up to a limit.

/// Returns the beginning of a text, at most `limit` bytes, and cuts between characters.
pub fn cut(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_splits_a_character() {
        assert_eq!(cut("short", 10), "short");
        assert_eq!(cut("größer", 3), "gr");
        assert_eq!(cut("größer", 4), "grö");
        assert_eq!(cut("ß", 1), "");
        assert_eq!(cut(&"x".repeat(5000), 4096).len(), 4096);
    }
}

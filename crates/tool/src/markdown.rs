//! Texts of the documentation, for a terminal.

/// The folder of the manual.
const MANUAL: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/");

/// Writes links of Markdown as text, with the address where they lead.
pub(super) fn unlinked(markdown: &str) -> String {
    let Some((before, rest)) = markdown.split_once('[') else { return markdown.to_owned() };
    let Some((label, rest)) = rest.split_once("](") else { return markdown.to_owned() };
    let Some((target, after)) = rest.split_once(')') else { return markdown.to_owned() };
    let page = if target.starts_with('#') { "troubleshooting.md" } else { "" };
    format!("{before}{label} ({MANUAL}{page}{target}){}", unlinked(after))
}

/// Writes the words of Markdown without its marks, and links without their targets.
pub(super) fn plain(markdown: &str) -> String {
    let text = markdown.replace("**", "").replace('`', "");
    let mut parts = text.split('[');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("](").and_then(|(label, rest)| Some((label, rest.split_once(')')?.1))) {
            Some((label, rest)) => plain.extend([label, rest]),
            None => plain.extend(["[", part]),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_readable_on_a_terminal() {
        assert_eq!(plain("**required**, or `x` with [a link](#y) and [1]"), "required, or x with a link and [1]");
        assert_eq!(plain("end with `*) exit`"), "end with *) exit");
        assert_eq!(
            unlinked("see [this](#there), and [that](x.md)"),
            format!("see this ({MANUAL}troubleshooting.md#there), and that ({MANUAL}x.md)")
        );
        assert_eq!(unlinked("no [link"), "no [link");
    }
}

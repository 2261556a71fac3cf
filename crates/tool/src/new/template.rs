//! Templates of files: names in percent signs, and parts that only some files have.
//!
//! ```text
//! %if clone snapshot      the next lines are there if one of these is chosen
//! %else
//! %end
//! ```

/// Returns the text of a template. `names` are texts by their names, `chosen` the parts that are there.
pub(super) fn rendered(template: &str, names: &[(&str, &str)], chosen: &[&str]) -> String {
    let mut text = String::new();
    let mut shown = true;
    for line in template.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("%if") => shown = words.any(|word| chosen.contains(&word)),
            Some("%else") => shown = !shown,
            Some("%end") => shown = true,
            _ if shown => {
                text.push_str(line);
                text.push('\n');
            }
            _ => {}
        }
    }
    names.iter().fold(text, |text, (name, value)| text.replace(&format!("%{name}%"), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_chosen_and_names_are_written() {
        let template = "a %X%\n%if b c\nb\n%else\nnone\n%end\nlast\n";
        assert_eq!(rendered(template, &[("X", "x")], &["c"]), "a x\nb\nlast\n");
        assert_eq!(rendered(template, &[("X", "x")], &[]), "a x\nnone\nlast\n");
    }
}

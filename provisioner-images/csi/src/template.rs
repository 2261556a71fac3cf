//! Texts with variables, such as the names of Secrets in a StorageClass. The functions are pure.

/// Replaces each `${NAME}` by its value. A dollar sign that begins no variable stays.
///
/// # Errors
/// If `value` does not know a name, or a brace is not closed.
pub fn resolve(template: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut made = String::new();
    let mut unknown = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find("${") {
        made.push_str(&rest[..at]);
        let Some((name, after)) = rest[at + 2..].split_once('}') else {
            return Err(format!("`{}` has no closing brace", &rest[at..]));
        };
        match value(name) {
            Some(value) => made.push_str(&value),
            None => unknown.push(format!("${{{name}}}")),
        }
        rest = after;
    }
    made.push_str(rest);
    match unknown.is_empty() {
        true => Ok(made),
        false => Err(format!("{} cannot be used", unknown.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_and_nothing_else() {
        let value = |name: &str| match name {
            "pv.name" => Some("pvc-1".to_owned()),
            "pvc.annotations['a/b']" => Some("${pv.name}".to_owned()),
            "empty" => Some(String::new()),
            _ => None,
        };
        for (template, expected) in [
            ("plain", Ok("plain")),
            ("${pv.name}-publish", Ok("pvc-1-publish")),
            ("${pv.name}${pv.name}", Ok("pvc-1pvc-1")),
            ("a${empty}b", Ok("ab")),
            // A user's text is no template.
            ("${pvc.annotations['a/b']}", Ok("${pv.name}")),
            ("$pv.name $", Ok("$pv.name $")),
            ("", Ok("")),
            ("${pv.name", Err("no closing brace")),
            ("${PV.NAME} ${x}", Err("${PV.NAME}, ${x} cannot be used")),
            ("${}", Err("${} cannot be used")),
        ] {
            match (resolve(template, value), expected) {
                (Ok(made), Ok(expected)) => assert_eq!(made, expected, "{template}"),
                (Err(says), Err(expected)) => assert!(says.contains(expected), "{template}: {says}"),
                (found, _) => panic!("{template}: {found:?}"),
            }
        }
    }
}

//! The command that repeats one case of a call of `conformance`.

use flex_desk::conformance::Case;

use crate::name::name;

/// The flags that are left out, with their values: the choice of the cases, and the file with the results of all.
const LEFT_OUT: [&str; 2] = ["--only", "--junit"];
/// The subcommand.
const COMMAND: &str = "conformance";

/// Returns this call for one case alone. The last words of the call, so many, are the program and its arguments.
pub(super) fn again(case: Case, program: usize) -> String {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    alone(name(), &words, program, case.id())
}

fn alone(name: &str, words: &[String], program: usize, id: &str) -> String {
    let (own, program) = words.split_at(words.len().saturating_sub(program));
    let (mut line, mut own) = (vec![name.to_owned()], own.iter());
    while let Some(word) = own.next() {
        match LEFT_OUT.iter().find_map(|flag| word.strip_prefix(flag)) {
            Some("") => {
                own.next();
            }
            Some(value) if value.starts_with('=') => {}
            _ => {
                line.push(quoted(word));
                if word == COMMAND {
                    line.extend(["--only", id].map(str::to_owned));
                }
            }
        }
    }
    line.extend(program.iter().map(|word| quoted(word)));
    line.join(" ")
}

/// Writes a word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_repeated_alone_with_all_other_arguments() {
        for (words, program, expected) in [
            (&["conformance", "./p"][..], 1, "flex conformance --only a ./p"),
            (
                &["conformance", "--only", "b", "--set=x=a b", "--only=c", "--junit", "r.xml", "./p", "--only", "d"],
                3,
                "flex conformance --only a '--set=x=a b' ./p --only d",
            ),
            (
                &["conformance", "--config", "it's.yaml", "--junit=r.xml", "--", "./p", "", "-v"],
                3,
                r"flex conformance --only a --config 'it'\''s.yaml' -- ./p '' -v",
            ),
            (
                &["conformance", "--cluster", "--cluster-config", "n/c"],
                0,
                "flex conformance --only a --cluster --cluster-config n/c",
            ),
        ] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(alone("flex", &words, program, "a"), expected);
        }
    }
}

//! Batches: one run of an image for several claims of a class, each with its own request.
//!
//! The run's environment has `OPERATION=batch`, the variables that all requests have in common, and `BATCH`, the path
//! of a file. The file has one line for each member: a JSON object with the variables in which the member's request
//! differs. These win over the variables of the run. Each line has all variables of [`OWN`], so that a program that
//! does not know batches finds nothing in its environment that it could take for its claim.
//!
//! ```text
//! {"CLAIM_UUID":"c0ffee00-0000-4000-8000-000000000001","OPERATION":"provision","PVC_NAME":"data-0", …}
//! {"CLAIM_UUID":"c0ffee00-0000-4000-8000-000000000002","OPERATION":"provision","PVC_NAME":"data-1", …}
//! ```
//!
//! The termination message says which members failed. After its first line it has a line for each: the member's line
//! number in the file, an exit code ([`crate::exit`]) and the last words.
//!
//! ```text
//! flex-batch 1
//! 2 75 the array is switched off
//! ```
//!
//! If the run exits 0, all members that are not listed have succeeded. If the run fails, the result of the other
//! members is unknown.

use std::collections::BTreeMap;

use crate::names::TERMINATION_MESSAGE;
use crate::request::{Property, RunRequest};
use crate::text::cut;

/// The value of `OPERATION` in the environment of a batch run.
pub const OPERATION: &str = crate::operation::BATCH;
/// The variable with the path of the list of members.
pub const VARIABLE: &str = crate::variable::BATCH.name;
/// The name of the file with the list of members. It is in the directory of the properties.
pub const FILE: &str = "batch";
/// The first word of the outcomes.
pub const MARK: &str = "flex-batch";
/// The version of the format of outcomes. It follows [`MARK`] in the first line.
pub const VERSION: &str = "1";
/// The largest number of members. If all fail, the termination message still has room for each number and exit code.
pub const MAX_MEMBERS: usize = 250;
/// The properties that each member's line has, even where all members have the same value.
pub const OWN: &[&str] = &["operation", "claim-uuid", "pv-name"];

/// The variables of one member that are not in the environment of the run.
pub type MemberVariables = BTreeMap<String, String>;

/// Several requests, divided into their common variables and the variables of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The properties of the run, with `operation` among them.
    pub common: Vec<Property>,
    /// One line for each request, without a line end.
    pub lines: Vec<String>,
}

/// Divides requests into their common properties and one line for each.
pub fn split(requests: &[RunRequest]) -> Split {
    let all: Vec<Vec<Property>> = requests.iter().map(RunRequest::properties).collect();
    let Some((first, others)) = all.split_first() else { return Split { common: Vec::new(), lines: Vec::new() } };
    // Requests of one class have the same properties, but for the parameters of other VolumeAttributesClasses.
    let others: Vec<BTreeMap<&str, &str>> = others
        .iter()
        .map(|properties| properties.iter().map(|property| (property.name.as_str(), property.value.as_str())).collect())
        .collect();
    let shared = |property: &&Property| {
        let same = |other: &BTreeMap<&str, &str>| other.get(property.name.as_str()) == Some(&property.value.as_str());
        !OWN.contains(&property.name.as_str()) && others.iter().all(same)
    };
    let mut common: Vec<Property> = first.iter().filter(shared).cloned().collect();
    let line = |properties: &Vec<Property>| {
        let own = properties.iter().filter(|property| !common.iter().any(|shared| shared.name == property.name));
        serde_json::json!(own.map(|property| (property.env(), &property.value)).collect::<BTreeMap<_, _>>()).to_string()
    };
    let lines = all.iter().map(line).collect();
    common.insert(0, Property { name: OWN[0].to_owned(), value: OPERATION.to_owned() });
    Split { common, lines }
}

/// The reason why a list of members cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The list has no line.
    #[error("the list of the batch's members is empty")]
    Empty,
    /// The list has more than [`MAX_MEMBERS`] lines.
    #[error("the list of the batch's members has more than {MAX_MEMBERS} lines")]
    TooMany,
    /// The line with this number, from 1, is not the JSON object of a member.
    #[error(
        "line {0} of the list of the batch's members is not a JSON object of texts with OPERATION, CLAIM_UUID and PV_NAME"
    )]
    Line(usize),
}

/// Reads the members of a list, in the order of the list.
///
/// # Errors
/// If any line cannot be read: a program that uses a part of the list would take one member for another.
pub fn read(list: &str) -> Result<Vec<MemberVariables>, BatchError> {
    let member = |(n, line): (usize, &str)| {
        let member = serde_json::from_str::<MemberVariables>(line).ok();
        let whole =
            |member: &MemberVariables| OWN.iter().all(|name| member.contains_key(&crate::parameter::env_name(name)));
        member.filter(whole).ok_or(BatchError::Line(n + 1))
    };
    match list.lines().count() {
        0 => Err(BatchError::Empty),
        count if count > MAX_MEMBERS => Err(BatchError::TooMany),
        _ => list.lines().enumerate().map(member).collect(),
    }
}

/// The failure of one member of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberFailure {
    /// The member's line number in the list, from 1.
    pub member: usize,
    /// The exit code, from 1 to 255.
    pub code: i32,
    /// The last words of the member; may be empty.
    pub message: String,
}

/// Writes the outcomes for the termination message. Returns an empty text if no member failed. Puts the last words of
/// each member on one line, and cuts the longest until all have room.
pub fn write_outcomes(failed: &[MemberFailure]) -> String {
    if failed.is_empty() {
        return String::new();
    }
    let head = format!("{MARK} {VERSION}\n");
    let lines: Vec<(String, String)> = failed
        .iter()
        .map(|MemberFailure { member, code, message }| (format!("{member} {code} "), one_line(message)))
        .collect();
    let fixed = head.len() + lines.iter().map(|(begin, _)| begin.len() + 1).sum::<usize>();
    let longest =
        level(lines.iter().map(|(_, texts)| texts.len()).collect(), TERMINATION_MESSAGE.saturating_sub(fixed));
    lines.iter().fold(head, |text, (begin, texts)| text + begin + cut(texts, longest) + "\n")
}

/// Reads the outcomes in a termination message, and leaves out lines that it cannot read. Returns `None` for a message
/// of another kind.
pub fn read_outcomes(message: &str) -> Option<Vec<MemberFailure>> {
    let mut lines = message.lines();
    lines.next().filter(|first| first.trim_end().split_once(' ') == Some((MARK, VERSION)))?;
    let outcome = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let member = parts.next()?.parse().ok().filter(|member| (1..=MAX_MEMBERS).contains(member))?;
        let code = parts.next()?.parse().ok().filter(|code| (1..=255).contains(code))?;
        Some(MemberFailure { member, code, message: parts.next().unwrap_or_default().trim().to_owned() })
    };
    Some(lines.filter_map(outcome).collect())
}

/// Returns the length to which texts of these lengths must be cut so that all together have this room.
fn level(mut lengths: Vec<usize>, mut available: usize) -> usize {
    lengths.sort_unstable();
    let mut remaining = lengths.len();
    for length in lengths {
        let share = available / remaining;
        if length > share {
            return share;
        }
        available -= length;
        remaining -= 1;
    }
    usize::MAX
}

fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requests(count: usize) -> Vec<RunRequest> {
        let request = |n: usize| {
            let mut request = crate::request::tests::request();
            request.volume_id = format!("c0ffee00-0000-4000-8000-{n:012}");
            request.pv_name = crate::names::pv_name(&request.volume_id);
            request.claim.name = format!("data-{n}");
            request.claim.uid = request.volume_id.clone();
            request
        };
        (0..count).map(request).collect()
    }

    /// Returns a member's environment: that of the run, overridden by the member's own variables.
    fn environment(split: &Split, member: usize) -> BTreeMap<String, String> {
        let mut env: BTreeMap<_, _> = split.common.iter().map(|p| (p.env(), p.value.clone())).collect();
        env.extend(read(&split.lines.join("\n")).unwrap()[member].clone());
        env
    }

    #[test]
    fn each_member_has_the_environment_of_its_own_run() {
        let mut requests = requests(3);
        requests[1].parameters.insert("iops".into(), "7\n\"$(PATH)\"".into());
        requests[2].parameters.remove("iops");
        let split = split(&requests);
        for (n, request) in requests.iter().enumerate() {
            let env = environment(&split, n);
            let own: BTreeMap<_, _> = request.properties().into_iter().map(|p| (p.env(), p.value)).collect();
            assert_eq!(env, own, "member {n}");
            assert_eq!(RunRequest::from_env(|name| env.get(name).cloned()).as_ref(), Ok(request), "member {n}");
        }
    }

    #[test]
    fn a_program_without_batches_finds_no_claim() {
        for count in [1, 2] {
            let split = split(&requests(count));
            let value = |name: &str| split.common.iter().find(|p| p.name == name).map(|p| p.value.as_str());
            assert_eq!(value("operation"), Some("batch"));
            assert_eq!((value("claim-uuid"), value("pv-name")), (None, None), "of {count}");
            assert_eq!(value("storage-class"), Some("silver"), "common properties exist once");
            let env: BTreeMap<_, _> = split.common.iter().map(|p| (p.env(), p.value.clone())).collect();
            let error = RunRequest::from_env(|name| env.get(name).cloned()).unwrap_err().to_string();
            assert!(error.contains("flex-pv each"), "{error}");
        }
        assert_eq!(split(&[]), Split { common: vec![], lines: vec![] });
    }

    #[test]
    fn a_list_is_read_as_a_whole_or_not_at_all() {
        let line = split(&requests(1)).lines[0].clone();
        assert_eq!(read(""), Err(BatchError::Empty));
        assert_eq!(read(&vec![line.as_str(); MAX_MEMBERS + 1].join("\n")), Err(BatchError::TooMany));
        for bad in ["", "{}", "[]", "{\"OPERATION\":\"provision\",\"CLAIM_UUID\":\"a\"}", &line[..line.len() - 1]] {
            assert_eq!(read(&format!("{line}\n{bad}\n{line}\n")), Err(BatchError::Line(2)), "{bad}");
        }
        assert_eq!(read(&format!("{line}\n")).unwrap().len(), 1);
    }

    #[test]
    fn outcomes_are_lines_after_their_mark() {
        let failed = |member, code, texts: &str| MemberFailure { member, code, message: texts.into() };
        let both = [failed(2, 75, "the array\nis  off"), failed(250, 1, "")];
        let text = write_outcomes(&both);
        assert_eq!(text, "flex-batch 1\n2 75 the array is off\n250 1 \n");
        assert_eq!(read_outcomes(&text), Some(vec![failed(2, 75, "the array is off"), failed(250, 1, "")]));
        assert_eq!(write_outcomes(&[]), "");
        for other in ["", "2 75 off", "flex-batch", "flex-batch 2\n2 75 off", "so\nflex-batch 1\n2 75 off"] {
            assert_eq!(read_outcomes(other), None, "{other:?}");
        }
        let text = "flex-batch 1\n0 75 a\n251 75 b\n3 0 c\n3 256 d\n-1 75\nx\n\n4 65";
        assert_eq!(read_outcomes(text), Some(vec![failed(4, 65, "")]));
    }

    #[test]
    fn short_messages_leave_their_space_to_long_ones() {
        assert_eq!(level(vec![], 10), usize::MAX);
        assert_eq!(level(vec![1, 2, 3], 6), usize::MAX);
        assert_eq!(level(vec![1, 9, 9], 11), 5);
        assert_eq!(level(vec![9, 9], 1), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The number and the code of each failed member arrive, however many fail and whatever they say.
        #[test]
        fn no_failure_is_lost(failures in proptest::collection::vec((1..=255i32, ".{0,60}"), 1..=MAX_MEMBERS)) {
            let failed: Vec<MemberFailure> = failures
                .into_iter()
                .enumerate()
                .map(|(n, (code, words))| MemberFailure { member: n + 1, code, message: words })
                .collect();
            let text = write_outcomes(&failed);
            prop_assert!(text.len() <= TERMINATION_MESSAGE);
            let read = read_outcomes(&text).unwrap();
            let numbers = |failed: &[MemberFailure]| failed.iter().map(|one| (one.member, one.code)).collect::<Vec<_>>();
            prop_assert_eq!(numbers(&read), numbers(&failed));
            for (read, output) in read.iter().zip(&failed) {
                prop_assert!(one_line(&output.message).starts_with(&read.message));
            }
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>()) {
            let _ = (read(&text), read_outcomes(&format!("{MARK} {VERSION}\n{text}")));
        }
    }
}

//! A check of the rules that the schema of a config uses, and of the regular expressions in it.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::str::Chars;

use serde_json::Value;

/// Words of a schema that say nothing about validity.
const NOTES: [&str; 7] = ["$schema", "$id", "title", "description", "default", "examples", "contentMediaType"];

/// Returns what is wrong with a value, each with its path.
///
/// # Panics
/// If the schema has a rule that is unknown here.
pub fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    find(schema, value, "", &mut found);
    found
}

fn find(schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(known) = schema.as_bool() {
        found.extend((!known).then(|| format!("{at}: is not known")));
        return;
    }
    for (rule, of_rule) in schema.as_object().expect("a schema is an object or a boolean") {
        let wrong = match rule.as_str() {
            "type" => {
                (!is_type(of_rule.as_str().unwrap(), value)).then(|| format!("is no {}", of_rule.as_str().unwrap()))
            }
            "const" => (of_rule != value).then(|| format!("is not {of_rule}")),
            "enum" => (!of_rule.as_array().unwrap().contains(value)).then(|| format!("is not one of {of_rule}")),
            "pattern" => value
                .as_str()
                .filter(|text| !matches(of_rule.as_str().unwrap(), text))
                .map(|_| format!("does not match {of_rule}")),
            "maxLength" => value
                .as_str()
                .filter(|text| text.chars().count() as u64 > of_rule.as_u64().unwrap())
                .map(|_| "is too long".into()),
            "maxProperties" => value
                .as_object()
                .filter(|fields| fields.len() as u64 > of_rule.as_u64().unwrap())
                .map(|_| "is too large".into()),
            "anyOf" => {
                let keeps = |one: &Value| problems(one, value).is_empty();
                (!of_rule.as_array().unwrap().iter().any(keeps)).then(|| format!("keeps none of {of_rule}"))
            }
            "if" => {
                if problems(of_rule, value).is_empty() {
                    find(&schema["then"], value, at, found);
                }
                None
            }
            "required" => {
                let lacks = |field: &&Value| value.is_object() && value.get(field.as_str().unwrap()).is_none();
                found.extend(
                    of_rule
                        .as_array()
                        .unwrap()
                        .iter()
                        .filter(lacks)
                        .map(|field| format!("{at}: lacks {}", field.as_str().unwrap())),
                );
                None
            }
            "properties" | "additionalProperties" | "propertyNames" => {
                find_in_fields(schema, rule, value, at, found);
                None
            }
            "then" => None,
            other => {
                assert!(NOTES.contains(&other), "the rule `{other}` is unknown here");
                None
            }
        };
        found.extend(wrong.map(|wrong| format!("{at}: {wrong}")));
    }
}

/// Checks each field of an object by one rule of the schema about fields.
fn find_in_fields(schema: &Value, rule: &str, value: &Value, at: &str, found: &mut Vec<String>) {
    for (field, inner) in value.as_object().into_iter().flatten() {
        let own = schema["properties"].get(field);
        let at = format!("{at}/{field}");
        match (rule, own) {
            ("properties", Some(own)) => find(own, inner, &at, found),
            ("additionalProperties", None) => find(&schema[rule], inner, &at, found),
            ("propertyNames", _) => find(&schema[rule], &Value::String(field.clone()), &at, found),
            _ => {}
        }
    }
}

fn is_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        other => panic!("the type `{other}` is unknown here"),
    }
}

/// A part of a regular expression.
enum Part {
    /// A character in one of these ranges.
    Class(Vec<(char, char)>),
    /// One of several ways, each a sequence of parts.
    Group(Vec<Vec<Part>>),
    /// A part, so many times.
    Repeat(Box<Part>, usize, usize),
    Begin,
    End,
}

/// Checks whether a regular expression matches somewhere in a text.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut chars = pattern.chars().peekable();
    let whole = group(&mut chars);
    assert_eq!(chars.next(), None, "{pattern} closes a group that it has not opened");
    let text: Vec<char> = text.chars().collect();
    !ends(&whole, &text, &(0..=text.len()).collect()).is_empty()
}

/// Returns the places where a part can end that begins at one of these places.
fn ends(part: &Part, text: &[char], begins: &BTreeSet<usize>) -> BTreeSet<usize> {
    let kept =
        |keep: &dyn Fn(usize) -> bool| begins.iter().copied().filter(|at| keep(*at)).collect::<BTreeSet<usize>>();
    match part {
        Part::Begin => kept(&|at| at == 0),
        Part::End => kept(&|at| at == text.len()),
        Part::Class(ranges) => {
            let is_in =
                |at: usize| text.get(at).is_some_and(|c| ranges.iter().any(|(low, high)| (low..=high).contains(&c)));
            kept(&is_in).into_iter().map(|at| at + 1).collect()
        }
        Part::Group(ways) => {
            let way = |parts: &Vec<Part>| parts.iter().fold(begins.clone(), |begins, part| ends(part, text, &begins));
            ways.iter().flat_map(way).collect()
        }
        Part::Repeat(part, least, most) => {
            let (mut now, mut all) = (begins.clone(), BTreeSet::new());
            for times in 0..=*most {
                if times >= *least && now.is_subset(&all) {
                    break;
                }
                if times >= *least {
                    all.extend(&now);
                }
                now = ends(part, text, &now);
            }
            all
        }
    }
}

/// Reads the ways of a group, up to its end.
fn group(chars: &mut Peekable<Chars<'_>>) -> Part {
    let mut ways = vec![Vec::new()];
    while let Some(c) = chars.next_if(|c| *c != ')') {
        let part = match c {
            '|' => {
                ways.push(Vec::new());
                continue;
            }
            '(' => {
                assert_eq!(
                    (chars.next(), chars.next()),
                    (Some('?'), Some(':')),
                    "only groups without numbers are known"
                );
                let inner = group(chars);
                assert_eq!(chars.next(), Some(')'), "a group does not end");
                inner
            }
            '[' => class(chars),
            '^' => Part::Begin,
            '$' => Part::End,
            '\\' => Part::Class(escaped(chars)),
            c => Part::Class(vec![(c, c)]),
        };
        let part = repeated(part, chars);
        ways.last_mut().expect("there is a way").push(part);
    }
    Part::Group(ways)
}

fn repeated(part: Part, chars: &mut Peekable<Chars<'_>>) -> Part {
    let (least, most) = match chars.peek() {
        Some('*') => (0, usize::MAX - 1),
        Some('+') => (1, usize::MAX - 1),
        Some('?') => (0, 1),
        Some('{') => {
            let text: String = chars.skip(1).take_while(|c| *c != '}').collect();
            let (least, most) = text.split_once(',').unwrap_or((text.as_str(), text.as_str()));
            return Part::Repeat(Box::new(part), least.parse().unwrap(), most.parse().unwrap());
        }
        _ => return part,
    };
    chars.next();
    Part::Repeat(Box::new(part), least, most)
}

/// Reads a class of characters after its bracket.
fn class(chars: &mut Peekable<Chars<'_>>) -> Part {
    let mut ranges = Vec::new();
    loop {
        match chars.next().expect("a class ends") {
            ']' => return Part::Class(ranges),
            '\\' => ranges.extend(escaped(chars)),
            low => {
                let mut ahead = chars.clone();
                match (ahead.next(), ahead.next()) {
                    (Some('-'), Some(high)) if high != ']' => {
                        *chars = ahead;
                        ranges.push((low, high));
                    }
                    _ => ranges.push((low, low)),
                }
            }
        }
    }
}

/// Reads the characters of an escape after its backslash.
fn escaped(chars: &mut Peekable<Chars<'_>>) -> Vec<(char, char)> {
    match chars.next().expect("an escape has a character") {
        's' => vec![('\t', '\r'), (' ', ' ')],
        'S' => vec![('\0', '\u{8}'), ('\u{e}', '\u{1f}'), ('!', char::MAX)],
        't' => vec![('\t', '\t')],
        'n' => vec![('\n', '\n')],
        'r' => vec![('\r', '\r')],
        c if c.is_ascii_alphanumeric() => panic!("the escape \\{c} is unknown here"),
        c => vec![(c, c)],
    }
}

#[test]
fn the_check_of_patterns_knows_what_they_use() {
    for (pattern, good, wrong) in [
        ("^(?:a|bc)*$", &["", "a", "abcbc"][..], &["b", "ac"][..]),
        ("^[a-c-]{1,2}$", &["a", "c-"], &["", "abc", "d"]),
        ("^a?\\.b+$", &["a.b", ".bbb"], &["ab", "a."]),
        ("b[0-9]{2}", &["ab12c"], &["b1"]),
        ("^[\\s\\S]*$", &["", "a\nb \u{fc}"], &[]),
    ] {
        assert!(good.iter().all(|text| matches(pattern, text)), "{pattern}");
        assert!(!wrong.iter().any(|text| matches(pattern, text)), "{pattern}");
    }
}

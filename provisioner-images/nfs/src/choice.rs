//! The choice of the export for a volume, by what the exports say. The functions are pure.
//!
//! A volume stays on the export that has its record. A new one goes to the export with the most free bytes, and to the
//! next one if that fails. Each export that answers gets a note first, which names the export where the volume is
//! begun. So a later run returns there, although that export may be away by then.
//!
//! A copy is on the export of its source.

use flex_contract::exit;
use flex_image_kit::Failure;

/// The answer of an export about a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Whether a run has begun the volume there.
    pub has: bool,
    /// The free bytes.
    pub free: u64,
    /// The export where the volume was begun, by the note.
    pub begun_at: Option<usize>,
    /// The other exports that may have a leftover, by the notes.
    pub noted: Vec<usize>,
}

/// The exports for a volume, by their number in the config.
#[derive(Debug, PartialEq, Eq)]
pub enum Choice {
    /// The volume may be on this export, which does not answer.
    WaitFor(usize),
    /// The exports in the order in which they are tried.
    Try {
        /// The exports.
        order: Vec<usize>,
        /// Whether a run has begun the volume on the first of them.
        is_begun: bool,
        /// The others that may have a leftover of an earlier run.
        left: Vec<usize>,
    },
}

/// Chooses the export of a copy: the first one that has the source. `found` has the answer of each export that was
/// asked, and `away` is the failure of one that could not be asked.
///
/// Only if each export says that it lacks the source, nobody has it. Otherwise a later run may find the source.
pub fn of_data_source(found: Vec<Result<(), Failure>>, away: Result<(), Failure>) -> Result<usize, Failure> {
    if let Some(n) = found.iter().position(Result::is_ok) {
        return Ok(n);
    }
    away?;
    let (refused, unknown): (Vec<_>, Vec<_>) =
        found.into_iter().filter_map(Result::err).partition(|failure| failure.code == exit::DATAERR);
    if let Some(failure) = unknown.into_iter().next() {
        return Err(failure);
    }
    // The reader does not know which of the exports should have had the source.
    let all: Vec<String> = refused.into_iter().map(|failure| failure.message).collect();
    Err(Failure::never(all.join("; ")))
}

/// Chooses the exports for a volume. `answers` has `None` for each export that gives no answer.
pub fn choose(answers: &[Option<Answer>], is_first_attempt: bool) -> Choice {
    let there = || answers.iter().enumerate().filter_map(|(n, answer)| Some((n, answer.as_ref()?)));
    let mut begun: Option<usize> = None;
    for (n, answer) in there().filter(|(_, answer)| answer.has) {
        // A run that did not reach the one has chosen the other, and noted that.
        if begun.is_none_or(|former| answer.noted.contains(&former)) {
            begun = Some(n);
        }
    }
    let named: Vec<usize> = there().filter_map(|(_, answer)| answer.begun_at).collect();
    let is_away = |n: &usize| answers[*n].is_none();
    if let Some(away) = named.iter().copied().find(is_away).filter(|_| begun.is_none()) {
        return Choice::WaitFor(away);
    }
    let mut order: Vec<(usize, u64)> =
        there().filter(|(_, answer)| !answer.has).map(|(n, answer)| (n, answer.free)).collect();
    order.sort_by_key(|(_, free)| std::cmp::Reverse(*free));
    let order = begun.into_iter().chain(order.into_iter().map(|(n, _)| n)).collect();
    // Before the first attempt no run has begun anything. No deletion needs to wait for an export that was away.
    let may_have = |n: &usize| match &answers[*n] {
        Some(answer) => answer.has && Some(*n) != begun,
        None => !is_first_attempt || named.contains(n),
    };
    Choice::Try { order, is_begun: begun.is_some(), left: (0..answers.len()).filter(may_have).collect() }
}

/// Returns the failure of a run that no export serves, from the failure of each export.
///
/// The claim is refused permanently only if each export refuses it so. Otherwise a later run may find an export that
/// serves it.
pub fn of_failures<'a>(failed: impl Iterator<Item = (String, &'a Failure)>) -> Failure {
    let (mut codes, mut texts) = (Vec::new(), Vec::new());
    for (location, failure) in failed {
        codes.push(failure.code);
        let says_where = failure.message.contains(&location);
        texts.push(if says_where { failure.message.clone() } else { format!("on {location}, {}", failure.message) });
    }
    match codes.first() {
        None => Failure::retry("no export serves this run"),
        Some(first) => {
            let code = if codes.iter().all(|code| code == first) { *first } else { exit::TEMPFAIL };
            Failure { code, message: texts.join("; ") }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(has: bool, free: u64) -> Option<Answer> {
        Some(Answer { has, free, ..Answer::default() })
    }

    #[test]
    fn a_source_is_lost_only_if_each_export_says_so() {
        let not_here = |name: &str| Err(Failure::never(format!("not on {name}")));
        let fails = || Err(Failure::retry("fails"));
        let unusable = || Err(Failure::config("unusable"));
        for (found, away, expected) in [
            (vec![Ok(()), not_here("b")], Ok(()), Ok(0)),
            (vec![not_here("a"), Ok(())], Ok(()), Ok(1)),
            (vec![fails(), Ok(())], fails(), Ok(1)),
            (vec![not_here("a"), fails()], Ok(()), Err((75, "fails"))),
            (vec![fails(), not_here("b")], Ok(()), Err((75, "fails"))),
            (vec![not_here("a"), unusable()], Ok(()), Err((78, "unusable"))),
            (vec![not_here("a")], fails(), Err((75, "fails"))),
            (vec![not_here("a"), not_here("b")], Ok(()), Err((65, "not on a; not on b"))),
        ] {
            let shown = format!("{found:?} {away:?}");
            let chosen = of_data_source(found, away).map_err(|failure| (failure.code, failure.message));
            assert_eq!(chosen, expected.map_err(|(code, text): (i32, &str)| (code, text.to_owned())), "{shown}");
        }
    }

    #[test]
    fn a_claim_is_refused_permanently_only_if_each_export_refuses_it() {
        let taken = || Failure::never("the directory is taken");
        for (failed, code, message) in [
            (vec![], 75, "no export serves this run"),
            (vec![taken(), taken()], 65, "on a:/x, the directory is taken; on b:/x, the directory is taken"),
            (vec![taken(), Failure::retry("b:/x is full")], 75, "on a:/x, the directory is taken; b:/x is full"),
            (vec![Failure::config("a:/x: no"), Failure::permission("b:/x: no")], 75, "a:/x: no; b:/x: no"),
        ] {
            let locations = ["a:/x", "b:/x"].map(str::to_owned);
            let failure = of_failures(locations.into_iter().zip(&failed));
            assert_eq!((failure.code, failure.message.as_str()), (code, message));
        }
    }

    fn begun_at(n: usize, has: bool) -> Option<Answer> {
        Some(Answer { has, begun_at: Some(n), ..Answer::default() })
    }

    fn tried(order: &[usize], is_begun: bool, left: &[usize]) -> Choice {
        Choice::Try { order: order.to_vec(), is_begun, left: left.to_vec() }
    }

    #[test]
    fn a_new_volume_tries_the_export_with_the_most_free_bytes_first() {
        let answers = [answer(false, 1), answer(false, 3), None, answer(false, 3)];
        assert_eq!(choose(&answers, true), tried(&[1, 3, 0], false, &[]));
        assert_eq!(choose(&answers, false), tried(&[1, 3, 0], false, &[2]), "an earlier attempt may have begun there");
        assert_eq!(choose(&[None, None], true), tried(&[], false, &[]));
    }

    #[test]
    fn a_begun_volume_stays_where_it_is() {
        assert_eq!(choose(&[answer(false, 9), answer(true, 1)], false), tried(&[1, 0], true, &[]));
        assert_eq!(choose(&[begun_at(0, false), begun_at(0, true)], false), tried(&[1, 0], true, &[]));
        let noted = Some(Answer { noted: vec![0], ..answer(true, 0).unwrap() });
        assert_eq!(choose(&[answer(true, 9), noted.clone()], false), tried(&[1], true, &[0]));
        assert_eq!(choose(&[answer(true, 9), answer(true, 0)], false), tried(&[0], true, &[1]));
        assert_eq!(choose(&[None, answer(true, 0)], true), tried(&[1], true, &[]));
    }

    #[test]
    fn a_volume_that_was_begun_on_an_export_that_is_away_waits_for_it() {
        for is_first in [true, false] {
            assert_eq!(choose(&[None, begun_at(0, false)], is_first), Choice::WaitFor(0));
            assert_eq!(choose(&[None, begun_at(0, true)], is_first), tried(&[1], true, &[0]), "it went on here");
        }
        assert_eq!(choose(&[answer(false, 0), begun_at(0, false)], false), tried(&[0, 1], false, &[]), "it was undone");
    }
}

//! Decides how long a script is kept: a pure function of the objects that name it.
//!
//! The [rules](Rule) say when it takes which step. An object *names* a script if its effective config has the script's
//! hash. Effective configs are in versions of configs, and in the provenance of volumes and of VolumeSnapshotContents.
//! Claims and Jobs name versions of configs, which are kept as long.

use strum::{EnumMessage, IntoStaticStr, VariantArray};

use crate::rules::{self, Rule as _};

/// The time for which nobody must have named a script before it is deleted, in seconds: a week. Somebody may delete a
/// volume and restore it from a backup, and its script then deletes its storage. A script is at most 64 KiB.
pub const UNNAMED_TTL: i64 = 7 * 24 * 3600;

/// The observation on which the decision rests. All times are in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The time at which the script was stored.
    pub created: i64,
    /// A version of a config names the script, or the config itself has it now.
    pub is_named_by_config: bool,
    /// A volume or a VolumeSnapshotContent names the script.
    pub is_named_by_storage: bool,
    /// The time since when this process has seen nobody name the script.
    pub unnamed_since: Option<i64>,
}

/// The next step for a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// Keeps the script.
    #[default]
    Keep,
    /// Remembers that nobody names the script now.
    Remember,
    /// Deletes the script, if the API confirms that nobody names it.
    Delete,
}

/// The rules of a kept script, in their order: the first that holds applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr, VariantArray)]
pub enum Rule {
    /// A version of a config has the script. Keeps it.
    NamedByConfig,
    /// A volume or a VolumeSnapshotContent was made by the script. Keeps it for the deletion.
    NamedByStorage,
    /// The script was stored less than 7 days ago, and the first object that names it may not be visible yet.
    /// Keeps it.
    YoungScript,
    /// Nobody names the script, and this process sees that for the first time. Remembers the time.
    UnnamedScript,
    /// Nobody has named the script for less than 7 days. Keeps it.
    UnnamedNotLong,
    /// Nobody has named the script for 7 days. Deletes it.
    UnnamedLong,
}

rules::table!(Rule, Step, "script");

/// A decision about a kept script.
pub type Decision = rules::Decision<Rule>;

/// Decides whether a script is kept.
pub fn decide(o: &Observed, now: i64) -> Decision {
    if o.is_named_by_config {
        return Rule::NamedByConfig.nothing();
    }
    if o.is_named_by_storage {
        return Rule::NamedByStorage.nothing();
    }
    if now - o.created < UNNAMED_TTL {
        return Rule::YoungScript.nothing().requeue_at(o.created + UNNAMED_TTL);
    }
    match o.unnamed_since {
        None => Rule::UnnamedScript.step(Step::Remember).requeue_at(now + UNNAMED_TTL),
        Some(since) if now - since < UNNAMED_TTL => Rule::UnnamedNotLong.nothing().requeue_at(since + UNNAMED_TTL),
        Some(_) => Rule::UnnamedLong.step(Step::Delete),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNNAMED: Observed =
        Observed { created: 0, is_named_by_config: false, is_named_by_storage: false, unnamed_since: None };

    #[test]
    fn a_script_that_somebody_names_is_kept_however_old_it_is() {
        for since in [None, Some(0)] {
            let of_config = Observed { is_named_by_config: true, unnamed_since: since, ..UNNAMED };
            assert_eq!(decide(&of_config, i64::MAX / 2), Rule::NamedByConfig.nothing());
            let of_volume = Observed { is_named_by_storage: true, unnamed_since: since, ..UNNAMED };
            assert_eq!(decide(&of_volume, i64::MAX / 2), Rule::NamedByStorage.nothing());
        }
    }

    #[test]
    fn an_unnamed_script_is_deleted_after_some_time() {
        let young = Observed { created: 1000, ..UNNAMED };
        let (old, later) = (1000 + UNNAMED_TTL, 1000 + 2 * UNNAMED_TTL);
        assert_eq!(decide(&young, old - 1), Rule::YoungScript.nothing().requeue_at(old));
        assert_eq!(decide(&young, old), Rule::UnnamedScript.step(Step::Remember).requeue_at(later));
        let seen = Observed { unnamed_since: Some(old), ..young };
        assert_eq!(decide(&seen, later - 1), Rule::UnnamedNotLong.nothing().requeue_at(later));
        assert_eq!(decide(&seen, later), Rule::UnnamedLong.step(Step::Delete));
    }

    #[test]
    fn a_clock_that_goes_back_deletes_nothing() {
        let later = Observed { created: 1000, unnamed_since: Some(2 * UNNAMED_TTL), ..UNNAMED };
        assert_eq!(decide(&later, 500).rule, Rule::YoungScript);
        assert_eq!(decide(&later, 1500 + UNNAMED_TTL).rule, Rule::UnnamedNotLong);
    }

    #[test]
    fn the_documentation_says_the_time() {
        for rule in [Rule::YoungScript, Rule::UnnamedNotLong, Rule::UnnamedLong] {
            assert!(
                rule.documentation().contains(&format!("{} days", UNNAMED_TTL / 86_400)),
                "{}",
                rule.documentation()
            );
        }
    }
}

//! The check whether the histories have led the orchestrator through each step of its decisions.

use flex_provisioner::{claim, snapshot, volume};
use strum::VariantNames;

/// Those of a volume that are steps of its own parts.
const ACTIONS: [&str; 2] = ["Expand", "Modify"];

/// Every step, as a trace names it. That its size or its attributes need nothing is no step of a volume.
pub fn steps() -> Vec<String> {
    let named =
        |kind: &'static str, names: &'static [&'static str]| names.iter().map(move |name| format!("{kind} {name}"));
    let own = |name: &String| ACTIONS.iter().all(|part| *name != format!("volume {part}"));
    let part = |name: &String| !name.ends_with(" Nothing");
    named("claim", claim::decide::Step::VARIANTS)
        .chain(named("volume", volume::decide::Step::VARIANTS).filter(own))
        .chain(named("volume Expand", volume::expand::Step::VARIANTS).filter(part))
        .chain(named("volume Modify", volume::modify::Step::VARIANTS).filter(part))
        .chain(named("snapshot", snapshot::bind::Step::VARIANTS))
        .chain(named("content", snapshot::decide::Step::VARIANTS))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::first_words;

    #[test]
    fn names_are_what_a_trace_says() {
        let steps = steps();
        let grow = volume::decide::Step::Expand(volume::expand::Step::Grow { size: 1 });
        for (kind, texts) in [
            ("claim", first_words(&claim::decide::Step::StartRun)),
            ("volume", first_words(&volume::decide::Step::DeleteVolume)),
            ("volume", first_words(&grow)),
            ("snapshot", first_words(&snapshot::bind::Step::RemoveFinalizer)),
            ("content", first_words(&snapshot::decide::Step::DeleteContent)),
        ] {
            let name = format!("{kind} {texts}");
            assert!(steps.contains(&name), "{name} is not among {steps:?}");
        }
        assert_eq!(first_words(&grow), "Expand Grow");
    }
}

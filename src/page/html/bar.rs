//! The bar of a claim or run: who worked for how long.

use maud::{Markup, html};

use super::span;
use crate::page::model::claims::{NextStage, StageRow};

/// The width of a bar in its own units.
const WIDTH: i64 = 1000;
/// The smallest width of a stage that took some time.
const MIN_WIDTH: i64 = 6;

/// The times that a bar shows, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar<'a> {
    /// The stages that were reached.
    pub stages: &'a [StageRow],
    /// The stage that somebody works for now.
    pub open: Option<NextStage>,
    /// The time that the whole bar stands for.
    pub whole: i64,
}

/// A part of a bar.
struct Part {
    class: &'static str,
    from: i64,
    width: i64,
}

/// The colour of the party that works until a stage.
fn colour(stage: &str) -> &'static str {
    match stage {
        "stamped" | "job-created" | "adopted" => "orchestrator",
        "scheduled" => "scheduler",
        "started" => "kubelet",
        "volume-created" | "ended" => "image",
        "failed" => "failed",
        _ => "controller",
    }
}

/// Returns the colours with their parties.
pub(super) fn legend() -> Markup {
    let parties = [
        ("orchestrator", "orchestrator"),
        ("scheduler", "scheduler"),
        ("kubelet", "kubelet"),
        ("image", "image"),
        ("controller", "PV controller"),
        ("failed", "failed"),
    ];
    html! {
        ul class="legend" aria-label="Colours of the bars" {
            @for (class, text) in parties { li { svg class="bar dot" viewBox="0 0 10 10" aria-hidden="true" { rect class=(class) width="10" height="10" rx="3" {} } (text) } }
        }
    }
}

impl Bar<'_> {
    /// Divides the bar among the stages and the time since the last.
    fn parts(&self) -> Vec<Part> {
        let whole = self.whole.max(1);
        let scale = |ms: i64| {
            i64::try_from(i128::from(ms.clamp(0, whole)) * i128::from(WIDTH) / i128::from(whole)).unwrap_or(0)
        };
        let part = |class, from: i64, to: i64| {
            let from = scale(from).min(WIDTH - MIN_WIDTH);
            Part { class, from, width: (scale(to) - from).max(MIN_WIDTH) }
        };
        let reached = self.stages.iter().filter(|stage| stage.took_ms > 0);
        let mut parts: Vec<_> = reached
            .map(|stage| part(colour(stage.stage), stage.after_ms.saturating_sub(stage.took_ms), stage.after_ms))
            .collect();
        if let Some(next) = self.open.filter(|next| next.for_ms > 0) {
            parts.push(part(colour(next.stage), self.whole.saturating_sub(next.for_ms), self.whole));
        }
        // Kubernetes tells most times in whole seconds, so that a short attempt seems to have taken no time.
        if parts.is_empty() {
            parts.extend(self.stages.last().map(|last| part(colour(last.stage), last.after_ms, last.after_ms)));
        }
        parts
    }

    /// Draws the bar, with its stages as text for those who do not see it.
    pub(super) fn draw(&self) -> Markup {
        let stages = self.stages.iter().map(|stage| format!("{} {}", stage.stage, span(stage.took_ms)));
        let open = self.open.iter().map(|next| format!("then {} for {} until now", next.stage, span(next.for_ms)));
        let text = stages.chain(open).collect::<Vec<_>>().join(", ");
        html! {
            svg class="bar" viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" role="img" aria-label=(text) {
                title { (text) }
                @for Part { class, from, width } in self.parts() { rect class=(class) x=(from) width=(width) height="10" {} }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_divided_by_time_and_never_wider_than_itself() {
        let stage = |(stage, after_ms, took_ms): &(&'static str, i64, i64)| StageRow {
            stage,
            after_ms: *after_ms,
            took_ms: *took_ms,
            worker: "",
        };
        let open = Some(NextStage { stage: "started", worker: "", for_ms: 500 });
        for (what, whole, stages, open, expected) in [
            ("half and half", 1000, vec![("stamped", 500, 500)], open, vec![(0, 500), (500, 500)]),
            ("nothing yet", 0, vec![], None, vec![]),
            ("no time", 0, vec![("stamped", 0, 0)], None, vec![(0, 6)]),
            ("a short one is seen", 1_000_000, vec![("bound", 1_000_000, 1)], None, vec![(994, 6)]),
            ("a wrong clock", 10, vec![("bound", 99, 99)], None, vec![(0, 1000)]),
            ("extreme", i64::MAX, vec![("bound", i64::MAX, i64::MAX)], None, vec![(0, 1000)]),
        ] {
            let stages: Vec<_> = stages.iter().map(stage).collect();
            let parts = Bar { stages: &stages, open, whole }.parts();
            let found: Vec<_> = parts.iter().map(|part| (part.from, part.width)).collect();
            assert_eq!(found, expected, "{what}");
            assert!(found.iter().all(|(from, width)| from + width <= WIDTH), "{what}");
        }
    }
}

//! The trace of a history: events are always counted, and written down only for a reader.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// The trace of one history.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Whether lines are kept.
    pub on: bool,
    /// The lines.
    pub lines: Vec<String>,
    /// How often each event happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// The time of the next lines.
    pub millis: u64,
}

thread_local! {
    static TRACE: RefCell<Trace> = RefCell::default();
}

/// Begins a trace.
pub fn begin(on: bool) {
    TRACE.with(|trace| *trace.borrow_mut() = Trace { on, ..Trace::default() });
}

/// Ends the trace.
pub fn end() -> Trace {
    TRACE.with(|trace| std::mem::take(&mut *trace.borrow_mut()))
}

/// Returns whether lines are kept.
pub fn is_on() -> bool {
    TRACE.with(|trace| trace.borrow().on)
}

/// Sets the time of the following lines.
pub fn at(millis: u64) {
    TRACE.with(|trace| trace.borrow_mut().millis = millis);
}

/// Counts an event.
pub fn count(what: &'static str) {
    TRACE.with(|trace| *trace.borrow_mut().counts.entry(what).or_default() += 1);
}

/// Writes a line, if lines are kept.
pub fn line(text: impl FnOnce() -> String) {
    if is_on() {
        let text = text();
        TRACE.with(|trace| {
            let mut trace = trace.borrow_mut();
            let line = format!("{:>9.3}  {text}", trace.millis as f64 / 1000.0);
            trace.lines.push(line);
        });
    }
}

/// Writes down what the orchestrator says. One for the whole process; each thread has its own trace.
#[derive(Debug)]
pub struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let ours = metadata.target().starts_with("flex_provisioner");
        ours && *metadata.level() <= Level::DEBUG && is_on()
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> tracing::subscriber::Interest {
        match metadata.target().starts_with("flex_provisioner") {
            true => tracing::subscriber::Interest::sometimes(),
            false => tracing::subscriber::Interest::never(),
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = Said(String::new());
        event.record(&mut said);
        line(|| format!("    {}{}", event.metadata().level().as_str().to_lowercase(), said.0));
    }
}

struct Said(String);

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = format!("{value:?}");
        if text.len() > 400 {
            text = text.chars().take(400).collect::<String>() + "…";
        }
        let _ = write!(self.0, " {}={text}", field.name());
    }
}

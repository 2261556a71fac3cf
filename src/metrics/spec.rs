//! The form of the table of metrics: from it follow the fields, their registration and their documentation.

use std::fmt;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::age::Age;

/// A metric, with its documentation.
#[derive(Clone, Copy, Debug)]
pub struct MetricSpec {
    /// The name, without the suffix of counters.
    pub name: &'static str,
    /// The meaning, as lines of Markdown.
    pub doc: &'static [&'static str],
    /// Its type.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
}

impl MetricSpec {
    /// Returns the name of the metric in Prometheus.
    pub fn exposed(&self) -> String {
        match self.kind {
            MetricKind::Counter => format!("{}_total", self.name),
            MetricKind::Gauge | MetricKind::Histogram => self.name.to_owned(),
        }
    }
}

/// Returns the help of a metric: its documentation in one line, without its full stop, which the registry adds.
pub(super) fn help(doc: &[&str]) -> String {
    let lines: Vec<&str> = doc.iter().map(|line| line.trim()).collect();
    lines.join(" ").trim_end_matches('.').to_owned()
}

/// The types of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // As Prometheus calls them.
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl fmt::Display for MetricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        })
    }
}

/// A set of labels.
pub(super) trait Labels {
    /// Their names.
    const NAMES: &'static [&'static str];
}

/// A metric, as its type describes it.
pub(super) trait Measured {
    /// The type of metric.
    const KIND: MetricKind;
    /// The names of its labels.
    const LABELS: &'static [&'static str] = &[];
}

impl<N, A> Measured for Counter<N, A> {
    const KIND: MetricKind = MetricKind::Counter;
}

impl<N, A> Measured for Gauge<N, A> {
    const KIND: MetricKind = MetricKind::Gauge;
}

impl Measured for Histogram {
    const KIND: MetricKind = MetricKind::Histogram;
}

impl Measured for Age {
    const KIND: MetricKind = MetricKind::Gauge;
}

impl<L: Labels, M: Measured> Measured for Family<L, M> {
    const KIND: MetricKind = M::KIND;
    const LABELS: &'static [&'static str] = L::NAMES;
}

/// Declares sets of labels.
macro_rules! labels {
    ($($set:ident { $($label:ident: $type:ty),+ })*) => {
        $(
            #[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
            struct $set {
                $($label: $type),+
            }

            impl Labels for $set {
                const NAMES: &'static [&'static str] = &[$(stringify!($label)),+];
            }
        )*
    };
}

/// Declares [`Metrics`](super::Metrics): a field for each metric, with its comment as help.
macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $vis:vis $field:ident: $type:ty = $name:literal $(, made by $made:expr)?;)*) => {
        /// The metrics of the orchestrator.
        #[derive(Clone)]
        pub struct Metrics {
            registry: Arc<Registry>,
            $($(#[doc = $doc])+ $vis $field: $type,)*
        }

        impl Metrics {
            /// All metrics, in the order of their documentation.
            pub const ALL: &[MetricSpec] = &[$(MetricSpec {
                name: $name,
                doc: &[$($doc),+],
                kind: <$type as Measured>::KIND,
                labels: <$type as Measured>::LABELS,
            }),*];

            /// Makes all metrics, and registers them.
            fn registered(mut registry: Registry) -> Self {
                $(
                    let $field: $type = metrics!(@made $($made)?);
                    registry.register($name, help(&[$($doc),+]), $field.clone());
                )*
                Metrics { registry: Arc::new(registry), $($field),* }
            }
        }

        impl Default for Metrics {
            /// Makes the metrics of an orchestrator without a name.
            fn default() -> Self {
                Metrics::registered(Registry::default())
            }
        }
    };
    (@made) => { Default::default() };
    (@made $made:expr) => { $made };
}

pub(super) use {labels, metrics};

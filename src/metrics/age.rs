//! The time since an event, as a metric.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;

/// A gauge of the seconds since an event. It is measured at each scrape, with the clock of this process alone. Without an
/// event it has no value. Clones are the same gauge.
#[derive(Clone, Debug, Default)]
pub struct Age(Arc<Mutex<Option<Instant>>>);

impl Age {
    fn event(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().expect("no code panics while it holds the age")
    }

    /// Notes an event.
    pub fn begin(&self, at: Instant) {
        *self.event() = Some(at);
    }

    /// Forgets the event.
    pub fn forget(&self) {
        *self.event() = None;
    }

    /// Returns the time since the event.
    pub fn get(&self) -> Option<Duration> {
        self.event().map(|at| at.elapsed())
    }
}

impl EncodeMetric for Age {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        self.get().map_or(Ok(()), |age| encoder.encode_gauge(&age.as_secs_f64()))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

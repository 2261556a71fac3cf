//! The spans of claims: a trace for each claim, a span for each attempt, and a span for each stage.
//!
//! The ids follow from the UID of the claim. So a repeated export sends the same trace again.

use flex_core::claim::failed_attempts::FailedAttempt;
use flex_core::claim::timeline::{Reached, Timeline};
use flex_core::object::hash;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};

use super::ended::Ended;

/// The name of the span of a claim.
const CLAIM: &str = "provision volume";
/// The name of the span of an attempt.
const ATTEMPT: &str = "attempt";
/// The name of the span for a volume that was ready before the claim was created.
const POOLED: &str = "take pooled volume";

/// Returns the request for spans, as the orchestrator `instance` sends it.
pub(super) fn request(spans: Vec<Span>, instance: &str) -> ExportTraceServiceRequest {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let attributes = vec![
        text("service.name", "flex-provisioner"),
        text("service.version", &version),
        text("flex_provisioner.instance", instance),
    ];
    let resource = Resource { attributes, ..Resource::default() };
    let scope =
        InstrumentationScope { name: "flex-provisioner".to_owned(), version, ..InstrumentationScope::default() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, schema_url: String::new() }];
    let resource_spans = vec![ResourceSpans { resource: Some(resource), scope_spans, schema_url: String::new() }];
    ExportTraceServiceRequest { resource_spans }
}

/// Returns the spans of claims.
pub(super) fn spans(claims: &[Ended]) -> Vec<Span> {
    claims.iter().flat_map(of_claim).collect()
}

/// Returns the spans of a claim. The span of the claim itself exists when the claim is bound: until then its end is not
/// known.
fn of_claim(ended: &Ended) -> Vec<Span> {
    let trace = Trace { ended };
    let created = begin(ended);
    let unsent = ended.failed.since(created).filter(|(failed, _)| failed.number() > ended.sent);
    let mut spans: Vec<Span> =
        unsent.flat_map(|(failed, since)| trace.attempt(&failed.timeline, since, Some(failed))).collect();
    if let Some(bound) = &ended.bound {
        let since = ended.failed.kept().last().map_or(created, FailedAttempt::ended);
        spans.extend(trace.attempt(bound, Some(since), None));
        spans.push(trace.whole(created, bound.ended()));
    }
    spans
}

/// Returns the time when a claim was created, in milliseconds since 1970. The first attempt knows it best.
fn begin(ended: &Ended) -> i64 {
    let first = ended.failed.kept().first().map(|failed| &failed.timeline);
    first.or(ended.bound.as_ref()).map_or(0, |timeline| timeline.created)
}

/// The trace of a claim.
#[derive(Clone, Copy)]
struct Trace<'a> {
    ended: &'a Ended,
}

impl Trace<'_> {
    /// Returns the span of the claim, which all others belong to.
    fn whole(self, from: i64, to: i64) -> Span {
        let mut span = self.span("claim", CLAIM, from, to);
        span.parent_span_id = Vec::new();
        span.attributes.push(number("flex_provisioner.attempts.failed", self.failures()));
        span
    }

    fn failures(self) -> i64 {
        i64::from(self.ended.failed.left_out()).saturating_add(self.ended.failed.kept().len().try_into().unwrap_or(0))
    }

    /// Returns the spans of an attempt. Its first stage, the stamp, ends the time since `since` when nobody worked on the
    /// claim: the attempt begins with it.
    fn attempt(self, timeline: &Timeline, since: Option<i64>, failed: Option<&FailedAttempt>) -> Vec<Span> {
        let stages = timeline.stages_since(since.unwrap_or(timeline.created));
        let [first, rest @ ..] = stages.as_slice() else { return Vec::new() };
        let at = |after: i64| timeline.created.saturating_add(after);
        let key = format!("attempt {}", timeline.attempt);
        // A pooled volume has no stage but the binding.
        let (name, from) = match rest {
            [] => (if timeline.attempt == 0 { POOLED } else { ATTEMPT }, at(first.after - first.took)),
            _ => (ATTEMPT, at(first.after)),
        };
        let mut whole = self.span(&key, name, from, timeline.ended());
        whole.attributes.push(number("flex_provisioner.attempt", timeline.attempt.into()));
        if let Some(FailedAttempt { reason, message, .. }) = failed {
            whole.attributes.push(text("error.type", reason));
            whole.status = Some(Status { code: StatusCode::Error.into(), message: format!("{reason}: {message}") });
        }
        let of_stage = |reached: &Reached| {
            let Reached { stage, after, took } = *reached;
            let mut span = self.span(&format!("{key} {}", stage.name()), stage.name(), at(after - took), at(after));
            span.attributes.push(number("flex_provisioner.attempt", timeline.attempt.into()));
            span.attributes.push(text("flex_provisioner.worker", stage.worker()));
            span
        };
        let wait = since.filter(|_| !rest.is_empty()).map(|_| of_stage(first));
        let parent = whole.span_id.clone();
        let stages = rest.iter().map(|reached| Span { parent_span_id: parent.clone(), ..of_stage(reached) });
        let stages: Vec<_> = stages.collect();
        wait.into_iter().chain([whole]).chain(stages).collect()
    }

    /// Returns a span below the span of the claim. `key` is unique in the trace. The times are milliseconds since 1970.
    fn span(self, key: &str, name: &str, from: i64, to: i64) -> Span {
        let claim = &self.ended.claim;
        let mut attributes = vec![
            text("k8s.namespace.name", &claim.name.namespace),
            text("k8s.persistentvolumeclaim.name", &claim.name.name),
            text("k8s.persistentvolumeclaim.uid", &claim.uid),
        ];
        attributes.extend(claim.class.as_deref().map(|class| text("k8s.storageclass.name", class)));
        let volume = claim.volume_name.as_deref().filter(|_| claim.is_bound());
        attributes.extend(volume.map(|volume| text("k8s.persistentvolume.name", volume)));
        Span {
            trace_id: self.ended.uid.as_bytes().to_vec(),
            span_id: self.id(key),
            parent_span_id: self.id("claim"),
            name: name.to_owned(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: nanoseconds(from),
            end_time_unix_nano: nanoseconds(to),
            attributes,
            ..Span::default()
        }
    }

    /// Returns the id of a span, of 8 bytes.
    fn id(self, key: &str) -> Vec<u8> {
        let digest = hash(format!("{}/{key}", self.ended.uid).as_bytes());
        u64::from_str_radix(&digest, 16).unwrap_or(1).max(1).to_be_bytes().to_vec()
    }
}

fn nanoseconds(milliseconds: i64) -> u64 {
    u64::try_from(milliseconds).unwrap_or(0).saturating_mul(1_000_000)
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

#[cfg(test)]
#[path = "spans_tests.rs"]
mod tests;

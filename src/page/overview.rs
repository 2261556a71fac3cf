//! The overview of `status --watch`, as JSON. Many people may watch at once, and each asks every second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flex_core::config::classes::ClassLookup;
use tokio::sync::Mutex;

use super::sources::Sources;
use crate::overview::collect::{Scope, overview_in_parts};
use crate::overview::{ClassRow, OVERVIEW_PATH};

/// The open claims in an answer, at most.
const CLAIMS: usize = 100;
/// The shortest time between two overviews of the same classes. People see no difference.
const SHORTEST: Duration = Duration::from_millis(900);
/// The part of a processor that all overviews together take at most: one of so many.
const SHARE: u32 = 20;
/// The time for which an answer that nobody asks for again counts among all overviews.
const COUNTS: Duration = Duration::from_secs(60);

/// The last overviews, by class; `None` for that of all classes.
#[derive(Default)]
struct Latest(Mutex<BTreeMap<Option<String>, Answer>>);

/// An overview as JSON.
#[derive(Clone)]
struct Answer {
    /// The time at which it began, by the clock of the process.
    began: Duration,
    /// How long it took.
    took: Duration,
    text: Bytes,
}

impl Answer {
    /// Checks whether the answer may be given again at `now`, if there are so many overviews.
    fn is_fresh(&self, now: Duration, overviews: usize) -> bool {
        let overviews = u32::try_from(overviews).unwrap_or(u32::MAX);
        now.saturating_sub(self.began) < SHORTEST.max(self.took.saturating_mul(SHARE).saturating_mul(overviews))
    }
}

pub(super) fn routes() -> Router<Arc<Sources>> {
    let latest = Arc::new(Latest::default());
    let of_class = latest.clone();
    let all = move |State(sources): State<Arc<Sources>>| answer(sources, latest, None);
    let one =
        move |State(sources): State<Arc<Sources>>, Path(class): Path<String>| answer(sources, of_class, Some(class));
    Router::new().route(OVERVIEW_PATH, get(all)).route(&format!("{OVERVIEW_PATH}/{{class}}"), get(one))
}

async fn answer(sources: Arc<Sources>, latest: Arc<Latest>, class: Option<String>) -> Response {
    if !sources.context.cluster.is_ready() {
        return (StatusCode::SERVICE_UNAVAILABLE, "this replica still reads the cluster\n").into_response();
    }
    // The ledgers of a replica that leads no more say what was.
    if !*sources.leading.borrow() {
        return (StatusCode::SERVICE_UNAVAILABLE, "this replica does not lead\n").into_response();
    }
    if let Some(class) = &class {
        let classes = sources.context.cluster.index().classes();
        if !matches!(classes.lookup(class), ClassLookup::Ours(_)) {
            return (StatusCode::NOT_FOUND, "this provisioner does not serve the class\n").into_response();
        }
    }
    // A reader who leaves does not end the work, so that nobody can make it begin again and again.
    let text = tokio::spawn(newest(sources, latest, class)).await.unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Returns the last overview if it is fresh, or makes one.
async fn newest(sources: Arc<Sources>, latest: Arc<Latest>, class: Option<String>) -> Bytes {
    let mut latest = latest.0.lock().await;
    let now = sources.context.clock.passed();
    latest.retain(|_, answer| now.saturating_sub(answer.began) < COUNTS.max(answer.took * SHARE));
    if let Some(answer) = latest.get(&class)
        && answer.is_fresh(now, latest.len())
    {
        return answer.text.clone();
    }
    let (asked, of) = (sources.clone(), class.clone());
    // The work may take a while, and the thread of the process has claims to serve.
    let text = tokio::task::spawn_blocking(move || text(&asked, of.as_deref())).await.unwrap_or_default();
    latest.insert(class, Answer { began: now, took: sources.context.clock.since(now), text: text.clone() });
    text
}

fn text(sources: &Sources, class: Option<&str>) -> Bytes {
    let context = &sources.context;
    let names = (context.identity.instance.as_str(), class);
    let mut overview = overview_in_parts(&context.cluster, names, Scope::Open(CLAIMS), context.clock.now());
    overview.classes.iter_mut().for_each(ClassRow::forget_parameters);
    Bytes::from(serde_json::to_vec(&overview).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overview_that_takes_long_is_given_for_longer() {
        let answer = |took| Answer { began: Duration::from_secs(10), took, text: Bytes::new() };
        for (took, overviews, age, fresh) in [
            (2, 1, 0, true),
            (2, 1, 899, true),
            (2, 1, 900, false),
            (200, 1, 3999, true),
            (200, 1, 4000, false),
            (200, 3, 11_999, true),
            (200, 3, 12_000, false),
        ] {
            let now = Duration::from_secs(10) + Duration::from_millis(age);
            let answer = answer(Duration::from_millis(took));
            assert_eq!(answer.is_fresh(now, overviews), fresh, "{took} {overviews} {age}");
        }
    }
}

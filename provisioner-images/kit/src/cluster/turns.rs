//! Requests that are sent one after the other, so that they share a connection.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Semaphore;

/// The time after which a request does not wait for its turn any more. The client then sends the request over another
/// connection, so that one slow answer does not delay all volumes.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// The order of requests. HTTP/1.1 sends one request at a time over a connection.
#[derive(Debug)]
pub(super) struct Turns(Option<Semaphore>);

impl Turns {
    /// Sends all requests at once.
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Sends one request at a time, while answers are quick.
    pub(super) fn one_by_one() -> Self {
        Self(Some(Semaphore::new(1)))
    }

    /// Makes a request when it is its turn.
    pub(super) async fn take<T>(&self, request: impl Future<Output = T>) -> T {
        let Some(turns) = &self.0 else { return request.await };
        let _turn = tokio::time::timeout(LONGEST_WAIT, turns.acquire()).await;
        let answer = request.await;
        // The client's own task takes the connection back, and must run before the next request looks for it.
        tokio::task::yield_now().await;
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::{Instant, sleep};

    use super::*;

    fn run(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(work);
    }

    #[test]
    fn quick_requests_never_overlap() {
        run(async {
            let (turns, open) = (Turns::one_by_one(), Cell::new(0));
            let request = || {
                turns.take(async {
                    open.set(open.get() + 1);
                    assert_eq!(open.get(), 1);
                    sleep(Duration::from_millis(1)).await;
                    open.set(open.get() - 1);
                })
            };
            tokio::join!(request(), request(), request());
        });
    }

    #[test]
    fn a_slow_answer_delays_no_other_request_for_long() {
        run(async {
            let turns = Turns::one_by_one();
            let begun = Instant::now();
            // The slow request comes first.
            tokio::select! {
                biased;
                () = turns.take(std::future::pending()) => {}
                () = turns.take(async {}) => {}
            }
            assert!(begun.elapsed() >= LONGEST_WAIT && begun.elapsed() < Duration::from_secs(60));
        });
    }
}

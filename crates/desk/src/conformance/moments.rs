//! Moments at which a run is killed, and runs that stand still or find the storage in trouble.

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::bench::{Bench, Halt, Step};
use super::cuts::{Cuts, MOST, NEVER, spread};
use super::on_desk::{OnDesk, Parts};
use crate::container::Container;
use crate::desk::{Ended, Isolation, Stop};
use crate::order::Order;

/// The number of processes before which a run is killed that takes long, or has been killed before others already.
pub(super) const SOME: usize = 10;
/// The number of processes before which a run stands still.
const STOPS: usize = 12;
/// The same for runs that work on a server, and take longer.
const STOPS_ELSEWHERE: usize = 4;
/// The time for which a run stands still. Another one may wait for a lock that the first one has.
const STANDSTILL: Duration = Duration::from_millis(500);

/// The calls of programs that a run has made.
enum Counted {
    /// So many, at least one.
    Calls(usize),
    /// None that this machine can count, with the reason.
    None(String),
}

impl Bench {
    /// Makes the container of an order's attempt on a desk.
    fn container(&self, order: &Order, attempt: u32) -> Step<Container> {
        Ok(self.desk()?.desk.container(&self.setting, &self.job(order, attempt)?)?)
    }

    /// Runs an order once, in a container with a change.
    pub async fn run_changed(&self, order: &Order, change: impl Fn(&mut Container)) -> Step<Ended> {
        let mut container = self.container(order, 1)?;
        change(&mut container);
        self.place.begins(order);
        let ended = self.desk()?.desk.run(&container, Stop::Never).await?;
        if ended.is_success() {
            self.place.succeeded(order);
            self.setting.keep_handle(order, &ended.message);
        }
        Ok(ended)
    }

    /// Runs an order, which stops before the call with a number. Returns the number of calls that it made, too.
    async fn cut(&self, order: &Order, attempt: u32, cut: usize) -> Step<(Ended, usize)> {
        let OnDesk { desk, parts: Parts { cuts, .. }, .. } = self.desk()?;
        let mut container = self.container(order, attempt)?;
        let calls = cuts.arm(&mut container, cut)?;
        self.place.begins(order);
        let ended = desk.run(&with_path(&container, cuts), Stop::kill(calls.reached())).await?;
        Ok((ended, calls.count()))
    }

    /// Kills a run before the call with a number, or lets it end.
    async fn killed_before(&self, order: &Order, cut: usize) -> Step<(Ended, usize)> {
        let counted = Cell::new(0);
        let attempt = async |number| {
            let (ended, calls) = self.cut(order, number, cut).await?;
            counted.set(calls);
            Ok(ended)
        };
        let ended = self.patiently(order.operation().as_str(), attempt).await?;
        Ok((ended, counted.get()))
    }

    /// Counts the calls of a run, which does its work.
    async fn counted(&self, order: &Order) -> Step<Counted> {
        let (_, calls) = self.killed_before(order, NEVER).await?;
        if let Isolation::None(why) = self.desk()?.desk.isolation() {
            return Ok(Counted::None(format!("this machine cannot kill a run before a process: {why}")));
        }
        Ok(match calls {
            0 => Counted::None("the program starts no other program by its name".into()),
            _ => Counted::Calls(calls),
        })
    }

    /// Kills a run of an order before each process that it starts, and calls a function after each. The function may
    /// repeat the run. `reset` makes everything as before the first run.
    pub async fn at_each_child(
        &self,
        order: &Order,
        after: &impl AsyncFn(usize, &Ended) -> Step<()>,
        reset: &impl AsyncFn() -> Step<()>,
    ) -> Step<()> {
        match self.before_children(&|_| order.clone(), MOST, after, reset).await? {
            None => Ok(()),
            Some(why) => Err(Halt::Skipped(why)),
        }
    }

    /// The same for at most so many processes, with an order for each run, by its number. The function after a run gets this
    /// number, too. Returns the reason if this machine cannot do it.
    pub async fn before_children(
        &self,
        order: &dyn Fn(usize) -> Order,
        most: usize,
        after: &impl AsyncFn(usize, &Ended) -> Step<()>,
        reset: &impl AsyncFn() -> Step<()>,
    ) -> Step<Option<String>> {
        let counted = self.counted(&order(0)).await?;
        reset().await?;
        let calls = match counted {
            Counted::Calls(calls) => calls,
            Counted::None(why) => return Ok(Some(why)),
        };
        for cut in spread(calls, most) {
            let (ended, _) = self.killed_before(&order(cut + 1), cut).await?;
            let moment = format!("killed before process {} of {calls}", cut + 1);
            after(cut + 1, &ended).await.map_err(|halt| halt.during(&moment))?;
            reset().await?;
        }
        Ok(None)
    }

    /// Kills a run of an order at times that are spread over it. The functions are those of [`Bench::before_children`].
    pub async fn at_times(
        &self,
        order: &dyn Fn(usize) -> Order,
        after: &impl AsyncFn(usize, &Ended) -> Step<()>,
        reset: &impl AsyncFn() -> Step<()>,
    ) -> Step<()> {
        let whole = self.succeed(&order(0)).await?.took;
        reset().await?;
        let times = self.times();
        for (number, n) in (1..).zip(0..times) {
            let (order, at) = (order(number), whole * n / times);
            let killed = async |attempt| self.attempt(&order, attempt, Stop::kill(sleep(at))).await;
            let ended = self.patiently(order.operation().as_str(), killed).await?;
            let moment = format!("killed after {} ms", at.as_millis());
            after(number, &ended).await.map_err(|halt| halt.during(&moment))?;
            reset().await?;
        }
        Ok(())
    }

    /// Kills a run before some of the processes that it starts, if this machine can do it, and at times.
    pub async fn at_each_moment(
        &self,
        order: &Order,
        after: &impl AsyncFn(usize, &Ended) -> Step<()>,
        reset: &impl AsyncFn() -> Step<()>,
    ) -> Step<()> {
        self.before_children(&|_| order.clone(), SOME, after, reset).await?;
        self.at_times(&|_| order.clone(), after, reset).await
    }

    /// Lets a run of an order stand still before some of the processes that it starts, while something else is done, and
    /// calls a function after each. The other functions are those of [`Bench::at_each_child`].
    pub async fn while_still(
        &self,
        order: &Order,
        other: &impl AsyncFn() -> Step<()>,
        after: &impl AsyncFn(&Ended) -> Step<()>,
        reset: &impl AsyncFn() -> Step<()>,
    ) -> Step<()> {
        let calls = match self.counted(order).await? {
            Counted::Calls(calls) => calls,
            Counted::None(why) => return Err(Halt::Skipped(why)),
        };
        reset().await?;
        let most = if self.is_external() { STOPS_ELSEWHERE } else { STOPS };
        for cut in spread(calls, most) {
            let moment = format!("stopped before process {} of {calls}, while the other run worked", cut + 1);
            let ended = self.stopped_before(order, cut, other).await.map_err(|halt| halt.during(&moment))?;
            after(&ended).await.map_err(|halt| halt.during(&moment))?;
            reset().await?;
        }
        Ok(())
    }

    async fn stopped_before(&self, order: &Order, cut: usize, other: &impl AsyncFn() -> Step<()>) -> Step<Ended> {
        let OnDesk { desk, parts: Parts { cuts, .. }, .. } = self.desk()?;
        let mut container = self.container(order, 1)?;
        let calls = cuts.arm(&mut container, cut)?;
        let (container, over) = (with_path(&container, cuts), Notify::new());
        self.place.begins(order);
        let run = async {
            let ended = desk.run(&container, Stop::Never).await;
            over.notify_one();
            ended
        };
        let meanwhile = async {
            tokio::select! {
                () = calls.reached() => {}
                () = over.notified() => {}
            }
            let mut work = pin!(other());
            let early = timeout(STANDSTILL, &mut work).await;
            let gate = calls.release()?;
            let done = match early {
                Ok(done) => done,
                Err(_) => work.await,
            };
            done.map(|()| gate)
        };
        // The gate stays open until the run has ended.
        let (ended, gate) = tokio::join!(run, meanwhile);
        gate?;
        Ok(ended?)
    }
}

/// Puts the stand-ins before all other programs.
fn with_path(container: &Container, cuts: &Cuts) -> Container {
    let mut container = container.clone();
    container.programs.push(cuts.path());
    container
}

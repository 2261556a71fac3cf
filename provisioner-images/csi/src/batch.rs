//! Many claims in one run, over one connection: the driver is waited for once, and asked who it is once. All else each
//! member has for itself: its request, its Secrets, its patience and its outcome.

use std::process::ExitCode;
use std::rc::Rc;

use contract::batch::Member;
use contract::request::Request;
use kit::Failure;
use tokio::sync::Semaphore;

use crate::cluster::Cluster;
use crate::parameters::Parameters;
use crate::run::Run;
use crate::{carry_out, reach};

/// Does what each member asks for.
///
/// # Errors
/// There is no driver: then it is as if each had failed by that.
pub async fn work(members: Vec<Member>) -> Result<ExitCode, Failure> {
    if std::env::args().len() > 1 {
        return Err(Failure::usage("a run for a batch takes no arguments"));
    }
    let asked: Vec<Asked> = members.iter().map(asked).collect();
    let mut told_to_stop = kit::told_to_stop()?;
    // The members of a class are all for one driver. Where not even one can be read, none is needed.
    let first = asked.iter().find_map(|asked| asked.as_ref().ok()).map(|(_, parameters)| parameters.clone());
    let driver = match &first {
        Some(first) => Some((reach(first, &mut told_to_stop).await?, first)),
        None => None,
    };
    let cluster = Rc::new(Cluster::new(false));
    let turns = Rc::new(Semaphore::new(first.as_ref().map_or(1, |first| first.worker_threads)));
    let work = |_, asked: Asked, mut stop: kit::batch::Stop| {
        let run = asked.and_then(|(request, parameters)| match &driver {
            Some((driver, first)) if parameters.same_driver(first) => {
                Ok(Run { driver: driver.for_member(), cluster: cluster.clone(), parameters, request })
            }
            // In its next attempt it has a run of its own.
            _ => Err(Failure::retry("the others of its batch are for another CSI driver: it is tried again by itself")),
        });
        let turns = turns.clone();
        async move { carry_out(&run?, &turns, stop.told()).await }
    };
    let all = asked.len();
    Ok(kit::batch::each(asked, all, told_to_stop, work).await)
}

/// What is to be done for a member, or why that cannot be said.
type Asked = Result<(Request, Parameters), Failure>;

/// What stands in a member's line, and in the environment of the run.
fn asked(member: &Member) -> Asked {
    let value = |name: &str| member.get(name).cloned().or_else(|| std::env::var(name).ok());
    let request = Request::from_env(value).map_err(|error| Failure::usage(error.to_string()))?;
    // Others leave something else as the termination message.
    if !request.operation.is_of_volume() {
        return Err(Failure::usage(format!("{} runs are for no claim, and in no batch", request.operation)));
    }
    let parameters = Parameters::of(&request.parameters)?;
    Ok((request, parameters))
}

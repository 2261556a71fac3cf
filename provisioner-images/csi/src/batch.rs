//! Many claims in one run, over one connection. The run waits for the driver once, and asks for its name once. Each
//! member has its own request, Secrets, patience and outcome.

use std::cell::Cell;
use std::process::ExitCode;
use std::rc::Rc;

use flex_contract::batch::MemberVariables;
use flex_contract::request::RunRequest;
use flex_image_kit::Failure;
use tokio::sync::Semaphore;

use crate::cluster::Cluster;
use crate::parameters::Parameters;
use crate::run::{Run, account};
use crate::work::{carry_out, reach};

/// Does the work of each member.
///
/// # Errors
/// If the driver cannot be reached. Then each member has failed for that reason.
pub async fn work(members: Vec<MemberVariables>) -> Result<ExitCode, Failure> {
    if std::env::args().len() > 1 {
        return Err(Failure::usage("a run for a batch takes no arguments"));
    }
    let asked: Vec<Asked> = members.iter().map(asked).collect();
    let mut told_to_stop = flex_image_kit::terminated()?;
    // All members of a class have the same driver. If no member can be read, no driver is needed.
    let first = asked.iter().find_map(|asked| asked.as_ref().ok()).map(|asked| asked.parameters.clone());
    let driver = match &first {
        Some(first) => Some((reach(first, &mut told_to_stop).await?, first)),
        None => None,
    };
    // A batch is of one config, and its pod has one ServiceAccount.
    let account = asked.iter().find_map(|asked| asked.as_ref().ok()).map(|asked| account(&asked.request));
    let cluster = Rc::new(Cluster::new(false, account.unwrap_or_default()));
    let turns = Rc::new(Semaphore::new(first.as_ref().map_or(1, |first| first.worker_threads)));
    let work = |_, asked: Asked, mut stop: flex_image_kit::batch::Stop| {
        let run = asked.and_then(|MemberRequest { request, parameters }| match &driver {
            Some((driver, first)) if parameters.same_driver(first) => Ok(Run {
                driver: driver.for_member(),
                cluster: cluster.clone(),
                parameters,
                request,
                may_be_under_way: Cell::default(),
            }),
            // The member's next attempt has a run of its own.
            _ => Err(Failure::retry("the others of its batch are for another CSI driver: it is tried again by itself")),
        });
        let turns = turns.clone();
        async move { carry_out(&run?, &turns, stop.told()).await }
    };
    let all = asked.len();
    Ok(flex_image_kit::batch::each(asked, all, told_to_stop, work).await)
}

/// The work of a member.
struct MemberRequest {
    request: RunRequest,
    parameters: Parameters,
}

/// The work of a member, or the reason why it cannot be read.
type Asked = Result<MemberRequest, Failure>;

/// Reads a member's line together with the environment of the run.
fn asked(member: &MemberVariables) -> Asked {
    let value = |name: &str| member.get(name).cloned().or_else(|| std::env::var(name).ok());
    let request = RunRequest::from_env(value).map_err(|error| Failure::usage(error.to_string()))?;
    // Other operations write something else as the termination message.
    if !request.operation.is_of_volume() {
        return Err(Failure::usage(format!("{} runs are for no claim, and in no batch", request.operation)));
    }
    let parameters = Parameters::of(&request.parameters)?;
    Ok(MemberRequest { request, parameters })
}

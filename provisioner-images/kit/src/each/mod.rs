//! `flex-pv each`: runs an ordinary program for one claim, over all claims of a batch ([`flex_contract::batch`]).
//!
//! Each member has a process of its own, so that its failure or death concerns no other member.

mod command;
mod member;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::sync::Arc;

pub use command::Each;
use command::{cannot_start, not_started};

use crate::handover::Desk;
use crate::{Failure, batch, conclude, terminated};

/// Runs the command for each member. If the run is for a single claim, the command replaces this process.
pub fn each(each: Each) -> ExitCode {
    if !batch::is_one() {
        return conclude(Err(alone(&each.command)));
    }
    batch::run(async |members| {
        let (jobs, each) = (each.jobs, Arc::new(each));
        let desk = Desk::open()
            .inspect_err(|error| eprintln!("each program must connect to the API by itself: no socket: {error}"))
            .ok();
        let work = |number, member, stop| {
            let (each, desk) = (each.clone(), desk.clone());
            async move { member::run(&each, number, &member, desk.as_ref(), stop).await }
        };
        let serve = async {
            match &desk {
                Some(desk) => desk.serve().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            code = batch::each(members, jobs, terminated()?, work) => Ok(code),
            never = serve => match never {},
        }
    })
}

/// Becomes the command. Returns a failure if that is not possible.
fn alone(command: &[OsString]) -> Failure {
    let [program, arguments @ ..] = command else { return Failure::usage("no command was given") };
    let error = std::process::Command::new(program).args(arguments).exec();
    Failure { code: not_started(&error), message: cannot_start(program, &error) }
}

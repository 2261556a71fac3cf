//! `flex-pv`: creates the PersistentVolume of a provisioner image, and says why one was not made.
//!
//! A single static binary that a vendor copies into an image, so that its script needs no kubectl,
//! no curl and no YAML.

mod args;
mod made;
mod source;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use contract::exit;
use contract::volume::persistent_volume;
use kit::{Failure, cluster};

use args::{Cli, Command, Create, Kind};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // `--help` and `--version` come as errors too, to be printed on standard output.
        Err(error) if !error.use_stderr() => {
            print!("{error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => return kit::conclude(Err(Failure::usage(error.to_string().trim_end().to_owned()))),
    };
    kit::conclude(match cli.command {
        Command::Create(create) => run(*create),
        Command::List => kit::listing::read(std::io::stdin().lock()).and_then(|entries| kit::listing::print(&entries)),
        Command::Fail { kind, message } => Err(Failure { code: code(kind), message: message.join(" ") }),
    })
}

fn code(kind: Kind) -> i32 {
    match kind {
        Kind::Never => exit::DATAERR,
        Kind::NoRoom => exit::UNAVAILABLE,
        Kind::Retry => exit::TEMPFAIL,
        Kind::Config => exit::CONFIG,
    }
}

fn run(create: Create) -> Result<(), Failure> {
    let request = kit::request()?;
    let (dry_run, patience) = (create.dry_run, Duration::from_secs(create.timeout));
    let pod_node = std::env::var("POD_NODE").ok();
    let made = made::made(create, &request, pod_node.as_deref())?;
    let volume = persistent_volume(&request, made);
    if dry_run {
        return cluster::print(&volume);
    }
    kit::block_on(async { cluster::create(cluster::connect().await?, &volume, patience).await })?;
    println!("created PersistentVolume {}", request.pv_name);
    Ok(())
}

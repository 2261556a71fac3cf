//! Runs the image's program with `--dry-run` in place of a cluster.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flex_contract::request::is_reserved;
use ganesha::Ganesha;
use image_run::{Ended, Stage};
pub use image_run::{ONE, TWO};

/// No step takes longer, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The words of a run to which the server gave no answer. A busy nfs-ganesha sometimes overlooks a request.
const NO_ANSWER: [&str; 3] = ["gave no answer within", "RPC response timeout", "RPC attempt timeout"];
/// A run that takes as long has waited for an answer in vain, or its client has repeated a request.
const SLOW: Duration = Duration::from_secs(5);

thread_local! {
    /// Whether something in the test of this thread was slow.
    static WAS_SLOW: Cell<bool> = const { Cell::new(false) };
}

/// Notes for [`in_time`] that the machine or a server was too slow.
pub fn note_slowness() {
    WAS_SLOW.set(true);
}

/// Tells a story, which has servers of its own. Tells it again if it fails after something was too slow.
pub fn in_time(story: impl Fn()) {
    for _ in 0..4 {
        WAS_SLOW.set(false);
        match catch_unwind(AssertUnwindSafe(&story)) {
            Ok(()) => return,
            Err(_) if WAS_SLOW.get() => eprintln!("something was too slow: the test begins again"),
            Err(failed) => resume_unwind(failed),
        }
    }
    story();
}

/// The environment of a run, and the program.
#[derive(Clone)]
pub struct Run(BTreeMap<String, String>, Arc<Stage>);

impl Run {
    /// Makes a run for a volume on a server.
    pub fn new(server: &Ganesha, id: &str) -> Self {
        Self(image_run::claim(id, "nfs"), Arc::new(Stage::new(env!("CARGO_BIN_EXE_nfs-provisioner"))))
            .with("SIZE_BYTES", "1048576")
            .with("ACCESS_MODES", "ReadWriteMany")
            .with("SERVER", "127.0.0.1")
            .with("EXPORT", Ganesha::EXPORT)
            .with("PORT", &server.port().to_string())
    }

    /// Sets another variable.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Returns the name of the volume's directory by the default pattern.
    pub fn directory(&self) -> String {
        format!("team-data-{}", self.0["PV_NAME"])
    }

    /// Runs a provision run.
    pub fn provision(&self) -> Ended {
        self.run("provision")
    }

    /// Runs a delete run.
    pub fn delete(&self) -> Ended {
        self.run("delete")
    }

    /// Runs an expand run to twice the size.
    pub fn expand(&self) -> Ended {
        let run = self.clone().with("OLD_SIZE_BYTES", &self.0["SIZE_BYTES"]);
        run.with("SIZE_BYTES", "2097152").run("expand")
    }

    /// Runs a list run.
    pub fn list(&self) -> Ended {
        self.for_no_volume("list")
    }

    /// Runs a capacity run.
    pub fn capacity(&self) -> Ended {
        self.for_no_volume("capacity")
    }

    /// Runs an operation for many volumes, in place of a run for each.
    pub fn batch(operation: &str, members: &[Run]) -> Ended {
        let own: Vec<_> = members.iter().map(|member| member.clone().with("OPERATION", operation).0).collect();
        let (env, lines) = image_run::batch(&own);
        let stage = &members[0].1;
        stage.end(stage.batch(&env, &lines).arg("--dry-run"))
    }

    fn for_no_volume(&self, operation: &str) -> Ended {
        let mut run = self.clone();
        image_run::for_no_volume(&mut run.0);
        run.run(operation)
    }

    /// Runs an operation.
    pub fn of(&self, operation: &str) -> Ended {
        self.run(operation)
    }

    /// Runs an operation, and again if the server gave no answer.
    fn run(&self, operation: &str) -> Ended {
        let once = || {
            let began = Instant::now();
            let ended = self.1.end(&mut self.command(operation));
            if began.elapsed() >= SLOW {
                note_slowness();
            }
            ended
        };
        let is_answered = |ended: &Ended| {
            ended.code != 75 || !NO_ANSWER.iter().any(|words| ended.termination_message.contains(words))
        };
        (0..4).map(|_| once()).find(is_answered).unwrap_or_else(&once)
    }

    /// Runs an operation until a run does not ask for another: the server may still remember files that a test has
    /// changed on its disk, or work on a call of a run that was killed.
    pub fn patiently(&self, operation: &str) -> Ended {
        let began = Instant::now();
        loop {
            let ended = self.run(operation);
            if ended.code != 75 || began.elapsed() > PATIENCE {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Does this with delete runs.
    pub fn delete_patiently(&self) -> Ended {
        self.patiently("delete")
    }

    /// Runs a delete run for a volume that has a PersistentVolume.
    pub fn delete_bound(&self) -> Ended {
        self.clone().with("VOLUME_SOURCE", &self.source()).delete()
    }

    /// Returns the source of the PersistentVolume.
    pub fn source(&self) -> String {
        let path = format!("{}/{}", self.0["EXPORT"], self.directory());
        format!(r#"{{"nfs":{{"server":"{}","path":"{path}"}}}}"#, self.0["SERVER"])
    }

    /// Makes the volume a clone of another one.
    pub fn clone_of(self, origin: &Run) -> Self {
        let size = origin.0["SIZE_BYTES"].clone();
        self.with("CLONE_OF", &origin.0["CLAIM_UUID"])
            .with("CLONE_OF_PV_NAME", &origin.0["PV_NAME"])
            .with("CLONE_OF_SOURCE", &origin.source())
            .with("CLONE_OF_SIZE_BYTES", &size)
    }

    /// Runs a provision run and kills it after a while. Returns false if it had ended before.
    pub fn provision_killed_after(&self, time: Duration) -> bool {
        self.killed_after("provision", time)
    }

    /// Runs a delete run and kills it after a while. Returns false if it had ended before.
    pub fn delete_killed_after(&self, time: Duration) -> bool {
        self.killed_after("delete", time)
    }

    /// Runs an operation and kills it after a while. Returns false if it had ended before.
    pub fn killed_after(&self, operation: &str, time: Duration) -> bool {
        let mut process = self.begin(operation);
        std::thread::sleep(time);
        let alive = process.try_wait().unwrap().is_none();
        process.kill().unwrap();
        process.wait().unwrap();
        alive
    }

    /// Begins an operation, and does not wait for its end.
    pub fn begin(&self, operation: &str) -> Child {
        self.command(operation).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Returns the names that the orchestrator would pass as parameters: all but the contract's own.
    fn parameters(&self) -> String {
        let names = self.0.keys().filter(|name| !is_reserved(name) && !name.starts_with("FLEX_"));
        names.map(|name| name.to_lowercase().replace('_', "-")).collect::<Vec<_>>().join(",")
    }

    fn command(&self, operation: &str) -> Command {
        let mut command = self.1.command(operation, &self.0);
        command.arg("--dry-run").env("PARAMETER_NAMES", self.parameters());
        command
    }
}

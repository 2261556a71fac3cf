//! One call of `conformance`: its id, and the signals that stop it.

use std::hash::{BuildHasher, Hasher, RandomState};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Returns eight hexadecimal digits that no other call has.
pub(super) fn random_id() -> String {
    let random = RandomState::new().build_hasher().finish();
    format!("{:08x}", random & 0xffff_ffff)
}

/// The signals that stop the command.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub fn new() -> std::io::Result<Self> {
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next of them.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

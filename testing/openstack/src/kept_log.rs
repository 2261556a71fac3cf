//! The logs of servers, kept when a test fails. The directory of a server ends with the process, and a server in a static
//! value outlives the test that failed.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::{fs, panic};

static LOGS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Copies the log of a server to a place that stays, and prints the place, whenever a thread of this process panics.
pub fn keep_at_failure(log: &Path) {
    static HOOK: Once = Once::new();
    LOGS.lock().unwrap_or_else(PoisonError::into_inner).push(log.to_owned());
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |failure| {
            before(failure);
            keep();
        }));
    });
}

/// Forgets the log of a server that ends.
pub fn forget(log: &Path) {
    LOGS.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| known != log);
}

/// Returns the place to which a log is copied.
fn place(log: &Path) -> PathBuf {
    let of = log.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    std::env::temp_dir().join(format!("openstack-logs.{}", std::process::id())).join(format!("{of}.log"))
}

fn keep() {
    for log in LOGS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let place = place(log);
        let kept = fs::create_dir_all(place.parent().unwrap_or(&place)).and_then(|()| fs::copy(log, &place));
        match kept {
            Ok(_) => eprintln!("the log of the server is kept in {}", place.display()),
            Err(error) => eprintln!("{} cannot be kept: {error}", log.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refuge::Refuge;

    #[test]
    fn the_log_stays_when_a_test_fails() {
        let folder = Refuge::new("kept-log.");
        let log = folder.path().join("log");
        fs::write(&log, "why it failed").unwrap();
        keep_at_failure(&log);
        let place = place(&log);
        assert!(std::thread::spawn(|| panic!("a test that fails")).join().is_err());
        drop(folder);
        assert_eq!(fs::read_to_string(&place).unwrap(), "why it failed");
        fs::remove_file(&place).unwrap();
        forget(&log);
    }
}

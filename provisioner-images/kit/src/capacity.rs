//! Telling how much room the backend has, in the form of [`contract::capacity`].

use contract::capacity::{Answer, MOST};

use crate::{Failure, last_words};

/// Leaves the answer of a `capacity` run: so many bytes are free, and no volume may be larger than `largest`. What is
/// more than the API can say is the most that it can say.
pub fn tell(bytes: u64, largest: Option<u64>) -> Result<(), Failure> {
    let answer = Answer { bytes: bytes.min(MOST), largest: largest.map(|largest| largest.min(MOST)) };
    eprintln!("{answer}");
    last_words::write(&format!("{answer}\n"))
        .map_err(|error| Failure::retry(format!("how much room there is cannot be told: {error}")))
}

//! The answer of a `capacity` run, in the form of [`flex_contract::capacity`].

use flex_contract::capacity::{Answer, MAX_BYTES};

use crate::{Failure, termination_message};

/// Writes the answer of a `capacity` run: the free bytes, and the size of the largest possible volume. Sizes above the
/// API's limit are cut to it.
pub fn print(bytes: u64, largest: Option<u64>) -> Result<(), Failure> {
    let answer = Answer { bytes: bytes.min(MAX_BYTES), largest: largest.map(|largest| largest.min(MAX_BYTES)) };
    eprintln!("{answer}");
    termination_message::write(&format!("{answer}\n"))
        .map_err(|error| Failure::retry(format!("the free space cannot be told: {error}")))
}

//! Chance from a seed: the same for a claim and its runs in each repetition, whatever happens in between.

use std::time::Duration;

/// A source of numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Returns the dice of one item, which a number and a text identify.
    pub fn of(seed: u64, number: u64, text: &str) -> Self {
        let mut dice = Dice(seed ^ number.rotate_left(32));
        for byte in text.bytes() {
            dice.0 = dice.next() ^ u64::from(byte);
        }
        dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `below`, exclusive.
    pub fn roll(&mut self, below: u64) -> u64 {
        self.next() % below
    }

    /// Returns a time between nothing and `most`.
    pub fn time(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.roll(most.as_micros() as u64 + 1))
    }

    /// Chooses one of several by their weights.
    pub fn choose<T: Copy>(&mut self, among: &[(u64, T)]) -> T {
        let mut at = self.roll(among.iter().map(|(weight, _)| weight).sum());
        for (weight, what) in among {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *what,
            }
        }
        unreachable!("a roll is below the sum of the weights")
    }
}

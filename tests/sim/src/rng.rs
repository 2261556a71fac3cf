//! Chance, from a seed: SplitMix64, which needs no state beyond one number.

/// A source of chance.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Makes the source of a seed. Neighbouring seeds give unrelated numbers.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng(seed ^ 0x5851_F42D_4C95_7F2D);
        rng.next();
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        debug_assert!(n > 0);
        (self.next() % n as u64) as usize
    }

    /// Returns true in this many of a thousand cases.
    pub fn permille(&mut self, n: u32) -> bool {
        n > 0 && self.next() % 1000 < u64::from(n)
    }

    /// Returns one of the values.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// Returns the index of one of these weights, each as likely as it is heavy, or `None` if all are zero.
    pub fn weighted(&mut self, weights: &[u32]) -> Option<usize> {
        let all: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        if all == 0 {
            return None;
        }
        let mut at = self.next() % all;
        for (location, weight) in weights.iter().enumerate() {
            let weight = u64::from(*weight);
            if at < weight {
                return Some(location);
            }
            at -= weight;
        }
        None
    }
}

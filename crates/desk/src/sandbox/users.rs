//! The users of a container on this machine: those that a user namespace gives it, and none of them is root.

use serde::{Deserialize, Serialize};

/// The first user of this machine that stands for a user of a container. No range of an account begins as high.
const FIRST: u32 = 0x7100_0000;
/// The number of users that each container has.
const COUNT: u32 = 1 << 16;
/// The user of this machine that stands for the only user of a container, where this machine has few.
const NOBODY: u32 = 65_534;

/// Users of a container, and those of this machine in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// The first user in the container.
    pub inside: u32,
    /// The user outside that stands for it.
    pub outside: u32,
    /// The number of users.
    pub count: u32,
}

/// The users of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Users {
    /// Those of this machine, root among them: a person gave the run a directory of this machine.
    OfMachine,
    /// These, in a user namespace of the container.
    Own(Vec<Extent>),
}

impl Users {
    /// Returns the users of a container that root starts, with its user among them. `mapped` is the file
    /// `/proc/self/uid_map` of this process.
    pub fn of_root(user: u32, mapped: &str) -> Self {
        let has = |first: u32, count: u32| mapped.lines().any(|line| has_all(line, first, count));
        if !has(FIRST, COUNT + 1) {
            return Users::only(user, NOBODY);
        }
        let mut all = vec![Extent { inside: 0, outside: FIRST, count: COUNT }];
        if user >= COUNT {
            all.push(Extent { inside: user, outside: FIRST + COUNT, count: 1 });
        }
        Users::Own(all)
    }

    /// Returns the only user of a container.
    pub fn only(inside: u32, outside: u32) -> Self {
        Users::Own(vec![Extent { inside, outside, count: 1 }])
    }

    /// Returns the user outside that stands for a user of the container. A user that the container has not is its first.
    pub fn outside(&self, user: u32) -> u32 {
        let Users::Own(extents) = self else { return user };
        let of = |extent: &Extent| {
            let nth = user.checked_sub(extent.inside).filter(|nth| *nth < extent.count)?;
            Some(extent.outside + nth)
        };
        extents.iter().find_map(of).or(extents.first().map(|extent| extent.outside)).unwrap_or(user)
    }
}

/// Checks whether a line of `uid_map` has all users from `first`.
fn has_all(line: &str, first: u32, count: u32) -> bool {
    let mut numbers = line.split_whitespace().filter_map(|number| number.parse::<u64>().ok());
    let (Some(inside), Some(_), Some(mapped)) = (numbers.next(), numbers.next(), numbers.next()) else { return false };
    let (first, count) = (u64::from(first), u64::from(count));
    inside <= first && first + count <= inside + mapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_of_a_container_is_root() {
        let all = "         0          0 4294967295\n";
        for (mapped, user) in [(all, 0), (all, 65532), (all, 1_000_650_000), ("0 100000 65536", 0), ("0 1000 1", 65532)]
        {
            let users = Users::of_root(user, mapped);
            for one in [0, 1, user, 65_535, u32::MAX] {
                assert!(users.outside(one) >= NOBODY, "{mapped} {user} {one}");
            }
        }
        let users = Users::of_root(1_000_650_000, all);
        assert_eq!((users.outside(0), users.outside(65_532)), (FIRST, FIRST + 65_532));
        assert_eq!(users.outside(1_000_650_000), FIRST + COUNT);
        assert_eq!(Users::of_root(0, "0 100000 65536"), Users::only(0, NOBODY));
        assert_eq!(Users::OfMachine.outside(0), 0);
    }
}

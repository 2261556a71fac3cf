//! The health of classes: whether their attempts and deletions succeed. `status` and the status page show it.

pub mod health;
pub mod row;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

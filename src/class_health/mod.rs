//! The health of classes: whether their attempts and deletions succeed. `status` and the status page show it.

pub(crate) mod health;
pub(crate) mod row;
#[cfg(test)]
pub(crate) mod testing;

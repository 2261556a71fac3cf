//! The form of all answers of a place.

use futures::future::LocalBoxFuture;

use crate::desk::DeskError;

/// The answer of a place, which takes a while.
pub type Pending<'a, T> = LocalBoxFuture<'a, Result<T, DeskError>>;

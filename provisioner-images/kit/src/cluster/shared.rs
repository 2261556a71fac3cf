//! One client for the volumes of many claims.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Client;
use tokio::sync::OnceCell;

use super::connect::connect;
use super::create::create_in_turn;
use super::turns::Turns;
use crate::Failure;

/// A client that is made for the first volume. Its requests share one connection while the API answers quickly.
pub struct Shared {
    client: OnceCell<Client>,
    turns: Turns,
}

impl Default for Shared {
    fn default() -> Self {
        Self { client: OnceCell::new(), turns: Turns::one_by_one() }
    }
}

impl Shared {
    /// Creates the volume, or checks that an earlier run has created the same one.
    ///
    /// # Errors
    /// Those of [`connect`](super::connect()) and [`create`](super::create()).
    pub async fn create(&self, volume: &PersistentVolume, patience: Duration) -> Result<(), Failure> {
        // A client that cannot be made is tried again for the next volume.
        let client = self.client.get_or_try_init(connect).await?;
        create_in_turn(client.clone(), &self.turns, volume, patience).await
    }
}

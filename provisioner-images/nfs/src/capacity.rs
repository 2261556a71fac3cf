//! How much room the export has, as the server says it of its file system.

use kit::Failure;

use crate::server::Server;

/// Tells what is free for this image's user. Quotas of single directories are out of reach for a client.
pub async fn capacity(server: &Server) -> Result<(), Failure> {
    kit::capacity::tell(server.free().await?, None)
}

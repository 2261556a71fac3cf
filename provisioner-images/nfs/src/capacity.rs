//! The free bytes of the export, as the server reports them for its file system.

use flex_image_kit::Failure;

use crate::server::Server;

/// Reports the bytes that are free for this image's user. A client cannot see quotas of single directories.
pub async fn capacity(server: &Server) -> Result<(), Failure> {
    flex_image_kit::capacity::print(server.free().await?, None)
}

//! Directories around others: no volume is in the directory of another one.

use flex_image_kit::Failure;

use crate::record;
use crate::server::Server;

/// A directory that belongs to a volume.
pub struct OwnedDirectory {
    /// The path.
    pub path: String,
    /// The volume.
    pub owner: String,
}

/// Returns a directory around a path that belongs to a volume.
pub async fn around(server: &Server, path: &str) -> Result<Option<OwnedDirectory>, Failure> {
    for (end, _) in path.match_indices('/') {
        let around = &path[..end];
        if let Some(owner) = server.read_record(&record::of_path(around)).await? {
            return Ok(Some(OwnedDirectory { path: around.to_owned(), owner }));
        }
    }
    Ok(None)
}

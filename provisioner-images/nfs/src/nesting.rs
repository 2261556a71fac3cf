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

/// Checks that no directory around a path belongs to a volume.
pub async fn check(server: &Server, path: &str) -> Result<(), Failure> {
    around(server, path).await?.map_or(Ok(()), |around| Err(refused(path, &around)))
}

/// Makes the failure of a path in the directory of another volume.
pub fn refused(path: &str, around: &OwnedDirectory) -> Failure {
    eprintln!("the directory {} belongs to volume {}", around.path, around.owner);
    Failure::never(format!(
        "the directory {path} would be in {}, which belongs to another volume, which the log of this run names; give the \
         parameter `subdirectory` another form",
        around.path
    ))
}

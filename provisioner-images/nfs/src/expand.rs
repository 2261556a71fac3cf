//! The expansion of a volume. A directory has no size of its own, and a client cannot set the server's quota, if there
//! is one. So the size is only a promise, as in provision runs.

use flex_contract::request::RunRequest;
use flex_image_kit::Failure;

use crate::parameters::Parameters;
use crate::record;
use crate::server::Server;

/// Checks that the volume exists and owns its directory, so that no size is promised for lost storage.
pub async fn expand(server: &Server, parameters: &Parameters, request: &RunRequest) -> Result<(), Failure> {
    let id = &request.volume_id;
    let Some(path) = server.read_record(&record::of_volume(id)).await? else {
        let lost = format!("no record in {} says where this volume is: it cannot be expanded", record::FOLDER);
        return Err(server.missing(Failure::never(lost)).await);
    };
    record::check_place(request, parameters, &path)?;
    let ours = server.read_record(&record::of_path(&path)).await?.is_some_and(|owner| owner == *id);
    if !ours || !server.has_directory(&path).await? {
        return Err(Failure::never(format!("the volume's directory {path} is gone: it cannot be expanded")));
    }
    Ok(())
}

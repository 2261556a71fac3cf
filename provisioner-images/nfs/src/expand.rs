//! Making a volume larger. A directory has no size of its own, and the server's quota, if it has one, is
//! out of reach for a client: as with provisioning, the size is a promise.

use contract::request::Request;
use kit::Failure;

use crate::parameters::Parameters;
use crate::record;
use crate::server::Server;

/// Sees that the volume is there and its own, so that nothing is promised for what is lost.
pub async fn expand(server: &Server, parameters: &Parameters, request: &Request) -> Result<(), Failure> {
    let id = &request.claim_uuid;
    let Some(path) = server.read_record(&record::of_volume(id)).await? else {
        return Err(Failure::never(format!(
            "no record in {} says where this volume is: it cannot be expanded",
            record::FOLDER
        )));
    };
    record::check_source(&request.volume_source, parameters, &path)?;
    let ours = server.read_record(&record::of_path(&path)).await?.is_some_and(|owner| owner == *id);
    if !ours || !server.has_directory(&path).await? {
        return Err(Failure::never(format!("the volume's directory {path} is gone: it cannot be expanded")));
    }
    Ok(())
}

//! Connections of clients that do not speak HTTP/1: what a client sends until the server answers counts as a request.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::sleep;

use super::plan::Fate;
use super::shared::Shared;

/// The largest number of bytes that are passed on at one time.
const PART: usize = 64 * 1024;

/// Passes a connection on, until one side closes it or the plan of the front ends it.
pub(super) async fn serve<C, S>(client: C, server: S, shared: &Shared)
where
    C: AsyncRead + AsyncWrite,
    S: AsyncRead + AsyncWrite,
{
    // A side that is gone ends the connection with an error.
    drop(pass(client, server, shared).await);
}

async fn pass<C, S>(client: C, server: S, shared: &Shared) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite,
    S: AsyncRead + AsyncWrite,
{
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = split(server);
    let (mut asked, mut told) = (vec![0; PART], vec![0; PART]);
    let (mut fate, mut is_asking, mut has_ended) = (Fate::Pass, false, false);
    loop {
        tokio::select! {
            read = from_client.read(&mut asked), if !has_ended => {
                let count = read?;
                if count == 0 {
                    has_ended = true;
                    to_server.shutdown().await?;
                    continue;
                }
                if !is_asking {
                    is_asking = true;
                    fate = shared.state().fate("", "");
                }
                if matches!(fate, Fate::Refuse(_)) {
                    return Ok(());
                }
                to_server.write_all(&asked[..count]).await?;
            }
            read = from_server.read(&mut told) => {
                let count = read?;
                if count == 0 {
                    return to_client.shutdown().await;
                }
                is_asking = false;
                match std::mem::replace(&mut fate, Fate::Pass) {
                    Fate::Pass | Fate::Refuse(_) => {}
                    Fate::Wait(time) => sleep(time).await,
                    Fate::Lose => return Ok(()),
                    Fate::Hold => {
                        shared.hold().await;
                        return Ok(());
                    }
                    Fate::Cut => return to_client.write_all(&told[..count / 2]).await,
                }
                to_client.write_all(&told[..count]).await?;
            }
        }
    }
}

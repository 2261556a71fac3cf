//! The copy of a file's content: the server shares its blocks (CLONE), else the server copies it (COPY), else this
//! image reads and writes it.
//!
//! CLONE and COPY are operations of NFSv4.2 that a server may lack. What the server refuses permanently is not asked for
//! again in this run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::{StreamExt, TryStreamExt};
use nfs_rs::{Mount, Nfs4ErrorCode as V4, NfsError, ObjRes, SeekContent, WriteOutcome};

/// The largest part of a file that is copied, read or written at one time.
const PART: u64 = 1 << 20;
/// The largest part that one COPY asks of the server, so that a slow disk answers in time.
const COPY_PART: u64 = 32 << 20;
/// The number of parts of a file that are under way at one time. The number hides the latency of the server.
const MAX_CONCURRENT: usize = 4;
/// The largest part between two commits. The limit bounds the acknowledgements that are kept.
const COMMIT_PART: u64 = 1 << 30;

/// One way to copy a file's content, and whether the server refused it in this run.
#[derive(Default)]
struct Way {
    is_off: AtomicBool,
    files: AtomicU64,
}

impl Way {
    /// Checks whether further files are to be copied in this way. A way that has worked once is of use here, whatever the
    /// server said about another file: a user may have shortened that file during its copy.
    fn is_on(&self) -> bool {
        self.files.load(Ordering::Relaxed) > 0 || !self.is_off.load(Ordering::Relaxed)
    }

    /// Notes an error: the next way copies this file, and all further files if this way is of no use here.
    fn failed(&self, error: &NfsError) {
        if is_permanent(error) {
            self.is_off.store(true, Ordering::Relaxed);
        }
    }

    fn done(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }
}

/// The ways to copy a file's content, in the order of preference.
#[derive(Default)]
pub struct Ways {
    clone: Way,
    copy: Way,
    read_and_write: Way,
}

impl Ways {
    /// Returns how many files were copied in which way, for people.
    pub fn summary(&self) -> String {
        let files = |way: &Way| way.files.load(Ordering::Relaxed);
        format!(
            "{} files share their blocks with the source, the server copied {}, and this image read and wrote {}",
            files(&self.clone),
            files(&self.copy),
            files(&self.read_and_write)
        )
    }
}

/// Checks whether the server will refuse each further file, too.
fn is_permanent(error: &NfsError) -> bool {
    let error = error.operation_outcome().map_or(error, |outcome| &outcome.source);
    match error {
        NfsError::Unsupported(_) | NfsError::InvalidInput(_) | NfsError::Xdr(_) => true,
        NfsError::Nfs4(code) => matches!(
            code,
            V4::NFS4ERR_NOTSUPP
                | V4::NFS4ERR_OP_ILLEGAL
                | V4::NFS4ERR_XDEV
                | V4::NFS4ERR_INVAL
                | V4::NFS4ERR_OFFLOAD_DENIED
                | V4::NFS4ERR_OFFLOAD_NO_REQS
        ),
        _ => false,
    }
}

/// Copies the first `size` bytes of an open file into an open, new file. After the return, the data are on the disk.
pub async fn copy(mount: &dyn Mount, ways: &Ways, source: &ObjRes, target: &ObjRes, size: u64) -> Result<(), NfsError> {
    if size == 0 {
        return Ok(());
    }
    if ways.clone.is_on() {
        match mount.clone_range(source.fh.clone(), target.fh.clone(), 0, 0, 0).await {
            Ok(()) => {
                mount.commit(target.fh.clone(), 0, 0).await?;
                ways.clone.done();
                return Ok(());
            }
            Err(error) => ways.clone.failed(&error),
        }
    }
    if ways.copy.is_on() {
        match by_server(mount, source, target, size).await {
            Ok(()) => {
                ways.copy.done();
                return Ok(());
            }
            Err(error) => ways.copy.failed(&error),
        }
    }
    by_client(mount, source, target, size).await?;
    ways.read_and_write.done();
    Ok(())
}

/// Lets the server copy the content. The client library commits each part.
async fn by_server(mount: &dyn Mount, source: &ObjRes, target: &ObjRes, size: u64) -> Result<(), NfsError> {
    let mut at = 0;
    while at < size {
        let part = COPY_PART.min(size - at);
        match mount.copy_range(source.fh.clone(), target.fh.clone(), at, at, part).await?.count {
            // Somebody has shortened the source meanwhile.
            0 => break,
            count => at += count,
        }
    }
    if at < size {
        mount.setattr(target.fh.clone(), None, None, None, None, Some(size), None, None).await?;
    }
    Ok(())
}

/// Reads and writes the content. Holes remain holes, and so do longer parts of zeros.
async fn by_client(mount: &dyn Mount, source: &ObjRes, target: &ObjRes, size: u64) -> Result<(), NfsError> {
    let (mut at, mut end) = (0, 0);
    while at < size {
        let Some((begin, stop)) = data(mount, source, at, size).await? else { break };
        at = stop;
        let mut from = begin;
        while from < stop {
            let to = stop.min(from + COMMIT_PART);
            end = end.max(range(mount, source, target, from, to).await?);
            from = to;
        }
    }
    if end < size {
        mount.setattr(target.fh.clone(), None, None, None, None, Some(size), None, None).await?;
    }
    Ok(())
}

/// Returns the next part with data, or the rest where the server does not tell holes. `None` if only a hole follows.
async fn data(mount: &dyn Mount, source: &ObjRes, at: u64, size: u64) -> Result<Option<(u64, u64)>, NfsError> {
    let begin = match mount.seek_content(source.fh.clone(), at, SeekContent::Data).await {
        Ok(found) if found.eof && found.offset <= at => return Ok(None),
        Ok(found) => found.offset,
        Err(NfsError::Nfs4(V4::NFS4ERR_NXIO)) => return Ok(None),
        Err(_) => return Ok(Some((at, size))),
    };
    if begin >= size {
        return Ok(None);
    }
    match mount.seek_content(source.fh.clone(), begin, SeekContent::Hole).await {
        Ok(found) if found.offset > begin => Ok(Some((begin, found.offset.min(size)))),
        _ => Ok(Some((begin, size))),
    }
}

/// Copies a range. Returns the end of what was written.
async fn range(mount: &dyn Mount, source: &ObjRes, target: &ObjRes, from: u64, to: u64) -> Result<u64, NfsError> {
    let part = PART.min(mount.get_max_read_size().min(mount.get_max_write_size()).into()).max(1);
    let begins = (0..(to - from).div_ceil(part)).map(|n| from + n * part);
    let parts: Vec<Vec<(u64, WriteOutcome)>> = futures::stream::iter(begins)
        .map(|begin| one(mount, source, target, begin, to.min(begin + part)))
        .buffer_unordered(MAX_CONCURRENT)
        .try_collect()
        .await?;
    let (ends, writes): (Vec<u64>, Vec<WriteOutcome>) = parts.into_iter().flatten().unzip();
    if !writes.is_empty() {
        mount.commit_write_batch(target.fh.clone(), 0, 0, &writes).await?;
    }
    Ok(ends.into_iter().max().unwrap_or(0))
}

/// Copies one part, except for zeros. Returns the acknowledgements of the server, each with the end of what it wrote.
async fn one(
    mount: &dyn Mount,
    source: &ObjRes,
    target: &ObjRes,
    begin: u64,
    end: u64,
) -> Result<Vec<(u64, WriteOutcome)>, NfsError> {
    let mut writes = Vec::new();
    let mut at = begin;
    while at < end {
        let wanted = u32::try_from(end - at).unwrap_or(u32::MAX);
        let mut read = mount.read(source.fh.clone(), at, wanted).await?;
        if read.is_empty() {
            // Somebody has shortened the file meanwhile.
            break;
        }
        let mut to = at;
        at += read.len() as u64;
        if read.iter().all(|byte| *byte == 0) {
            continue;
        }
        while !read.is_empty() {
            let outcome = mount.write(target.fh.clone(), to, read.clone()).await?;
            if outcome.count == 0 {
                return Err(NfsError::Rpc("the server wrote no byte of a WRITE".into()));
            }
            let written = read.len().min(outcome.count as usize);
            read = read.slice(written..);
            to += written as u64;
            writes.push((to, outcome));
        }
    }
    Ok(writes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_refuses_permanently_is_not_asked_again() {
        for code in [V4::NFS4ERR_NOTSUPP, V4::NFS4ERR_OP_ILLEGAL, V4::NFS4ERR_XDEV, V4::NFS4ERR_INVAL] {
            let way = Way::default();
            way.failed(&NfsError::Nfs4(code));
            assert!(!way.is_on(), "{code:?}");
        }
        // One file was shortened during its copy, and the others are not slower for that.
        for works_first in [true, false] {
            let way = Way::default();
            if works_first {
                way.done();
            }
            way.failed(&NfsError::Nfs4(V4::NFS4ERR_INVAL));
            assert_eq!(way.is_on(), works_first);
            way.done();
            assert!(way.is_on());
        }
        let way = Way::default();
        way.failed(&NfsError::Unsupported("CLONE requires NFSv4.2".into()));
        assert!(!way.is_on());
        for code in [V4::NFS4ERR_DELAY, V4::NFS4ERR_NOSPC, V4::NFS4ERR_IO, V4::NFS4ERR_STALE] {
            let way = Way::default();
            way.failed(&NfsError::Nfs4(code));
            assert!(way.is_on(), "{code:?}");
        }
    }
}

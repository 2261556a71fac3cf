//! The meaning of a server's error for the run. The functions are pure.

use flex_image_kit::Failure;
use nfs_rs::{Nfs3ErrorCode as V3, Nfs3MountErrorCode as Mount3, Nfs4ErrorCode as V4, NfsError};

/// The kinds of errors that the work distinguishes. All others are temporary problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The file does not exist.
    Missing,
    /// The file exists already.
    Exists,
    /// The directory is not empty.
    NotEmpty,
    /// The server does not allow the operation.
    Denied,
    /// The server can never do the operation.
    Refused,
    /// The disk or the quota is full.
    Full,
    /// Any other error: of the network, a restart, or inside the server.
    Passing,
}

/// Returns the kind of an error.
pub fn kind(error: &NfsError) -> Kind {
    match error {
        NfsError::Nfs4(code) => match code {
            V4::NFS4ERR_NOENT => Kind::Missing,
            V4::NFS4ERR_EXIST => Kind::Exists,
            V4::NFS4ERR_NOTEMPTY => Kind::NotEmpty,
            V4::NFS4ERR_ACCESS | V4::NFS4ERR_PERM | V4::NFS4ERR_WRONGSEC => Kind::Denied,
            V4::NFS4ERR_ROFS | V4::NFS4ERR_NOTDIR | V4::NFS4ERR_SYMLINK | V4::NFS4ERR_NAMETOOLONG => Kind::Refused,
            V4::NFS4ERR_BADOWNER | V4::NFS4ERR_BADNAME | V4::NFS4ERR_BADCHAR | V4::NFS4ERR_NOTSUPP => Kind::Refused,
            V4::NFS4ERR_MINOR_VERS_MISMATCH => Kind::Refused,
            V4::NFS4ERR_NOSPC | V4::NFS4ERR_DQUOT => Kind::Full,
            _ => Kind::Passing,
        },
        NfsError::Nfs3(code) => match code {
            V3::NFS3ERR_NOENT => Kind::Missing,
            V3::NFS3ERR_EXIST => Kind::Exists,
            V3::NFS3ERR_NOTEMPTY => Kind::NotEmpty,
            V3::NFS3ERR_ACCES | V3::NFS3ERR_PERM => Kind::Denied,
            V3::NFS3ERR_ROFS | V3::NFS3ERR_NOTDIR | V3::NFS3ERR_NAMETOOLONG | V3::NFS3ERR_NOTSUPP => Kind::Refused,
            V3::NFS3ERR_NOSPC | V3::NFS3ERR_DQUOT => Kind::Full,
            _ => Kind::Passing,
        },
        NfsError::Mount(code) => match code {
            Mount3::MNT3ERR_NOENT | Mount3::MNT3ERR_NOTDIR => Kind::Missing,
            Mount3::MNT3ERR_ACCES | Mount3::MNT3ERR_PERM => Kind::Denied,
            _ => Kind::Passing,
        },
        NfsError::InvalidInput(_) | NfsError::Unsupported(_) => Kind::Refused,
        _ => Kind::Passing,
    }
}

/// Checks whether the error means that a file is gone, by its name or by its handle.
pub fn is_gone(error: &NfsError) -> bool {
    let is_stale = matches!(error, NfsError::Nfs4(V4::NFS4ERR_STALE) | NfsError::Nfs3(V3::NFS3ERR_STALE));
    is_stale || kind(error) == Kind::Missing
}

/// Checks whether the error of a list may mean that an entry has vanished while the server read it. nfs-ganesha then tells
/// of a fault of its own.
pub fn may_have_vanished(error: &NfsError) -> bool {
    is_gone(error) || matches!(error, NfsError::Nfs4(V4::NFS4ERR_SERVERFAULT))
}

/// Checks whether the error means that the name is no directory.
pub fn is_no_directory(error: &NfsError) -> bool {
    matches!(error, NfsError::Nfs4(V4::NFS4ERR_NOTDIR | V4::NFS4ERR_SYMLINK) | NfsError::Nfs3(V3::NFS3ERR_NOTDIR))
}

/// Checks whether the error means that the server cannot do the operation at all, or has answered without the attribute.
/// After any other error, nobody knows.
pub fn is_unsupported(error: &NfsError) -> bool {
    match error {
        NfsError::Unsupported(_) | NfsError::Xdr(_) | NfsError::Nfs3(V3::NFS3ERR_NOTSUPP) => true,
        NfsError::Nfs4(code) => {
            matches!(code, V4::NFS4ERR_NOTSUPP | V4::NFS4ERR_ATTRNOTSUPP | V4::NFS4ERR_OP_ILLEGAL)
        }
        _ => false,
    }
}

/// Checks whether the error means that an extended attribute does not exist.
pub fn is_no_xattr(error: &NfsError) -> bool {
    matches!(error, NfsError::Nfs4(V4::NFS4ERR_NOXATTR))
}

/// Checks whether the server has answered that it does not speak this version of the protocol. A busy server says nothing
/// about that, and neither does one that is away.
pub fn refuses_version(error: &NfsError) -> bool {
    let error = error.operation_outcome().map_or(error, |outcome| &outcome.source);
    match error {
        NfsError::Nfs4(code) => !matches!(
            code,
            V4::NFS4ERR_DELAY
                | V4::NFS4ERR_GRACE
                | V4::NFS4ERR_IO
                | V4::NFS4ERR_SERVERFAULT
                | V4::NFS4ERR_NOSPC
                | V4::NFS4ERR_STALE
        ),
        NfsError::Rpc(_) | NfsError::Xdr(_) | NfsError::Unsupported(_) => true,
        _ => false,
    }
}

/// Checks whether the server may only reject the version of the protocol: it answered, but not about the export.
pub fn is_of_version(error: &NfsError) -> bool {
    matches!(error, NfsError::Nfs4(V4::NFS4ERR_MINOR_VERS_MISMATCH | V4::NFS4ERR_NOTSUPP) | NfsError::Rpc(_))
}

/// Makes the failure of an operation on the server.
pub fn failure(what: &str, at: &str, error: &NfsError) -> Failure {
    let text = format!("{what} on {at}: {error}");
    match kind(error) {
        Kind::Denied => Failure::permission(format!(
            "{text}; allow this client to write on the export, and to act as root (no_root_squash) where owner, or \
             the removal of other users' files, asks for it"
        )),
        Kind::Refused => Failure::config(text),
        Kind::Full => Failure::retry(format!("{text}; make room on the server")),
        _ => Failure::retry(text),
    }
}

/// Makes the failure to reach the export at all.
pub fn unreachable(at: &str, error: &NfsError) -> Failure {
    match kind(error) {
        Kind::Missing => Failure::config(format!(
            "{at} does not exist: {error}; `export` must be the path under which the server exports it, which with \
             NFSv4 is the path in its pseudo file system"
        )),
        Kind::Denied => Failure::permission(format!(
            "{at} does not let this client in: {error}; allow the nodes' addresses on the export, and ports above 1023 \
             (`insecure`) or set reserved-port: \"true\""
        )),
        Kind::Refused => Failure::config(format!("{at} cannot be used: {error}")),
        _ => Failure::retry(format!("{at} cannot be reached: {error}")),
    }
}

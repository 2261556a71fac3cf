//! Owner, mode, times, extended attributes and access control lists of a copy.

use flex_image_kit::Failure;
use nfs_rs::{Attr, Mount, NfsError, ObjRes};

use crate::trouble::{is_no_xattr, is_unsupported};

/// The number of the user and the group that the client library gives to all names that it does not know.
const NOBODY: u32 = 65534;

/// The attributes that not every server has.
pub struct Extras {
    xattrs: bool,
    acls: bool,
}

impl Extras {
    /// Asks the server about the file system of a directory.
    pub async fn of(mount: &dyn Mount, directory: &ObjRes) -> Result<Self, NfsError> {
        let attributes = supported(mount.nfs42_attributes(directory.fh.clone()).await)?;
        let acl = supported(mount.getacl(directory.fh.clone()).await)?;
        Ok(Self {
            xattrs: attributes.is_some_and(|attributes| attributes.xattr_support),
            acls: acl.is_some_and(|acl| !acl.aces.is_empty()),
        })
    }
}

/// Returns `None` if the server cannot do the operation. Any other error is one: the copy would lack something that its
/// source has.
fn supported<T>(answer: Result<T, NfsError>) -> Result<Option<T>, NfsError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_unsupported(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that the owner is a number. A copy would get another owner if the server named it by a text that only the
/// server knows.
pub fn check_owner(attributes: &Attr, what: &str) -> Result<(), Failure> {
    let owners = [(attributes.uid, &attributes.owner), (attributes.gid, &attributes.owner_group)];
    match owners.into_iter().find(|(number, text)| !is_number(*number, text)) {
        None => Ok(()),
        Some((_, text)) => Err(Failure::config(format!(
            "cannot copy {what}: the server names its owner `{text}`, which has no number here; let the server name \
             owners by numbers (Linux: nfs4_disable_idmapping, nfs-ganesha: Only_Numeric_Owners)"
        ))),
    }
}

fn is_number(number: u32, text: &str) -> bool {
    let name = text.split('@').next().unwrap_or_default();
    number != NOBODY || text.is_empty() || matches!(name, "nobody" | "nogroup" | "65534")
}

/// Gives a copy the attributes of its source.
///
/// Each step could undo an earlier one in another order. A change of the owner clears bits of the mode, a change of the
/// mode may replace the list, and a change of the list leaves the times.
pub async fn copy(
    mount: &dyn Mount,
    extras: &Extras,
    (source, attributes): (&ObjRes, &Attr),
    target: &ObjRes,
) -> Result<(), NfsError> {
    if extras.xattrs {
        for name in mount.listxattr(source.fh.clone()).await? {
            match mount.getxattr(source.fh.clone(), &name).await {
                // Somebody has removed it meanwhile.
                Err(error) if is_no_xattr(&error) => {}
                value => mount.setxattr(target.fh.clone(), &name, value?).await?,
            }
        }
    }
    let (uid, gid) = (attributes.uid, attributes.gid);
    if target.attr.as_ref().is_none_or(|now| (now.uid, now.gid) != (uid, gid)) {
        mount.setattr(target.fh.clone(), None, None, Some(uid), Some(gid), None, None, None).await?;
    }
    let mode = Some(attributes.file_mode & 0o7777);
    let (accessed, modified) = (Some(attributes.atime), Some(attributes.mtime));
    mount.setattr(target.fh.clone(), None, mode, None, None, None, accessed, modified).await?;
    if extras.acls {
        let acl = mount.getacl(source.fh.clone()).await?;
        mount.setacl(target.fh.clone(), &acl).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_server_cannot_do_is_left_out() {
        use nfs_rs::Nfs4ErrorCode as V4;
        assert_eq!(supported(Ok(1)).unwrap(), Some(1));
        let failed = |error| supported::<()>(Err(error));
        assert_eq!(failed(NfsError::Unsupported("no ACL".into())).unwrap(), None);
        assert_eq!(failed(NfsError::Nfs4(V4::NFS4ERR_NOTSUPP)).unwrap(), None);
        for passing in [V4::NFS4ERR_DELAY, V4::NFS4ERR_IO, V4::NFS4ERR_SERVERFAULT] {
            failed(NfsError::Nfs4(passing)).unwrap_err();
        }
    }

    #[test]
    fn an_owner_that_the_client_cannot_name_is_no_number() {
        for (number, text) in [(0, "root@site"), (1000, "1000"), (65534, "nobody@site"), (65534, "65534"), (65534, "")]
        {
            assert!(is_number(number, text), "{text}");
        }
        assert!(!is_number(65534, "alice@site"));
    }
}

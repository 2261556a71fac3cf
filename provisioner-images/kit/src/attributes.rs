//! The extended attributes of a file and of its copy: those of users, access control lists, and capabilities.

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;

use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;

/// The largest list of names and the largest value that Linux has.
const LARGEST: usize = 1 << 16;
/// The rights that a program gets when somebody starts it.
const CAPABILITIES: &CStr = c"security.capability";
/// The names of all others that are copied begin so. A kubelet gives labels of SELinux to the whole volume.
const COPIED: [&[u8]; 2] = [b"user.", b"system.posix_acl_"];

/// Copies the attributes of users and the access control lists of an open file.
///
/// # Errors
/// If the copy does not take an attribute.
pub(crate) fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    for name in names(from)? {
        if COPIED.iter().any(|start| name.to_bytes().starts_with(start)) {
            copy_one(from, to, &name)?;
        }
    }
    Ok(())
}

/// Copies the capabilities of an open file. A change of the owner would clear them. A run that has no right to give them
/// leaves them out.
///
/// # Errors
/// If there is another reason than a missing right.
pub(crate) fn copy_capabilities(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    match copy_one(from, to, CAPABILITIES) {
        Err(Errno::PERM | Errno::ACCESS) => Ok(()),
        outcome => outcome,
    }
}

fn copy_one(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let mut value = vec![0; LARGEST];
    match fs::fgetxattr(from, name, &mut value[..]) {
        Ok(length) => fs::fsetxattr(to, name, &value[..length], XattrFlags::empty()),
        // Somebody has removed it meanwhile, or the file system has none.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error),
    }
}

fn names(file: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let mut list = vec![0; LARGEST];
    let length = match fs::flistxattr(file, &mut list[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => 0,
        Err(error) => return Err(error),
    };
    let names = list[..length].split_inclusive(|byte| *byte == 0);
    Ok(names.filter_map(|name| CStr::from_bytes_with_nul(name).ok()).map(CStr::to_owned).collect())
}

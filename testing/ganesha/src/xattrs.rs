//! The operations of RFC 8276 on extended attributes, which nfs-ganesha 4.3 lacks for its local files. The front does them
//! on the disk below the server.

use std::io;
use std::path::Path;

use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};

use crate::wire::{self, Words};

/// The numbers of operations.
const GETXATTR: u32 = 72;
const SETXATTR: u32 = 73;
const LISTXATTRS: u32 = 74;
/// The attribute `xattr_support`, in the third word of a bitmap.
const SUPPORT: u32 = 1 << 18;
/// NFS4ERR_NOXATTR.
const NO_XATTR: u32 = 10_095;
/// The names on the wire lack this.
const USER: &str = "user.";
/// The largest value.
const LARGEST: usize = 64 << 10;

/// The treatment of extended attributes by the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Xattrs {
    /// The front leaves the answer to the server, which has none.
    OfServer,
    /// The front keeps them on the disk.
    OnDisk,
    /// The question whether there are any fails with this status of NFSv4.
    Unknown(u32),
}

/// A request about extended attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Whether a file system has any.
    Support,
    /// The value of one.
    Get(String),
    /// A new value.
    Set(String, Vec<u8>),
    /// All names.
    List,
}

impl Call {
    /// Returns the number of the operation.
    pub fn operation(&self) -> u32 {
        match self {
            Call::Support => wire::GETATTR,
            Call::Get(_) => GETXATTR,
            Call::Set(..) => SETXATTR,
            Call::List => LISTXATTRS,
        }
    }

    /// Reads the operation with its arguments; `None` for another one.
    pub fn read(words: &mut Words<'_>) -> Option<Self> {
        let name = |words: &mut Words<'_>| String::from_utf8(words.opaque()?.to_vec()).ok();
        match words.word()? {
            wire::GETATTR => {
                for expected in [3, 0, 0, SUPPORT] {
                    words.is(expected)?;
                }
                Some(Call::Support)
            }
            GETXATTR => Some(Call::Get(name(words)?)),
            SETXATTR => {
                words.word()?;
                Some(Call::Set(name(words)?, words.opaque()?.to_vec()))
            }
            LISTXATTRS => Some(Call::List),
            _ => None,
        }
    }

    /// Does the operation on a file of the disk. Returns the result without its status, or the status of the failure.
    pub fn done(&self, file: &Path) -> Result<Vec<u8>, u32> {
        let status = |error: rustix::io::Errno| match error {
            rustix::io::Errno::NODATA => NO_XATTR,
            _ => wire::IO_ERROR,
        };
        let mut result = Vec::new();
        match self {
            // The bitmap, and the value `true`.
            Call::Support => [3, 0, 0, SUPPORT, 4, 1].iter().for_each(|word| wire::add_word(&mut result, *word)),
            Call::Get(name) => wire::add_opaque(&mut result, &value(file, name).map_err(status)?),
            Call::Set(name, value) => {
                lsetxattr(file, format!("{USER}{name}"), value, XattrFlags::empty()).map_err(status)?;
                // Not atomic; the numbers of the change before and after.
                result.resize(20, 0);
            }
            Call::List => {
                let names = names(file).map_err(|_| wire::IO_ERROR)?;
                result.resize(8, 0);
                wire::add_word(&mut result, u32::try_from(names.len()).unwrap_or(0));
                names.iter().for_each(|name| wire::add_opaque(&mut result, name.as_bytes()));
                // No names follow.
                wire::add_word(&mut result, 1);
            }
        }
        Ok(result)
    }
}

fn value(file: &Path, name: &str) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0; LARGEST];
    let length = lgetxattr(file, format!("{USER}{name}"), value.as_mut_slice())?;
    value.truncate(length);
    Ok(value)
}

fn names(file: &Path) -> io::Result<Vec<String>> {
    let mut text = vec![0_u8; LARGEST];
    let length = llistxattr(file, text.as_mut_slice())?;
    let names = text[..length].split(|byte| *byte == 0).map(|name| String::from_utf8_lossy(name).into_owned());
    Ok(names.filter_map(|name| name.strip_prefix(USER).map(str::to_owned)).collect())
}

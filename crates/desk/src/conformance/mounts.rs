//! The content of volumes where pods mount them: a text that pods write, and the sum of what they read.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::PersistentVolume;
use sha2::Digest;

use super::pending::Pending;

/// The bytes of each part of the content.
pub const PART: usize = 64 * 1024;
/// The parts: two files, of which one is in a directory, or the beginning and the end of a device.
const PARTS: usize = 2;

/// The content of a volume, as a pod has read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The SHA-256 of all parts, in hexadecimal digits.
    Sum(String),
    /// The volume is empty.
    Empty,
    /// No pod can use the volume, with the reason.
    Unusable(String),
}

/// A place where pods mount volumes.
pub trait Mounts {
    /// Fills each part of the content of a volume with a line, and reads the content.
    fn write<'a>(&'a self, volume: &'a PersistentVolume, line: &'a str) -> Pending<'a, Reading>;

    /// Reads the content of a volume.
    fn read<'a>(&'a self, volume: &'a PersistentVolume) -> Pending<'a, Reading>;
}

/// Returns the sum of a content whose parts repeat a line.
pub fn sum(line: &str) -> String {
    let part: Vec<u8> = format!("{line}\n").into_bytes().into_iter().cycle().take(PART).collect();
    let digest = sha2::Sha256::digest(part.repeat(PARTS));
    digest.iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_of_different_lines_have_different_sums() {
        assert_ne!(sum("the data of a user"), sum("later data"));
        // `(yes x | head -c 65536; yes x | head -c 65536) | sha256sum`
        assert_eq!(sum("x"), "a85e246abe18d33a376f4fceb59aa5020443eb4e2c6ed2f0e4678caee9069d8d");
    }
}

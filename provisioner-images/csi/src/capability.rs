//! The mapping from access modes and volume mode to CSI's volume capabilities. It is pure.

use csi_spec::csi::VolumeCapability;
use csi_spec::csi::volume_capability::access_mode::Mode;
use csi_spec::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use flex_contract::request::RunRequest;
use flex_contract::volume_mode::VolumeMode;
use flex_image_kit::Failure;

/// Returns a capability for each access mode. `tells_writers_apart` says that the driver supports
/// SINGLE_NODE_MULTI_WRITER.
///
/// # Errors
/// If an access mode is not known.
pub fn capabilities(
    request: &RunRequest,
    fs_type: &str,
    tells_writers_apart: bool,
) -> Result<Vec<VolumeCapability>, Failure> {
    let one = |name: &String| {
        let mode = mode(name, tells_writers_apart)
            .ok_or_else(|| Failure::never(format!("the access mode {name} is not known to CSI")))?;
        let access = match request.volume_mode {
            VolumeMode::Block => AccessType::Block(BlockVolume {}),
            _ => AccessType::Mount(MountVolume {
                fs_type: fs_type.to_owned(),
                mount_flags: request.mount_options.clone(),
                volume_mount_group: String::new(),
            }),
        };
        Ok(VolumeCapability { access_mode: Some(AccessMode { mode: mode as i32 }), access_type: Some(access) })
    };
    request.access_modes.iter().map(one).collect()
}

fn mode(name: &str, tells_writers_apart: bool) -> Option<Mode> {
    match (name, tells_writers_apart) {
        ("ReadWriteOnce", true) => Some(Mode::SingleNodeMultiWriter),
        ("ReadWriteOncePod", true) => Some(Mode::SingleNodeSingleWriter),
        ("ReadWriteOnce" | "ReadWriteOncePod", false) => Some(Mode::SingleNodeWriter),
        ("ReadOnlyMany", _) => Some(Mode::MultiNodeReaderOnly),
        ("ReadWriteMany", _) => Some(Mode::MultiNodeMultiWriter),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes_become_capabilities() {
        for (name, apart, expected) in [
            ("ReadWriteOnce", false, Some(Mode::SingleNodeWriter)),
            ("ReadWriteOnce", true, Some(Mode::SingleNodeMultiWriter)),
            ("ReadWriteOncePod", false, Some(Mode::SingleNodeWriter)),
            ("ReadWriteOncePod", true, Some(Mode::SingleNodeSingleWriter)),
            ("ReadOnlyMany", true, Some(Mode::MultiNodeReaderOnly)),
            ("ReadWriteMany", false, Some(Mode::MultiNodeMultiWriter)),
            ("ReadSometimes", false, None),
        ] {
            assert_eq!(mode(name, apart), expected, "{name} {apart}");
        }
    }

    #[test]
    fn block_volumes_have_neither_file_system_nor_flags() {
        let mut request = crate::topology::tests::request();
        request.access_modes = vec!["ReadWriteOnce".into(), "ReadOnlyMany".into()];
        request.mount_options = vec!["noatime".into()];
        let mounts = capabilities(&request, "xfs", false).unwrap();
        let mount = MountVolume { fs_type: "xfs".into(), mount_flags: vec!["noatime".into()], ..Default::default() };
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[1].access_type, Some(AccessType::Mount(mount)));
        request.volume_mode = "Block".into();
        let blocks = capabilities(&request, "xfs", false).unwrap();
        assert_eq!(blocks[0].access_type, Some(AccessType::Block(BlockVolume {})));
    }
}

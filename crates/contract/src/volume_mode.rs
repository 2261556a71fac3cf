//! The mode of a volume.

crate::text_enum! {
    /// The volume mode: the form in which a pod gets the volume.
    #[derive(Default)]
    pub enum VolumeMode {
        /// A directory of a file system.
        #[default]
        Filesystem = "Filesystem",
        /// A raw block device.
        Block = "Block",
    }
}

impl VolumeMode {
    /// Returns the mode of an object. Without a text it is `Filesystem`, as in Kubernetes.
    pub fn of(text: Option<&str>) -> Self {
        text.map(Self::from).unwrap_or_default()
    }
}

//! The policies for a volume or a snapshot that nobody needs any more.

crate::text_enum! {
    /// The reclaim policy of a volume, or the deletion policy of a snapshot: what happens when its claim or its
    /// VolumeSnapshot is gone.
    pub enum ReclaimPolicy {
        /// The object is deleted, and its storage with it.
        Delete = "Delete",
        /// The object stays, with its storage.
        Retain = "Retain",
    }
}

//! The flags of `conformance --cluster`.

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use flex_core::config::values::duration;
use flex_core::object::ObjectName;

use crate::cluster::Login;
use crate::flags::config_name;

/// The cluster, and what of it the runs use.
#[derive(Clone, Debug, Args)]
pub(in crate::desk) struct OnClusterArgs {
    /// Run the cases as Jobs on a cluster, with the config's own image, account, Secrets and storage.
    #[arg(long, conflicts_with_all = ["program", "storage", "path", "unconfined", "on_node", "external_storage", "front", "read_with", "write_with"], help_heading = "Cluster")]
    pub(in crate::desk) cluster: bool,
    /// The provisioner ConfigMap on the cluster, in place of a file.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = config_name, requires = "cluster", conflicts_with = "config", help_heading = "Cluster")]
    pub(super) cluster_config: Option<ObjectName>,
    /// The image to prove, with all other settings of the config.
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new(), requires = "cluster", help_heading = "Cluster")]
    pub(super) image: Option<String>,
    /// The namespace of the Jobs [default: that of the config].
    #[arg(long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new(), requires = "cluster", help_heading = "Cluster")]
    pub(super) namespace: Option<String>,
    /// The node of the Jobs, for a class whose volumes are on nodes [default: one that the class allows].
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), requires = "cluster", help_heading = "Cluster")]
    pub(super) node: Option<String>,
    /// The image with a shell for the pods that mount volumes [default: the image for scripts of the orchestrator].
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new(), requires = "cluster", help_heading = "Cluster")]
    pub(super) mount_image: Option<String>,
    /// The user id of the pods that mount volumes [default: 65532, or 0 for block volumes].
    #[arg(long, value_name = "UID", value_parser = clap::value_parser!(i64).range(0..=i64::from(i32::MAX)), requires = "cluster", help_heading = "Cluster")]
    pub(super) mount_user: Option<i64>,
    /// The time in which a pod that mounts a volume must have ended.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration, requires = "cluster", help_heading = "Cluster")]
    pub(super) mount_timeout: Duration,
    #[command(flatten)]
    pub(super) login: Login,
}

//! The reason why a run does not start, what an admin can do, and the text about both.

use super::mounts::EXISTING_VOLUME;

/// The reason why a run does not start, by what Kubernetes says of its Job or pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StuckReason {
    /// The image cannot be pulled.
    ImagePull,
    /// The node cannot read the image that it has pulled.
    ImageInspect,
    /// The image names its user by a name, not a number. Kubernetes cannot check a name.
    NamedUser,
    /// The image wants to run as root, and may not.
    RunsAsRoot,
    /// The container cannot be set up as the pod describes it.
    ContainerConfig,
    /// The pod fits on no node.
    Unschedulable,
    /// The ServiceAccount does not exist.
    AccountMissing,
    /// Kubernetes does not create the pod, for another reason.
    NotCreated,
    /// The directory of the volume or snapshot is not on the node.
    DirectoryMissing,
    /// A volume of the pod cannot be mounted, for another reason.
    NotMounted,
    /// Any other reason.
    Other,
}

impl StuckReason {
    /// Reads the reason and the message of Kubernetes.
    pub fn of(reason: &str, message: &str) -> Self {
        let says = |text: &str| message.contains(text);
        match reason {
            "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => StuckReason::ImagePull,
            "ImageInspectError" => StuckReason::ImageInspect,
            "CreateContainerConfigError" if says("non-numeric user") => StuckReason::NamedUser,
            "CreateContainerConfigError" if says("runAsNonRoot") || says("non-root policy") => StuckReason::RunsAsRoot,
            "CreateContainerConfigError" => StuckReason::ContainerConfig,
            "Unschedulable" => StuckReason::Unschedulable,
            "FailedCreate" if says("serviceaccount") && says("not found") => StuckReason::AccountMissing,
            "FailedCreate" => StuckReason::NotCreated,
            "FailedMount" if says(EXISTING_VOLUME) => StuckReason::DirectoryMissing,
            "FailedMount" => StuckReason::NotMounted,
            _ => StuckReason::Other,
        }
    }

    /// Checks whether the image or its settings are the reason. A new pod of a corrected config may start.
    pub fn is_of_image(self) -> bool {
        use StuckReason::{ContainerConfig, ImageInspect, ImagePull, NamedUser, RunsAsRoot};
        matches!(self, ImagePull | ImageInspect | NamedUser | RunsAsRoot | ContainerConfig)
    }

    /// Says what the reason means, and what to do.
    pub fn hint(self) -> &'static str {
        match self {
            StuckReason::ImagePull => {
                "the image cannot be pulled; look at `image`, `image-pull-policy` and `image-pull-secrets` of the provisioner config"
            }
            StuckReason::NamedUser => {
                "the image names its user by a name, not a number, and Kubernetes cannot check a name; write the user's number as `run-as-user` in the provisioner config"
            }
            StuckReason::RunsAsRoot => {
                "the image wants to run as root; if it may, set `run-as-user: \"0\"` in the provisioner config"
            }
            StuckReason::ContainerConfig => "the provisioner's container cannot be set up",
            StuckReason::Unschedulable => {
                "the provisioner's pod fits on no node; look at `node-selector`, `tolerations` and `resources` of the provisioner config"
            }
            StuckReason::AccountMissing => {
                "the ServiceAccount does not exist; create it in the namespace of the provisioner config, or correct `service-account-name`"
            }
            StuckReason::NotCreated => "Kubernetes does not create the provisioner's pod",
            StuckReason::DirectoryMissing => {
                "the directory of the volume or snapshot is not on the node: its data is lost, or its disk is not mounted there"
            }
            StuckReason::NotMounted => "a volume of the provisioner's pod cannot be mounted",
            StuckReason::ImageInspect | StuckReason::Other => "the provisioner's pod does not start",
        }
    }
}

/// Returns the message of Kubernetes, with advice where there is any.
pub(super) fn explain(reason: &str, message: &str) -> String {
    format!("{}: {reason}: {message}", StuckReason::of(reason, message).hint())
}

/// Removes the random part from the Job controller's message about a pod that it cannot create. The text is then the
/// same for the same cause, and one event is emitted.
pub(super) fn strip_random_suffix(message: &str, job: &str) -> String {
    const RANDOM_SUFFIX_LEN: usize = 5;
    let named = format!("{job}-");
    let mut parts = message.split(&named);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let name = part.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(part.len());
        text.push_str(job);
        match name == RANDOM_SUFFIX_LEN {
            true => text.push_str(&part[RANDOM_SUFFIX_LEN..]),
            false => text.extend(["-", part]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new attempt is worth it where the image or its settings may have changed.
    #[test]
    fn reasons_of_the_image_are_distinguished_from_those_of_the_node() {
        for (reason, message, is_of_image) in [
            ("ErrImagePull", "not found", true),
            ("ImagePullBackOff", "", true),
            ("InvalidImageName", "", true),
            ("ErrImageNeverPull", "", true),
            ("ImageInspectError", "", true),
            ("CreateContainerConfigError", "secret \"a\" not found", true),
            ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", true),
            ("Unschedulable", "0/1 nodes are available", false),
            ("FailedCreate", "serviceaccount \"a\" not found", false),
            ("FailedMount", "no such directory", false),
            ("CrashLoopBackOff", "", false),
        ] {
            assert_eq!(StuckReason::of(reason, message).is_of_image(), is_of_image, "{reason}: {message}");
        }
    }
}

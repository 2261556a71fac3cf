//! The phases of pods, as Kubernetes writes them into the status.

use flex_contract::text_enum;

text_enum! {
    /// The phase of a Pod.
    #[derive(Default)]
    pub enum PodPhase {
        /// The status has no phase yet.
        #[default]
        Unset = "",
        /// Not all containers have started.
        Pending = "Pending",
        /// A container runs, or is started again.
        Running = "Running",
        /// All containers have ended with the exit code 0.
        Succeeded = "Succeeded",
        /// All containers have ended, and one has failed.
        Failed = "Failed",
        /// The node does not answer.
        Unknown = "Unknown",
    }
}

impl PodPhase {
    /// Checks whether no container of the pod runs any more.
    pub fn has_ended(&self) -> bool {
        matches!(self, PodPhase::Succeeded | PodPhase::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_says_whether_all_is_over() {
        for text in ["", "Pending", "Running", "Succeeded", "Failed", "Unknown", "Melted"] {
            assert_eq!(PodPhase::from(text).has_ended(), ["Succeeded", "Failed"].contains(&text), "{text}");
        }
    }
}

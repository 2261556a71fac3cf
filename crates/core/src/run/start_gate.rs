//! The scheduling gate with which the pod of a run is born. [`gate`](super::gate) decides who opens it.

use flex_contract::names;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1 as core;

/// Adds the gate to the pods of a Job.
pub fn add(job: &mut batch::Job) {
    let pod = job.spec.get_or_insert_default().template.spec.get_or_insert_default();
    let gate = core::PodSchedulingGate { name: names::START_GATE.into() };
    pod.scheduling_gates.get_or_insert_default().push(gate);
}

/// Checks whether the pods of a Job have the gate.
pub(super) fn has_gate(job: &batch::Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).is_some_and(|pod| position(pod).is_some())
}

/// Returns the position of the gate among all gates of a pod.
pub(super) fn position(pod: &core::PodSpec) -> Option<usize> {
    pod.scheduling_gates.iter().flatten().position(|gate| gate.name == names::START_GATE)
}

/// Returns the names of the gates of others on a pod.
pub(super) fn foreign(pod: &core::PodSpec) -> Vec<&str> {
    let gates = pod.scheduling_gates.iter().flatten().map(|gate| gate.name.as_str());
    gates.filter(|gate| *gate != names::START_GATE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_stands_beside_those_of_others() {
        let mut job = batch::Job::default();
        assert!(!has_gate(&job));
        add(&mut job);
        assert!(has_gate(&job));
        let gates = ["example.org/hold", names::START_GATE].map(|name| core::PodSchedulingGate { name: name.into() });
        let pod = core::PodSpec { scheduling_gates: Some(gates.to_vec()), ..core::PodSpec::default() };
        assert_eq!((position(&pod), foreign(&pod)), (Some(1), vec!["example.org/hold"]));
    }
}

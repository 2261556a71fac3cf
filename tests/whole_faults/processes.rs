//! The processes of pods, as the machine has them.

use std::fs;

/// A process in a pod of this checkout's cluster.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its process id.
    pub pid: i32,
    /// The process id of its parent: for the first process of a container that is containerd's shim.
    pub parent: i32,
    /// Its command line.
    pub command: Vec<String>,
    /// The control group of its pod.
    pub pod: String,
}

/// Lists all processes of pods.
pub fn of_pods() -> Vec<Process> {
    let cluster = format!("/flex-cluster-{}/", cluster::tests_name());
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| process(pid, &cluster)).collect()
}

fn process(pid: i32, cluster: &str) -> Option<Process> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let group = groups.lines().find(|line| line.contains(cluster))?;
    let pod = group.rsplit_once('/')?.0.rsplit('/').next()?.to_owned();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = command.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    Some(Process { pid, parent, command, pod })
}

/// Lists the first processes of the containers whose script contains a mark.
pub fn of_script(mark: &str) -> Vec<Process> {
    let all = of_pods();
    let marked = |process: &&Process| process.command.get(2).is_some_and(|script| script.contains(mark));
    let inside: Vec<i32> = all.iter().map(|process| process.pid).collect();
    all.iter().filter(marked).filter(|process| !inside.contains(&process.parent)).cloned().collect()
}

/// Returns the process that keeps a pod's namespaces.
pub fn sandbox_of(process: &Process) -> Option<i32> {
    let pauses = |other: &Process| other.pod == process.pod && other.command.first().is_some_and(|c| c == "/pause");
    of_pods().into_iter().find(pauses).map(|other| other.pid)
}

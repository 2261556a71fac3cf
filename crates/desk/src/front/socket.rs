//! The place on this machine of a socket that a run sees.

use std::path::{Path, PathBuf};

use crate::container::{Content as Source, PodFacts, container};
use crate::desk::Tools;
use crate::on_node::place;
use crate::order::{Content, Order};
use crate::setting::{NODE, Setting};

/// The name of the pod, on which nothing depends.
const POD: &str = "desk-run";

/// Returns the path on this machine of a socket, by the mounts of a run and the directories in place of paths of the node.
///
/// # Errors
/// If the socket is in no such directory.
pub(super) fn on_this_machine(path: &Path, setting: &Setting, tools: &Tools) -> Result<PathBuf, String> {
    if tools.unconfined {
        return Ok(path.to_path_buf());
    }
    let order = Order::Provision { claim: setting.claim.clone(), content: Content::Empty };
    let job = setting.job(&order, 1, "")?;
    let facts = PodFacts { name: POD, node: NODE, secrets: &setting.secrets, configs: &setting.configs };
    let container = container(&job, facts).map_err(|missing| missing.join("; "))?;
    let mounts = container.mounts.iter().filter(|mount| path.starts_with(&mount.path));
    let mount = mounts.max_by_key(|mount| mount.path.len());
    let real = mount.and_then(|mount| match &mount.content {
        Source::OnNode { path: base, sub_path, .. } => {
            let within = path.strip_prefix(&mount.path).ok()?;
            let on_node = Path::new(base).join(sub_path).join(within);
            place(&tools.on_node, &on_node.to_string_lossy()).map(|(_, real)| real)
        }
        Source::Files(_) | Source::Empty | Source::Remote { .. } | Source::OfDesk(_) => None,
    });
    real.ok_or_else(|| {
        format!(
            "the socket {} is in no directory of this machine that the runs see: name its directory by --on-node",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::on_node::OnNode;
    use crate::setting::tests::{config, read};

    #[test]
    fn a_socket_is_found_by_the_mounts_of_the_run() {
        let volume = "{name: driver, hostPath: {path: /var/lib/driver}}";
        let mounts = "[{name: driver, mountPath: /csi}]";
        let template =
            format!("{{spec: {{volumes: [{volume}], containers: [{{name: provisioner, volumeMounts: {mounts}}}]}}}}");
        let setting = read(&config("a", &format!("image: i, pod-template: '{template}'")), None).unwrap();
        let on_node = vec![OnNode { path: "/var/lib/driver".into(), directory: "/run/mine".into() }];
        let given = Tools { on_node, ..Tools::default() };
        let found = |path: &str, tools: &Tools| on_this_machine(Path::new(path), &setting, tools);
        assert_eq!(found("/csi/csi.sock", &given), Ok("/run/mine/csi.sock".into()));
        for (path, tools) in [("/csi/csi.sock", &Tools::default()), ("/other/csi.sock", &given)] {
            let why = found(path, tools).unwrap_err();
            assert!(why.contains(path) && why.contains("--on-node"), "{why}");
        }
        let unconfined = Tools { unconfined: true, ..Tools::default() };
        assert_eq!(found("/csi/csi.sock", &unconfined), Ok("/csi/csi.sock".into()));
    }
}

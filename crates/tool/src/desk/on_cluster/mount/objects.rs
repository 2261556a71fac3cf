//! The objects by which a pod mounts the volume of a run: a second PersistentVolume with the same source, its claim, and the
//! pod.

use std::collections::BTreeMap;

use flex_contract::names::{LABEL_INSTANCE, OS, OS_LINUX};
use flex_contract::quantity;
use flex_desk::conformance::mounts::PART;
use flex_desk::setting::Setting;
use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, Pod, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// The label of the objects of this file, with the volume id. Only the command knows it.
pub(in super::super) const LABEL_MOUNT: &str = "flex-provisioner.io/mount-of";
/// The user of pods that mount a file system, if nobody names one.
const USER: i64 = 65532;
/// The user of pods that have a device: the device nodes of a container belong to root.
const USER_OF_DEVICES: i64 = 0;
/// The seconds after the timeout when Kubernetes itself ends a pod. The command must see the events first.
const DEADLINE: u64 = 60;
/// The bytes of a block of the program.
const BLOCK: u64 = 4096;
/// The program of the pod.
const PROGRAM: &str = include_str!("content.sh");
/// The place of the volume in the pod.
const VOLUME: &str = "/flex-volume";
/// The annotations of a volume from which the kubelet takes something.
const OF_KUBELET: [&str; 2] = ["pv.beta.kubernetes.io/gid", "volume.beta.kubernetes.io/mount-options"];

/// The task of a mount pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act<'a> {
    /// Fills each part of the content with a line.
    Write(&'a str),
    /// Reads the content.
    Read,
}

impl Act<'_> {
    /// Returns the word for messages.
    pub fn verb(self) -> &'static str {
        match self {
            Act::Write(_) => "writes into",
            Act::Read => "reads",
        }
    }
}

/// The common settings of all mount pods.
#[derive(Clone, Debug)]
pub(in super::super) struct MountPods {
    /// The image with a shell.
    pub image: String,
    /// The user; `None` for the usual one.
    pub user: Option<i64>,
    /// The time in seconds in which a pod must have ended.
    pub timeout: u64,
    /// The Secrets for pulling the image.
    pub pull_secrets: Vec<String>,
    /// The taints that the pods tolerate, as those of runs.
    pub tolerations: Vec<Toleration>,
    /// The namespace.
    pub namespace: String,
    /// The instance of the call.
    pub instance: String,
}

impl MountPods {
    /// Makes the pods of a setting.
    pub fn new(setting: &Setting, image: String, user: Option<i64>, timeout: u64) -> Self {
        let recipe = &setting.recipe;
        let of_template = recipe.pod_template.iter().filter_map(|template| template.spec.as_ref()?.tolerations.clone());
        MountPods {
            image,
            user,
            timeout,
            pull_secrets: recipe.pull_secrets.clone(),
            tolerations: recipe.tolerations.iter().cloned().chain(of_template.flatten()).collect(),
            namespace: recipe.config.namespace.clone(),
            instance: setting.identity.instance.clone(),
        }
    }

    fn metadata(&self, name: &str, id: &str, namespace: Option<&str>) -> ObjectMeta {
        let labels = [(LABEL_INSTANCE, self.instance.as_str()), (LABEL_MOUNT, id)];
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: namespace.map(str::to_owned),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        }
    }

    /// Builds the second PersistentVolume. Without a class, no provisioner acts on the object. With the reclaim policy
    /// `Retain`, the deletion of the object deletes no storage.
    pub(super) fn volume(&self, name: &str, id: &str, original: &PersistentVolume) -> PersistentVolume {
        let claim_ref = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("PersistentVolumeClaim".into()),
            namespace: Some(self.namespace.clone()),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        let spec = PersistentVolumeSpec {
            claim_ref: Some(claim_ref),
            storage_class_name: Some(String::new()),
            persistent_volume_reclaim_policy: Some("Retain".into()),
            volume_attributes_class_name: None,
            ..original.spec.clone().unwrap_or_default()
        };
        let annotations = original.metadata.annotations.iter().flatten();
        let annotations: BTreeMap<String, String> = annotations
            .filter(|(key, _)| OF_KUBELET.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let metadata = ObjectMeta { annotations: Some(annotations), ..self.metadata(name, id, None) };
        PersistentVolume { metadata, spec: Some(spec), status: None }
    }

    /// Builds the claim of the second PersistentVolume.
    pub(super) fn claim(&self, name: &str, id: &str, original: &PersistentVolume) -> PersistentVolumeClaim {
        let spec = original.spec.clone().unwrap_or_default();
        let claim = json!({ "spec": {
            "storageClassName": "",
            "volumeName": name,
            "accessModes": spec.access_modes,
            "volumeMode": spec.volume_mode,
            "resources": { "requests": { "storage": size(original) } },
        }});
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).expect("it has the fields of a claim");
        PersistentVolumeClaim { metadata: self.metadata(name, id, Some(&self.namespace)), ..claim }
    }

    /// Builds the pod.
    pub(super) fn pod(&self, name: &str, id: &str, original: &PersistentVolume, act: Act<'_>) -> Pod {
        let is_block = original.spec.as_ref().is_some_and(|spec| spec.volume_mode.as_deref() == Some("Block"));
        let user = self.user.unwrap_or(if is_block { USER_OF_DEVICES } else { USER });
        let (key, place) = if is_block { ("volumeDevices", "devicePath") } else { ("volumeMounts", "mountPath") };
        let mut container = json!({
            "name": "mount",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", PROGRAM],
            "env": variables(original, act),
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "resources": { "requests": { "cpu": "10m", "memory": "32Mi" } },
            "securityContext": { "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true },
        });
        container[key] = json!([{ "name": "volume", place: VOLUME }]);
        let mut security =
            json!({ "runAsUser": user, "runAsGroup": user, "seccompProfile": { "type": "RuntimeDefault" } });
        if user != 0 {
            container["securityContext"]["capabilities"] = json!({ "drop": ["ALL"] });
            security["runAsNonRoot"] = true.into();
            security["fsGroup"] = user.into();
            security["fsGroupChangePolicy"] = "OnRootMismatch".into();
        }
        let pod = json!({ "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": self.timeout.saturating_add(DEADLINE),
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "imagePullSecrets": self.pull_secrets.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>(),
            "nodeSelector": { OS: OS_LINUX },
            "tolerations": self.tolerations,
            "securityContext": security,
            "containers": [container],
            "volumes": [{ "name": "volume", "persistentVolumeClaim": { "claimName": name } }],
        }});
        let pod: Pod = serde_json::from_value(pod).expect("it has the fields of a pod");
        Pod { metadata: self.metadata(name, id, Some(&self.namespace)), ..pod }
    }
}

fn size(volume: &PersistentVolume) -> Option<&Quantity> {
    volume.spec.as_ref()?.capacity.as_ref()?.get("storage")
}

/// Returns the variables of the program.
fn variables(volume: &PersistentVolume, act: Act<'_>) -> Value {
    let (what, line) = match act {
        Act::Write(line) => ("write", line),
        Act::Read => ("read", ""),
    };
    // The last part of a device ends with the size of the volume.
    let bytes = size(volume).and_then(|size| quantity::bytes(&size.0).ok()).unwrap_or(0);
    let last = bytes.saturating_sub(PART as u64) / BLOCK;
    let variables = [
        ("DO", what.to_owned()),
        ("LINE", line.to_owned()),
        ("PART", PART.to_string()),
        ("LAST", last.to_string()),
        ("VOLUME", VOLUME.to_owned()),
        ("REPORT", "/dev/termination-log".to_owned()),
    ];
    variables.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use flex_desk::conformance::mounts::sum;

    use super::*;

    fn pods(user: Option<i64>) -> MountPods {
        MountPods {
            image: "shell".into(),
            user,
            timeout: 90,
            pull_secrets: vec!["registry".into()],
            tolerations: Vec::new(),
            namespace: "storage".into(),
            instance: "conformance-1".into(),
        }
    }

    fn original(mode: &str) -> PersistentVolume {
        serde_json::from_value(json!({
            "metadata": {
                "name": "pvc-1", "finalizers": ["flex-provisioner.io/volume"],
                "annotations": { "pv.beta.kubernetes.io/gid": "7", "flex-provisioner.io/claim-uuid": "1" },
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "volumeMode": mode, "capacity": { "storage": "1Mi" },
                "storageClassName": "nas", "persistentVolumeReclaimPolicy": "Delete", "mountOptions": ["hard"],
                "volumeAttributesClassName": "gold", "claimRef": { "name": "1", "namespace": "kube-system" },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [] } },
                "nfs": { "server": "nas.example", "path": "/1" },
            },
        }))
        .unwrap()
    }

    #[test]
    fn the_second_volume_has_the_source_of_the_first_and_no_provisioner() {
        let original = original("Filesystem");
        let (made, claim) = (pods(None).volume("m", "1", &original), pods(None).claim("m", "1", &original));
        let (first, second) = (original.spec.unwrap(), made.spec.unwrap());
        assert_eq!(
            (&second.nfs, &second.mount_options, &second.node_affinity),
            (&first.nfs, &first.mount_options, &first.node_affinity)
        );
        assert_eq!((&second.access_modes, &second.volume_mode), (&first.access_modes, &first.volume_mode));
        assert_eq!(second.storage_class_name.as_deref(), Some(""));
        assert_eq!(second.persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
        assert_eq!(second.volume_attributes_class_name, None);
        let (reserved, metadata) = (second.claim_ref.unwrap(), claim.metadata);
        assert_eq!((reserved.namespace, reserved.name), (metadata.namespace, metadata.name));
        let of_claim = claim.spec.unwrap();
        assert_eq!((of_claim.volume_name.as_deref(), of_claim.storage_class_name.as_deref()), (Some("m"), Some("")));
        assert_eq!(of_claim.volume_mode, first.volume_mode);
        assert_eq!(made.metadata.finalizers, None);
        let annotations = made.metadata.annotations.unwrap();
        assert_eq!(annotations.keys().collect::<Vec<_>>(), ["pv.beta.kubernetes.io/gid"]);
        for labels in [made.metadata.labels.unwrap(), metadata.labels.unwrap()] {
            assert_eq!((labels[LABEL_INSTANCE].as_str(), labels[LABEL_MOUNT].as_str()), ("conformance-1", "1"));
        }
    }

    #[test]
    fn a_pod_mounts_as_a_usual_user_and_gets_a_device_as_root() {
        for (mode, user, expected, group) in [
            ("Filesystem", None, 65532, Some(65532)),
            ("Block", None, 0, None),
            ("Filesystem", Some(0), 0, None),
            ("Block", Some(7), 7, Some(7)),
        ] {
            let pod = pods(user).pod("m", "1", &original(mode), Act::Read).spec.unwrap();
            let security = pod.security_context.unwrap();
            assert_eq!((security.run_as_user, security.fs_group), (Some(expected), group), "{mode} {user:?}");
            assert_eq!(security.run_as_non_root, group.map(|_| true));
            let container = &pod.containers[0];
            let is_device = container.volume_devices.as_ref().is_some_and(|devices| devices.len() == 1);
            assert_eq!((is_device, container.volume_mounts.is_some()), (mode == "Block", mode != "Block"));
            assert_eq!((pod.active_deadline_seconds, pod.automount_service_account_token), (Some(150), Some(false)));
        }
    }

    /// Runs the program of a pod for a directory or a file of this machine. Returns its report, or its complaint.
    fn run(volume: &std::path::Path, original: &PersistentVolume, act: Act<'_>) -> Result<String, String> {
        let report = tempfile::NamedTempFile::new().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", PROGRAM]);
        for variable in variables(original, act).as_array().unwrap() {
            shell.env(variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap());
        }
        let ended = shell.env("VOLUME", volume).env("REPORT", report.path()).output().unwrap();
        match ended.status.success() {
            true => Ok(std::fs::read_to_string(report.path()).unwrap()),
            false => Err(String::from_utf8_lossy(&ended.stderr).into_owned()),
        }
    }

    #[test]
    fn the_program_reports_the_sum_of_what_it_wrote_and_of_each_change() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, device) = (folder.path().join("directory"), folder.path().join("device"));
        std::fs::create_dir(&directory).unwrap();
        std::fs::File::create(&device).unwrap().set_len(1 << 20).unwrap();
        for (volume, mode) in [(&directory, "Filesystem"), (&device, "Block")] {
            let original = original(mode);
            assert_eq!(run(volume, &original, Act::Read).unwrap(), "empty", "{mode}");
            for line in ["some data", "other data of a user"] {
                assert_eq!(run(volume, &original, Act::Write(line)).unwrap(), sum(line), "{mode}");
                assert_eq!(run(volume, &original, Act::Read).unwrap(), sum(line), "{mode}");
            }
        }
        // The last byte of each place counts.
        let nested = directory.join("flex-directory/flex-content");
        for (volume, file, mode) in [(&directory, &nested, "Filesystem"), (&device, &device, "Block")] {
            let mut bytes = std::fs::read(file).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(file, bytes).unwrap();
            assert_ne!(run(volume, &original(mode), Act::Read).unwrap(), sum("other data of a user"), "{mode}");
        }
        std::fs::remove_file(&nested).unwrap();
        assert!(run(&directory, &original("Filesystem"), Act::Read).unwrap_err().contains("No such file"));
        assert!(
            run(&folder.path().join("absent"), &original("Block"), Act::Read).unwrap_err().contains("No such file")
        );
    }
}

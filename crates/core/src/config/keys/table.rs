//! The table of the keys.

use super::form;
use super::form::Form::*;
use super::spec::{Group, KeySpec};

/// Declares a constant for each key, with its comment as documentation, and the list of all.
macro_rules! keys {
    ($($(#[doc = $doc:literal])+ $key:ident = $name:literal, $group:ident {
        value: $value:literal, default: $default:literal, example: $example:literal, section: $section:literal,
        errors: $errors:expr,
        affects_volume: $affects:ident, follows_class: $follows:ident,
        class_may_set: $may_set:ident, leads_to_backend: $leads:ident, form: $form:expr,
    })*) => {
        $($(#[doc = $doc])+ pub const $key: KeySpec = KeySpec {
            name: $name,
            group: Group::$group,
            doc: &[$($doc),+],
            value: $value,
            default: $default,
            example: $example,
            errors: &$errors,
            section: $section,
            affects_volume: keys!(@ $affects),
            follows_class: keys!(@ $follows),
            class_may_set: keys!(@ $may_set),
            leads_to_backend: keys!(@ $leads),
            form: $form,
        };)*

        /// All keys, in the order of their documentation.
        pub const ALL: &[&KeySpec] = &[$(&$key),*];
    };
    (@ yes) => { true };
    (@ no) => { false };
}

keys! {
    /// The name of the orchestrator that serves the config.
    /// The orchestrator's provisioner name, such as `flex-provisioner.io`, has the same effect; orchestrators with other names ignore the config.
    /// `validate` and the admission policy `configs` warn of a name that is nearly right.
    PLUGIN_NAME = "plugin-name", Program {
        value: "the orchestrator's plugin name", default: "**required**",
        example: "kubernetes.io/flex-provisioner", section: "",
        errors: [("", "is missing; write `plugin-name: …`")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: yes, form: Text,
    }

    /// The CSI driver whose external provisioner the config replaces, or another provisioner that it replaces.
    REPLACES_PROVISIONER = "replaces-provisioner", Program {
        value: "a CSI driver, or another provisioner", default: "none", example: "ebs.csi.aws.com", section: "replaces-provisioner",
        errors: [("Driver", "cannot be the name of a CSI driver")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: no, form: Like(form::PROVISIONER),
    }

    /// The namespaces where that external provisioner may run.
    REPLACES_PROVISIONER_NAMESPACE = "replaces-provisioner-namespace", Program {
        value: "list of namespaces", default: "the ConfigMap's own and `kube-system`",
        example: "rook-ceph", section: "replaces-provisioner",
        errors: [("Rook", "cannot be the name of a namespace")],
        affects_volume: no, follows_class: no, class_may_set: no, leads_to_backend: no, form: List(form::NAME),
    }

    /// The Deployments of that provisioner.
    /// The orchestrator serves none of its classes while one of them has a replica or wants one.
    REPLACES_DEPLOYMENT = "replaces-deployment", Program {
        value: "list of `NAMESPACE/NAME`", default: "the usual ones of local-path and OpenEBS",
        example: "storage/nfs-subdir-external-provisioner", section: "replaces-provisioner",
        errors: [("storage", "is not the name of a Deployment")],
        affects_volume: no, follows_class: no, class_may_set: no, leads_to_backend: no, form: List(form::DEPLOYMENT),
    }

    /// The image that makes the volumes.
    IMAGE = "image", Program {
        value: "an image's name", default: "**required**, or the shell image with a `script`", example: "registry.example/team/x:1.0", section: "",
        errors: [("", "is missing"), ("two words", "is not the name of an image")],
        affects_volume: yes, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Like(form::IMAGE),
    }

    /// A shell program that the container runs in place of the image's entry point, with [the same contract](contract.md).
    /// `image` is then optional.
    SCRIPT = "script", Program {
        value: "a program for `/bin/sh`, at most 64 KiB", default: "none", example: "exec flex-pv create --local /srv/a",
        section: "script",
        errors: [("", "is empty"), ("#!/bin/bash", "runs with /bin/sh")],
        affects_volume: yes, follows_class: yes, class_may_set: no, leads_to_backend: yes, form: Text,
    }

    /// Replaces the entry point of the image.
    /// The check refuses quotes and operators outside of a YAML list, because no shell interprets them.
    COMMAND = "command", Program {
        value: "words between spaces, or a YAML list", default: "the image's entry point",
        example: "[sh, -c, \"exec /p --fast\"]", section: "",
        errors: [("echo $SIZE", "no shell reads this")],
        affects_volume: yes, follows_class: yes, class_may_set: no, leads_to_backend: yes, form: Text,
    }

    /// Replaces the arguments of the image.
    ARGS = "args", Program {
        value: "as `command`", default: "the image's arguments", example: "--verbose", section: "",
        errors: [("a | b", "no shell reads this")],
        affects_volume: yes, follows_class: yes, class_may_set: no, leads_to_backend: yes, form: Text,
    }

    /// Says when the kubelet pulls the image.
    IMAGE_PULL_POLICY = "image-pull-policy", Program {
        value: "`Always`, `IfNotPresent` or `Never`", default: "that of Kubernetes",
        example: "IfNotPresent", section: "",
        errors: [("Sometimes", "is not known")],
        affects_volume: no, follows_class: yes, class_may_set: no, leads_to_backend: no, form: OneOf(&["Always", "IfNotPresent", "Never"]),
    }

    /// The Secrets with which the kubelet pulls the image.
    IMAGE_PULL_SECRETS = "image-pull-secrets", Program {
        value: "list of Secrets", default: "none", example: "registry-login", section: "",
        errors: [("Login", "cannot be the name of a Secret")],
        affects_volume: no, follows_class: yes, class_may_set: no, leads_to_backend: no, form: List(form::NAME),
    }

    /// The pod creates the PersistentVolume with this [account](#the-account-of-the-image).
    /// Without the key, the pod has no access to the Kubernetes API.
    /// The verdict warns if the config has no Secret, no `service-token` and no `pod-template` either.
    SERVICE_ACCOUNT_NAME = "service-account-name", Program {
        value: "a ServiceAccount of the ConfigMap's namespace", default: "none",
        example: "nfs-provisioner", section: "",
        errors: [("Maker", "cannot be the name of a ServiceAccount")],
        affects_volume: yes, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Like(form::NAME),
    }

    /// The pod gets the text as `SERVICE_TOKEN` and as the file `/etc/flex/service-token`, by reference to this ConfigMap.
    /// The verdict warns of the key, because many can read a ConfigMap.
    /// A Secret in `secret-env` is better.
    SERVICE_TOKEN = "service-token", Program {
        value: "a text", default: "none", example: "eyJhbGciOi…", section: "",
        errors: [],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: yes, form: Text,
    }

    /// The keys of these Secrets become environment variables.
    SECRET_ENV = "secret-env", Program {
        value: "list of Secrets of the ConfigMap's namespace", default: "none", example: "array-login", section: "",
        errors: [("Login", "cannot be the name of a Secret")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: yes, form: List(form::NAME),
    }

    /// Each of these Secrets becomes a directory `/etc/flex-secrets/NAME`.
    SECRET_VOLUME = "secret-volume", Program {
        value: "list of Secrets of the ConfigMap's namespace", default: "none",
        example: "array-ca, array-key", section: "",
        errors: [("Key", "cannot be the name of a Secret")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: yes, form: List(form::NAME),
    }

    /// The orchestrator merges it under the pod that it generates.
    POD_TEMPLATE = "pod-template", Program {
        value: "a partial pod template in YAML", default: "none",
        example: "spec: {hostNetwork: true}", section: "pod-template",
        errors: [("hostNetwork: true", "which Kubernetes does not know there")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: yes, form: Yaml,
    }

    /// These mounts have a directory for each volume, and each run sees the directory of its own volume alone.
    STORAGE_MOUNTS = "storage-mounts", Program {
        value: "list of mount paths of `pod-template`", default: "none",
        example: "/var/lib/volumes", section: "storage-mounts",
        errors: [("volumes", "is not a path at which")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: no, form: Text,
    }

    /// Says where the pod of a run is: on the node of the volume, or on any node.
    PLACEMENT = "placement", Placement {
        value: "`selected-node` or `any`", default: "`selected-node`", example: "any", section: "",
        errors: [("here", "is not known")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: yes, form: OneOf(&["selected-node", "any"]),
    }

    /// Labels of nodes by which the orchestrator writes the node affinity of a volume whose image writes none.
    VOLUME_AFFINITY = "volume-affinity", Placement {
        value: "list of labels of nodes", default: "none", example: "topology.kubernetes.io/zone", section: "",
        errors: [("a b", "cannot be the key of a label")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: no, form: List(form::KEY),
    }

    /// Says what the orchestrator does about storage on a node that does not exist any more.
    NODE_GONE = "node-gone", Placement {
        value: "`hold`, `forget` or `run-elsewhere`", default: "`hold`", example: "forget", section: "",
        errors: [("wait", "is not known")],
        affects_volume: no, follows_class: no, class_may_set: no, leads_to_backend: no, form: OneOf(&["hold", "forget", "run-elsewhere"]),
    }

    /// Labels of the nodes on which the pod may run.
    /// Unless the config names `kubernetes.io/os`, they have Linux.
    NODE_SELECTOR = "node-selector", Placement {
        value: "`key=value`, comma-separated, or a YAML map", default: "any node with Linux", example: "storage=yes", section: "",
        errors: [("storage=yes, fast", "has no `=`")],
        affects_volume: yes, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Text,
    }

    /// The taints of nodes that the pod tolerates.
    TOLERATIONS = "tolerations", Placement {
        value: "YAML, as in a pod", default: "none", example: "[{key: storage, operator: Exists}]", section: "",
        errors: [("[{kei: storage}]", "which Kubernetes does not know there")],
        affects_volume: yes, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Yaml,
    }

    /// The PriorityClass of the pod.
    PRIORITY_CLASS = "priority-class", Placement {
        value: "a PriorityClass", default: "none", example: "system-cluster-critical", section: "",
        errors: [("High", "cannot be the name of a PriorityClass")],
        affects_volume: no, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Like(form::NAME),
    }

    /// The requests and limits of the container.
    RESOURCES = "resources", Placement {
        value: "YAML, as in a container", default: "requests of 5m CPU and 16Mi memory",
        example: "{requests: {memory: 32Mi}}", section: "",
        errors: [
            ("{limit: {memory: 32Mi}}", "which Kubernetes does not know there"),
            ("{requests: {memory: 32MB}}", "is not a size"),
        ],
        affects_volume: no, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Yaml,
    }

    /// The user id of the container; `"0"` permits root.
    /// With `any` the pod names no user, so that a platform such as OpenShift assigns one.
    /// Root stays forbidden then.
    RUN_AS_USER = "run-as-user", Placement {
        value: "a number, or `any`", default: "user 65532", example: "0", section: "",
        errors: [("root", "is not a user id")],
        affects_volume: yes, follows_class: yes, class_may_set: no, leads_to_backend: no, form: User,
    }

    /// Says whether a volume is deleted or stays when its claim is gone.
    /// A StorageClass wins.
    RECLAIM_POLICY = "reclaim-policy", Volumes {
        value: "`Delete` or `Retain`", default: "`Delete`", example: "Retain", section: "",
        errors: [("Recycle", "is not known")],
        affects_volume: no, follows_class: no, class_may_set: no, leads_to_backend: no, form: OneOf(&["Delete", "Retain"]),
    }

    /// The access modes that a claim may ask for.
    ACCESS_MODES = "access-modes", Volumes {
        value: "list", default: "all four", example: "ReadWriteOnce", section: "",
        errors: [("RWX", "is not known")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: no, form: SomeOf(&["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]),
    }

    /// The volume modes that a claim may ask for.
    /// `Block` is for images that make devices.
    VOLUME_MODE = "volume-mode", Volumes {
        value: "list of `Filesystem`, `Block`", default: "`Filesystem`", example: "Filesystem, Block", section: "",
        errors: [("Tape", "is not known")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: no, form: SomeOf(&["Filesystem", "Block"]),
    }

    /// The mount options of the volumes.
    /// A StorageClass wins, also one without any mount options.
    MOUNT_OPTIONS = "mount-options", Volumes {
        value: "list", default: "none", example: "nfsvers=4.1, noatime", section: "",
        errors: [],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: no, form: Text,
    }

    /// The file system of the volumes: the image gets it as `FS_TYPE`.
    FS_TYPE = "fs-type", Volumes {
        value: "a file system", default: "none", example: "ext4", section: "",
        errors: [("EXT 4", "is not a file system")],
        affects_volume: yes, follows_class: no, class_may_set: yes, leads_to_backend: no, form: Like(form::FILE_SYSTEM),
    }

    /// A claim that asks for less gets an event, and no volume.
    MIN_SIZE = "min-size", Volumes {
        value: "a size", default: "no limit", example: "1Gi", section: "",
        errors: [("small", "is not a size"), ("2Gi", "is larger than max-size")],
        affects_volume: no, follows_class: no, class_may_set: yes, leads_to_backend: no, form: Size,
    }

    /// A claim that asks for more gets an event, and no volume.
    /// A claim that asks for more later gets an event, and no larger volume.
    MAX_SIZE = "max-size", Volumes {
        value: "a size", default: "no limit", example: "100Gi", section: "",
        errors: [("large", "is not a size")],
        affects_volume: no, follows_class: yes, class_may_set: yes, leads_to_backend: no, form: Size,
    }

    /// The namespaces whose claims the class serves.
    NAMESPACES = "namespaces", Volumes {
        value: "list of namespaces", default: "all, without `namespace-selector`", example: "team-a, team-b", section: "namespaces",
        errors: [("", "is empty"), ("Team", "cannot be the name of a namespace")],
        affects_volume: no, follows_class: no, class_may_set: no, leads_to_backend: no, form: List(form::NAME),
    }

    /// Selects the namespaces whose claims the class serves, by their labels.
    NAMESPACE_SELECTOR = "namespace-selector", Volumes {
        value: "a label selector, as for `kubectl get -l`", default: "none", example: "tier=gold, env in (prod, test)",
        section: "namespaces",
        errors: [("", "is empty"), ("tier in gold", "is not a requirement of a label selector")],
        affects_volume: no, follows_class: no, class_may_set: no, leads_to_backend: no, form: Text,
    }

    /// The volume sources that the image may make.
    VOLUME_SOURCES = "volume-sources", Volumes {
        value: "list of volume sources", default: "`nfs` alone",
        example: "csi:ebs.csi.aws.com, local:/var/lib/volumes", section: "volume-sources",
        errors: [("floppy", "is not a volume source"), ("hostPath:/", "would allow every path of a node")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: no, form: Text,
    }

    /// Mount options that the image may write in addition to those of `mount-options`.
    VOLUME_MOUNT_OPTIONS = "volume-mount-options", Volumes {
        value: "list of mount options", default: "none", example: "nconnect=8", section: "",
        errors: [],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: no, form: Text,
    }

    /// Finalizers that the image may write in addition to those of the orchestrator and of Kubernetes.
    /// Those of Kubernetes are `kubernetes.io/pv-protection` and that of the attacher of the volume's own CSI driver.
    VOLUME_FINALIZERS = "volume-finalizers", Volumes {
        value: "list of finalizers", default: "none", example: "vendor.example/in-use", section: "",
        errors: [("in use", "cannot be the name of a finalizer")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: no, form: List(form::KEY),
    }

    /// Labels and annotations in the domains `kubernetes.io` and `k8s.io` that the image may write.
    VOLUME_METADATA = "volume-metadata", Volumes {
        value: "list of keys of labels and annotations", default: "none",
        example: "topology.kubernetes.io/zone", section: "",
        errors: [("the zone", "cannot be the key of a label or annotation")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: no, form: List(form::KEY),
    }

    /// Namespaces of which a volume may name any Secret.
    /// Without the key, a volume may name [the Secrets that its config names](#secrets-of-volumes).
    SECRET_NAMESPACES = "secret-namespaces", Volumes {
        value: "list of namespaces", default: "none", example: "vault", section: "",
        errors: [("Vault", "cannot be the name of a namespace")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: no, form: List(form::NAME),
    }

    /// How much larger a volume may be than its claim asks for.
    MAX_SURPLUS = "max-surplus", Volumes {
        value: "a size", default: "the claim's size, at least 10Gi", example: "1200Gi", section: "",
        errors: [("much", "is not a size")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: no, form: Size,
    }

    /// Declares what the image can do in addition to provision and delete.
    CAPABILITIES = "capabilities", Volumes {
        value: "list of capabilities", default: "none", example: "clone, expand, list", section: "capabilities",
        errors: [("resize", "is not a capability")],
        affects_volume: yes, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Capabilities,
    }

    /// Labels and annotations of the claim that the image gets in `CLAIM_METADATA`.
    CLAIM_METADATA = "claim-metadata", Volumes {
        value: "list of keys of labels and annotations", default: "none", example: "team.example/owner", section: "",
        errors: [("the owner", "cannot be the key of a label or annotation")],
        affects_volume: yes, follows_class: no, class_may_set: no, leads_to_backend: no, form: List(form::KEY),
    }

    /// How long one run may take.
    TIMEOUT = "timeout", Limits {
        value: "a time, 1 s to 168 h", default: "`5m`", example: "90s", section: "",
        errors: [("soon", "is not a length of time"), ("0s", "is out of range")],
        affects_volume: no, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Time,
    }

    /// The time between two attempts: it doubles with each attempt, from the first time to the longest.
    /// A single time is the first.
    BACKOFF = "backoff", Limits {
        value: "first and longest time", default: "`2s..5m`", example: "5s..10m", section: "",
        errors: [("5m..2s", "ends before it begins")],
        affects_volume: no, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Times,
    }

    /// The number of attempts at that pace.
    /// After them, the orchestrator makes one attempt every 30 minutes, or after the longest time of `backoff` if that is longer.
    /// It never gives up.
    RETRIES = "retries", Limits {
        value: "0 to 1000", default: "`15`", example: "5", section: "",
        errors: [("many", "must be a whole number from 0 to 1000")],
        affects_volume: no, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Number(0, 1000),
    }

    /// The number of [slots](#slots) of the class: how many runs it may have at one time.
    MAX_IN_FLIGHT = "max-in-flight", Limits {
        value: "1 to 10000", default: "`100`", example: "10", section: "",
        errors: [("0", "must be a whole number from 1 to 10000")],
        affects_volume: no, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Number(1, 10_000),
    }

    /// The slots for the claims, volumes and VolumeSnapshots of one namespace.
    MAX_IN_FLIGHT_PER_NAMESPACE = "max-in-flight-per-namespace", Limits {
        value: "1 to 10000", default: "no limit of its own", example: "2", section: "",
        errors: [("0", "must be a whole number from 1 to 10000")],
        affects_volume: no, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Number(1, 10_000),
    }

    /// The slots for the runs that must be on one node.
    /// It needs `placement: selected-node`.
    MAX_IN_FLIGHT_PER_NODE = "max-in-flight-per-node", Limits {
        value: "1 to 10000", default: "no limit of its own", example: "4", section: "",
        errors: [("0", "must be a whole number from 1 to 10000"), ("5", "set `placement: selected-node`")],
        affects_volume: no, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Number(1, 10_000),
    }

    /// How many claims one run may be for, or how many volumes one run may delete.
    /// With 1 each has a run of its own.
    /// The image must know [batches](contract.md#batch) ([how to use them](how-to/batches.md)).
    BATCH_SIZE = "batch-size", Limits {
        value: "1 to 250", default: "`1`", example: "50", section: "",
        errors: [("251", "must be a whole number from 1 to 250")],
        affects_volume: no, follows_class: no, class_may_set: no, leads_to_backend: no, form: Number(1, 250),
    }

    /// How long a batch that is not full waits for further members.
    /// It waits only while other runs of the class are in progress.
    BATCH_WINDOW = "batch-window", Limits {
        value: "a time, at most 5 s", default: "`50ms`", example: "200ms", section: "",
        errors: [("soon", "is not a length of time"), ("6s", "is out of range")],
        affects_volume: no, follows_class: no, class_may_set: no, leads_to_backend: no, form: Time,
    }

    /// The [quota](#quota) of the class: how many volumes it may have at one time.
    MAX_VOLUMES = "max-volumes", Limits {
        value: "0 to 1000000", default: "no limit", example: "100", section: "",
        errors: [("few", "must be a whole number from 0 to 1000000")],
        affects_volume: no, follows_class: no, class_may_set: no, leads_to_backend: no, form: Number(0, 1_000_000),
    }

    /// The same for the claims of one namespace.
    MAX_VOLUMES_PER_NAMESPACE = "max-volumes-per-namespace", Limits {
        value: "0 to 1000000", default: "no limit", example: "10", section: "",
        errors: [("few", "must be a whole number from 0 to 1000000")],
        affects_volume: no, follows_class: no, class_may_set: no, leads_to_backend: no, form: Number(0, 1_000_000),
    }

    /// The [quota](#quota) of bytes: the sum of the sizes of all volumes of the class.
    /// It also counts for [expansion](how-to/expansion.md).
    MAX_BYTES = "max-bytes", Limits {
        value: "a size", default: "no limit", example: "1Ti", section: "",
        errors: [("much", "is not a size")],
        affects_volume: no, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Size,
    }

    /// The same for the claims of one namespace.
    MAX_BYTES_PER_NAMESPACE = "max-bytes-per-namespace", Limits {
        value: "a size", default: "no limit", example: "100Gi", section: "",
        errors: [("much", "is not a size")],
        affects_volume: no, follows_class: yes, class_may_set: no, leads_to_backend: no, form: Size,
    }

    /// The time between two capacity runs, for configs with `capabilities: capacity`.
    /// After a change, the next run begins when the shorter time has passed since the last answer.
    /// Without a change, it begins when the longer time has passed.
    /// A single time is the longer one.
    CAPACITY_INTERVAL = "capacity-interval", Limits {
        value: "shortest and longest time", default: "`10s..30m`", example: "1m..1h", section: "",
        errors: [("soon", "is not a length of time"), ("1h..1m", "ends before it begins")],
        affects_volume: no, follows_class: no, class_may_set: no, leads_to_backend: no, form: Times,
    }

    /// The sizes of pooled volumes, each with how many of them: comma-separated, or a YAML map.
    /// Two numbers are a low and a high mark.
    /// If there are fewer pooled volumes of the size than the low mark, the orchestrator makes more, up to the high mark.
    POOL = "pool", Pools {
        value: "sizes, each with a number of volumes from 1 to 1000, or with two such numbers", default: "none",
        example: "10Gi=5, 100Gi=2..8", section: "errors-of-a-pool",
        errors: [
            ("10Gi=none", "is not a number of volumes"),
            ("10Gi=8..2", "ends before it begins"),
            ("0=5", "is not a size that a claim can ask for"),
            ("1Gi=5, 1024Mi=2", "appears twice"),
            ("{}", "names no size"),
        ],
        affects_volume: no, follows_class: no, class_may_set: no, leads_to_backend: no, form: Text,
    }

    /// The limit for all volumes of the pool together, also those that are only requested.
    POOL_MAX_BYTES = "pool-max-bytes", Pools {
        value: "a size", default: "no limit of its own", example: "2Ti", section: "",
        errors: [("much", "is not a size")],
        affects_volume: no, follows_class: no, class_may_set: no, leads_to_backend: no, form: Size,
    }

    /// How many runs for the pool there may be at one time, of those that `max-in-flight` allows.
    POOL_IN_FLIGHT = "pool-in-flight", Pools {
        value: "1 to 10000", default: "a quarter of `max-in-flight`, at least 1", example: "10", section: "",
        errors: [("0", "must be a whole number from 1 to 10000")],
        affects_volume: no, follows_class: no, class_may_set: no, leads_to_backend: no, form: Number(1, 10_000),
    }
}

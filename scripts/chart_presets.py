"""The presets of the Helm chart: each is a shipped config whose names and values the chart can replace.

A preset is a file of YAML documents. The first, of the kind Preset, says what the chart must know of it; the others are
those of the config and of its StorageClass, word for word, but for these places:

    @NAME@ @NAMESPACE@ @CLASS@ @ACCOUNT@ @SECRET@ @IMAGE@ @PROVISIONER@    what the release and the class are called
    @KEY@                                                                  a field of the preset

A further preset is an entry of PRESETS. One whose config has a script needs no image of its own: leave `image` empty.
"""

import json
import re
from dataclasses import dataclass, field


@dataclass
class Field:
    """A value that a class sets under `config` or `settings`."""

    name: str
    what: str
    example: str
    # The text in the config that the value replaces; empty where only the key has the value.
    text: str = ""
    default: object = None
    of: str = "config"


@dataclass
class Preset:
    """A shipped config, and where its parts are."""

    config: str
    image: str
    storage_class: str = ""
    # Objects of other files that the class needs, as FILE KIND NAME.
    also: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    fields: list[Field] = field(default_factory=list)
    # The name of the Secret in the config, the key that names it there, and what it must hold.
    secret: str = ""
    secret_key: str = ""
    secret_needs: dict[str, str] = field(default_factory=dict)
    snapshot_class: bool = True


def directory(default):
    what = "the directory on each node that holds the volumes"
    return Field("base-path", what, default, text=default, default=default)


DRIVER = "the name of the CSI driver"
ENDPOINT = "the address of the CSI driver"
SOCKET = Field(
    "socket-directory",
    "the directory on the node with the socket csi.sock of the CSI driver",
    "/var/lib/kubelet/plugins/ebs.csi.aws.com",
    text="/var/lib/kubelet/plugins/csi-hostpath",
    of="settings",
)
CINDER_SECRETS = ["cinder-secrets.yaml Namespace flex-cinder-secrets", "cinder-secrets.yaml ResourceQuota no-pods"]
SECRETS_OF_VOLUMES = Field(
    "secret-namespace",
    "the namespace for the credentials of volumes, where nothing else is",
    "flex-cinder-secrets",
    text="flex-cinder-secrets",
    default="flex-cinder-secrets",
)


def csi_driver(text):
    return Field("csi-driver", DRIVER, "ebs.csi.aws.com", text=text)


PRESETS = {
    "hostpath": Preset(
        config="hostpath.yaml",
        image="hostpath",
        storage_class="hostpath/storageclass.yaml",
        names={"hostpath-keeper": "@CLASS@-keeper"},
        fields=[directory("/var/lib/flex-hostpath")],
    ),
    "hostpath-pure": Preset(
        config="hostpath-pure.yaml",
        image="hostpath",
        names={"scratch-keeper": "@CLASS@-keeper"},
        fields=[directory("/var/lib/flex-scratch")],
    ),
    "hostpath-block": Preset(
        config="hostpath-block.yaml",
        image="hostpath",
        storage_class="hostpath/storageclass-block.yaml",
        names={"hostpath-block-attach": "@CLASS@-attach"},
        fields=[
            directory("/var/lib/flex-hostpath-block"),
            Field(
                "devices",
                "the directory for the devices",
                "/dev/flex-hostpath",
                text="/dev/flex-hostpath",
                default="/dev/flex-hostpath",
            ),
        ],
    ),
    "nfs": Preset(
        config="nfs.yaml",
        image="nfs",
        storage_class="nfs/storageclass.yaml",
        fields=[
            Field("server", "the name or the address of the NFS server", "10.0.0.5"),
            Field("export", "the exported directory", "/exports/data"),
        ],
    ),
    "cinder": Preset(
        config="cinder.yaml",
        image="cinder",
        storage_class="cinder/storageclass.yaml",
        also=CINDER_SECRETS,
        names={"cinder-provisioner-secrets": "@NAME@-@CLASS@-secrets"},
        fields=[SECRETS_OF_VOLUMES],
        secret="cinder-cloud",
        secret_key="secret-volume",
        secret_needs={"cloud.conf": "the file that an OpenStack cloud provider reads"},
    ),
    "cinder-standalone": Preset(
        config="cinder-standalone.yaml",
        image="cinder",
        storage_class="cinder/storageclass-standalone.yaml",
        also=CINDER_SECRETS,
        names={"cinder-standalone-secrets": "@NAME@-@CLASS@-secrets"},
        fields=[SECRETS_OF_VOLUMES],
        secret="cinder-standalone",
        secret_key="secret-env",
        secret_needs={
            "OS_CINDER_ENDPOINT": "the address of Cinder",
            "OS_USERNAME": "the user",
            "OS_TENANT_NAME": "the project",
        },
    ),
    "script": Preset(
        config="script.yaml",
        image="",
        fields=[directory("/var/lib/flex-script")],
    ),
    "csi": Preset(
        config="csi.yaml",
        image="csi",
        storage_class="csi/storageclass.yaml",
        names={"flex-csi": "@NAME@-@CLASS@-driver"},
        fields=[csi_driver("hostpath.csi.k8s.io"), SOCKET],
    ),
    "csi-batches": Preset(
        config="csi-batches.yaml",
        image="csi",
        storage_class="csi/batches/storageclass.yaml",
        also=["csi.yaml ClusterRole flex-csi", "csi.yaml ClusterRoleBinding flex-csi"],
        names={
            "flex-csi-batches": "@NAME@-@CLASS@-batches",
            "flex-csi": "@NAME@-@CLASS@-driver",
            "resourceNames: [csi-batches]": "resourceNames: [@CLASS@]",
        },
        fields=[csi_driver("hostpath.csi.k8s.io"), SOCKET],
    ),
    "csi-in-place": Preset(
        config="csi-in-place.yaml",
        image="csi",
        names={"flex-csi-in-place": "@NAME@-@CLASS@-driver"},
        fields=[csi_driver("hostpath.csi.k8s.io"), SOCKET],
        snapshot_class=False,
    ),
    "csi-sidecar": Preset(
        config="csi-sidecar.yaml",
        image="csi",
        storage_class="csi/storageclass-sidecar.yaml",
        names={"flex-csi-sidecar": "@NAME@-@CLASS@-driver"},
        fields=[
            csi_driver("driver.example"),
            Field(
                "driver-image",
                "the image of the CSI driver",
                "registry.example/team/csi-driver:1.0",
                text="registry.example/team/csi-driver:1.0",
                of="settings",
            ),
            Field(
                "driver-args",
                "the arguments of the CSI driver",
                '["--endpoint=unix:///csi/csi.sock"]',
                text='["--endpoint=unix:///csi/csi.sock", "--mode=controller"]',
                default=["--endpoint=unix:///csi/csi.sock", "--mode=controller"],
                of="settings",
            ),
        ],
    ),
    "csi-tcp": Preset(
        config="csi-tcp.yaml",
        image="csi",
        storage_class="csi/storageclass-tcp.yaml",
        names={"flex-csi-tcp": "@NAME@-@CLASS@-driver"},
        fields=[
            csi_driver("driver.example"),
            Field("csi-endpoint", ENDPOINT, "tcp://driver.example:9000"),
        ],
        secret="csi-tls",
        secret_key="secret-volume",
        secret_needs={
            "ca.crt": "the certificate of the driver's authority",
            "tls.crt": "the certificate of the provisioner",
            "tls.key": "its key",
        },
    ),
}


def documents(path):
    """Splits a file into its documents, each with its comment. The line for editors names a file beside the chart."""
    text = re.sub(r"^# yaml-language-server: .*\n", "", path.read_text(), flags=re.M)
    return [part.strip("\n") for part in re.split(r"^---$", text, flags=re.M)]


def kind(document):
    return re.search(r"^kind: (.*)$", document, flags=re.M)[1]


def named(document):
    return re.search(r"^metadata:\n  name: (.*)$", document, flags=re.M)[1]


def header(name, preset):
    """Writes the document with all that the chart must know of a preset."""
    fields = [
        {"name": one.name, "in": one.of, "what": one.what, "example": one.example}
        | ({} if one.default is None else {"default": one.default})
        for one in preset.fields
    ]
    secret = {"key": preset.secret_key or "secret-env", "needs": preset.secret_needs}
    sources = [f"configmaps/{preset.config}"] + ([f"examples/{preset.storage_class}"] if preset.storage_class else [])
    facts = {
        "kind": "Preset",
        "image": preset.image,
        "fields": fields,
        "secret": secret,
        "snapshotClass": preset.snapshot_class,
    }
    lines = [f"# The preset `{name}`, written by scripts/chart.py from {' and '.join(sources)}."]
    return "\n".join(lines + [f"{key}: {json.dumps(fact)}" for key, fact in facts.items()])


def is_of_preset(document):
    """Tells whether a document is no account, binding or Secret, which the chart makes for each class."""
    to_images = "kind: ClusterRole\n  name: flex-provisioner-image" in document
    return kind(document) not in ("ServiceAccount", "Secret") and not to_images


def replaced(preset, document, account):
    """Puts the marks into a document."""
    image = re.escape(f"localhost/flex-provisioner/{preset.image}:")
    document = re.sub(image + r"[0-9.]+", "@IMAGE@", document)
    document = re.sub(r"(namespace: )flex-provisioner$", r"\1@NAMESPACE@", document, flags=re.M)
    for before, after in preset.names.items():
        ends = r"(?![\w-])"
        document = re.sub(rf"(?<![\w-]){re.escape(before)}" + (ends if before[-1].isalnum() else ""), after, document)
    for one in preset.fields:
        if one.text and kind(document) == "ConfigMap" and one.text not in document:
            raise ValueError(f"configmaps/{preset.config} lacks {one.text}, which scripts/chart_presets.py looks for")
        if one.text:
            document = document.replace(one.text, f"@{one.name}@")
    if preset.secret:
        places = "secret-env: |secret-volume: |/etc/flex-secrets/"
        document = re.sub(rf"({places}){preset.secret}$", r"\1@SECRET@", document, flags=re.M)
    places = r"service-account-name: |kind: ServiceAccount\n  name: "
    document = re.sub(rf"({places}){account}$", r"\1@ACCOUNT@", document, flags=re.M)
    return re.sub(r"^provisioner: flex-provisioner\.io$", "provisioner: @PROVISIONER@", document, flags=re.M)


def presets(root):
    """Returns the name and the text of each preset."""
    for name, preset in PRESETS.items():
        own = documents(root / "configmaps" / preset.config)
        account = re.search(r"^  service-account-name: (.*)$", own[0], flags=re.M)[1]
        kept = [document for document in own if is_of_preset(document)]
        for wanted in preset.also:
            file, *object_ = wanted.split(" ")
            found = [one for one in documents(root / "configmaps" / file) if [kind(one), named(one)] == object_]
            if not found:
                raise ValueError(f"configmaps/{file} has no {' '.join(object_)}, which scripts/chart_presets.py names")
            kept += found
        if preset.storage_class:
            kept += documents(root / "examples" / preset.storage_class)
        kept = [replaced(preset, document, account) for document in kept]
        yield name, "\n---\n".join([header(name, preset), *kept]) + "\n"

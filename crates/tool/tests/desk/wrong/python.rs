//! Mistakes in the program of Python.

use flex_desk::conformance::Case;

use super::row::{By, Edits, Only, Row};

/// The lines of the program that mistakes replace.
const PROVISION: &str = "def provision():";
const MAKE: &str = "            remove(half)
            os.mkdir(half)
            os.chmod(half, 0o777)
            os.rename(half, volume)";
const NOTE: &str = r#"note(bytes=int(env["SIZE_BYTES"]))"#;
const CREATE: &str = r#"flex_pv("create", "--copied", "--local", volume)"#;
const DELETE: &str = r#"        remove(volume, half, record, f"{record}.new")"#;
const COPY: &str = r#"flex_pv("copy", original, temporary)"#;
const EXPAND: &str = r#"note(bytes=max(noted(identity).get("bytes", 0), int(env["SIZE_BYTES"])))"#;

/// Lets the program create its volume itself, as one does that has a client of Kubernetes. That is no mistake.
const CLIENT: (&str, &str) = ("import sys\n", "import sys\nimport time\nimport urllib.request\n");
const CREATES: (&str, &str) = (CREATE, "create()");
const CREATION: (&str, &str) = (
    PROVISION,
    r#"VOLUMES = "/api/v1/persistentvolumes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/flex-provisioner/leases"


def ask(method, path, body=None):
    """Asks the API, and returns the status and the text of its answer."""
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(env["KUBE_API"] + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def create():
    """Creates the volume, or finds that an earlier run has done it."""
    node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [env["POD_NODE"]]}
    spec = {
        "storageClassName": env["STORAGE_CLASS"],
        "capacity": {"storage": env["SIZE"]},
        "accessModes": env["ACCESS_MODES"].split(","),
        "volumeMode": env["VOLUME_MODE"],
        "persistentVolumeReclaimPolicy": env["RECLAIM_POLICY"],
        "claimRef": {"namespace": env["POD_NAMESPACE"], "name": identity},
        "local": {"path": volume},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [node]}]}},
    }
    metadata = {
        "name": env["PV_NAME"],
        "annotations": {
            "flex-provisioner.io/claim-uuid": env["PVC_UID"],
            "pv.kubernetes.io/provisioned-by": env["PROVISIONER"],
        },
        "labels": {"flex-provisioner.io/instance": env["INSTANCE"]},
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}
    status, text = ask("POST", VOLUMES, body)
    if status not in (201, 409):
        become("fail", "retry", text)


def provision():"#,
);

/// Each mistake, with the case that must find it.
pub(super) const WRONG: &[Row] = &[
    (
        "leaves out the reclaim policy",
        Only(Case::VolumeFits),
        &[CLIENT, CREATES, CREATION, (r#""persistentVolumeReclaimPolicy": env["RECLAIM_POLICY"],"#, "")],
    ),
    (
        "leaves out the label of the orchestrator",
        By(Case::VolumeFits),
        &[CLIENT, CREATES, CREATION, (r#""labels": {"flex-provisioner.io/instance": env["INSTANCE"]},"#, "")],
    ),
    (
        "binds its volume to the claim itself",
        By(Case::VolumeFits),
        &[
            CLIENT,
            CREATES,
            CREATION,
            (
                r#"{"namespace": env["POD_NAMESPACE"], "name": identity}"#,
                r#"{"namespace": env["PVC_NAMESPACE"], "name": env["PVC_NAME"]}"#,
            ),
        ],
    ),
    (
        "goes on when it cannot open its log",
        By(Case::Rights),
        &[(
            PROVISION,
            r#"def provision():
    try:
        open("/usr/provisioner.log", "a").close()
    except OSError as error:
        print("no log:", error)"#,
        )],
    ),
    (
        "makes a volume anew that the API does not have yet",
        Only(Case::CalledAgain),
        &[
            CLIENT,
            CREATES,
            CREATION,
            (
                PROVISION,
                r#"def provision():
    # Without a PersistentVolume, the directory is half made.
    if ask("GET", f"{VOLUMES}/{env['PV_NAME']}")[0] == 404:
        remove(volume)"#,
            ),
        ],
    ),
    (
        "has a lock file while it waits, which a killed run leaves",
        Only(Case::KilledAtTimes),
        &[
            ("import sys\n", "import sys\nimport time\n"),
            (
                MAKE,
                r#"            lock = f"{base}/.lock-{identity}"
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
            time.sleep(1)
            remove(half)
            os.mkdir(half)
            os.chmod(half, 0o777)
            os.rename(half, volume)
            os.unlink(lock)"#,
            ),
            (DELETE, r#"        remove(volume, half, record, f"{record}.new", f"{base}/.lock-{identity}")"#),
        ],
    ),
    // A second before the mistake, so that no kill at a time meets it.
    (
        "has a Lease while it creates the volume, which a killed run leaves",
        Only(Case::KilledAtCreate),
        &[
            CLIENT,
            CREATES,
            CREATION,
            (
                r#"    status, text = ask("POST", VOLUMES, body)"#,
                r#"    time.sleep(1)
    if ask("POST", LEASES, {"metadata": {"name": identity}})[0] == 409:
        become("fail", "retry", "another run creates the volume")
    status, text = ask("POST", VOLUMES, body)
    ask("DELETE", f"{LEASES}/{identity}")"#,
            ),
            (
                DELETE,
                r#"        ask("DELETE", f"{LEASES}/{identity}")
        remove(volume, half, record, f"{record}.new")"#,
            ),
        ],
    ),
    (
        "takes an unknown operation for the usual one",
        By(Case::UnknownOperation),
        &[(r#"become("fail", "never", f"this program cannot {operation}")"#, "provision()")],
    ),
    ("rounds sizes down", Only(Case::Sizes), &[(NOTE, r#"note(bytes=int(env["SIZE_BYTES"]) // 2**20 * 2**20)"#)]),
    (
        "calls a shell with the text of a user",
        By(Case::HostileTexts),
        &[(
            PROVISION,
            r#"def provision():
    nowhere = subprocess.DEVNULL
    subprocess.run(f'echo "a volume of {env["USERNAME"]}"', shell=True, stdout=nowhere, stderr=nowhere)"#,
        )],
    ),
    (
        "passes over each error of a deletion",
        By(Case::StorageFails),
        &[
            ("import json\n", "import contextlib\nimport json\n"),
            (
                DELETE,
                r#"        with contextlib.suppress(OSError):
            remove(volume, half, record, f"{record}.new")"#,
            ),
        ],
    ),
    (
        "prints each error, and goes on",
        By(Case::StorageFails),
        &[(r#"    become("fail", "retry", str(error))"#, r#"    print("it failed:", error)"#)],
    ),
    (
        "prints the answer of the API, and has no last words",
        By(Case::LastWords),
        &[CLIENT, CREATES, CREATION, (r#"        become("fail", "retry", text)"#, "        sys.exit(text)")],
    ),
    (
        "prints its environment",
        By(Case::NoSecretInWords),
        &[(
            PROVISION,
            r#"def provision():
    print("environment:", dict(env))"#,
        )],
    ),
    (
        "waits for long in its handler of SIGTERM",
        By(Case::EndsAfterSigterm),
        &[
            ("import shutil\n", "import shutil\nimport signal\n"),
            ("import sys\n", "import sys\nimport time\n"),
            (
                PROVISION,
                r#"def provision():
    signal.signal(signal.SIGTERM, lambda *_: time.sleep(20))
    time.sleep(1)"#,
            ),
        ],
    ),
    (
        "removes a record that may be gone",
        By(Case::DeleteTwice),
        &[(
            DELETE,
            r#"        remove(volume, half, f"{record}.new")
        os.unlink(record)"#,
        )],
    ),
    (
        "deletes for the claim that it has noted alone",
        Only(Case::DeleteById),
        &[
            (
                "UUID = re.compile",
                r#"claim = f"{env.get('PVC_NAMESPACE')}/{env.get('PVC_NAME')}"
UUID = re.compile"#,
            ),
            (NOTE, r#"note(bytes=int(env["SIZE_BYTES"]), claim=claim)"#),
            (
                DELETE,
                r#"        if noted(identity).get("claim", claim) != claim:
            become("fail", "never", "the volume belongs to another claim")
        remove(volume, half, record, f"{record}.new")"#,
            ),
        ],
    ),
    (
        "deletes the path in the source of the volume",
        Only(Case::DeleteAlone),
        &[(
            DELETE,
            r#"        path = json.loads(env["VOLUME_SOURCE"])["local"]["path"] if env["VOLUME_SOURCE"] else volume
        remove(path, half, record, f"{record}.new")"#,
        )],
    ),
    (
        "compares the beginning of an id alone",
        By(Case::DeleteAlone),
        &[("all(UUID.fullmatch(one)", "all(UUID.match(one)")],
    ),
    (
        "copies the content of links",
        By(Case::HostileContent),
        &[(COPY, "shutil.copytree(original, temporary, ignore_dangling_symlinks=True)")],
    ),
    ("says that a volume has grown", By(Case::Expand), &[(EXPAND, "pass")]),
    (
        "makes a volume smaller if the request is smaller",
        Only(Case::Expand),
        &[(EXPAND, r#"note(bytes=int(env["SIZE_BYTES"]))"#)],
    ),
    (
        "grows by the difference each time",
        By(Case::Expand),
        &[(EXPAND, r#"note(bytes=noted(identity)["bytes"] + int(env["SIZE_BYTES"]) - int(env["OLD_SIZE_BYTES"]))"#)],
    ),
    (
        "gives a clone the size of its source",
        By(Case::CloneContent),
        &[(NOTE, r#"note(bytes=int(env.get("CLONE_OF_SIZE_BYTES") or env["SIZE_BYTES"]))"#)],
    ),
    (
        "copies by copytree, which knows neither owners nor hard links",
        By(Case::CloneContent),
        &[(COPY, "shutil.copytree(original, temporary, symlinks=True)")],
    ),
    (
        "deletes the snapshots of a volume with it",
        Only(Case::SnapshotOutlives),
        &[
            ("import json\n", "import glob\nimport json\n"),
            (
                r#"snapshot, half_snapshot = f"{base}/.snapshot-{sid}", f"{base}/.half-{sid}""#,
                r#"snapshot = f"{base}/.snapshot-{env.get('SNAPSHOT_OF') or identity}-{sid}"
half_snapshot = f"{base}/.half-{sid}""#,
            ),
            (
                DELETE,
                r#"        snapshots = glob.glob(f"{base}/.snapshot-{identity}-*")
        remove(volume, half, record, f"{record}.new", *snapshots)"#,
            ),
        ],
    ),
    (
        "reads attributes where there are none",
        Only(Case::Modify),
        &[(r#"json.loads(env.get("ATTRIBUTES") or "{}")"#, r#"json.loads(env["ATTRIBUTES"])"#)],
    ),
];

/// Mistakes that no case can know. The manual has them, with the reasons.
pub(super) const UNKNOWABLE: &[(&str, Edits)] = &[(
    "writes a small file in its place, without a rename",
    &[(
        r#"    with open(f"{record}.new", "w") as file:
        json.dump(facts, file)
    os.replace(f"{record}.new", record)"#,
        r#"    with open(record, "w") as file:
        json.dump(facts, file)"#,
    )],
)];

/// Programs that keep the contract in another way, with cases that could take it for a mistake.
pub(super) const RIGHT: &[(&str, &[Case], Edits)] = &[(
    "creates its volume without flex-pv",
    &[
        Case::VolumeFits,
        Case::CalledAgain,
        Case::KilledAtChild,
        Case::KilledAtTimes,
        Case::KilledAtCreate,
        Case::VolumeIsLast,
        Case::EightAtOnce,
        Case::LastWords,
        Case::Batch,
    ],
    &[CLIENT, CREATES, CREATION],
)];

"""What a provisioner in Python needs, in one file, with the standard library alone. Copy it beside your program.

    import flexpv

    def provision(run):
        run.create({"nfs": {"server": "nas.example", "path": f"/export/{run.id}"}})

    flexpv.main(["nas-pool"], provision=provision, delete=delete)

`main` reads the request from the environment, checks ids and names of parameters, and calls the function of the operation
(`delete-snapshot` is `delete_snapshot`). A function that returns has succeeded. It raises Failed, or an OSError, which asks
for another attempt. docs/contract.md describes the rest: https://github.com/flex-provisioner/flex-provisioner
"""

import http.client
import json
import os
import re
import shutil
import signal
import ssl
import sys
import time
import urllib.error
import urllib.request

# The exit codes of the contract.
USAGE, NEVER, NO_ROOM, RETRY, DENIED, CONFIG = 64, 65, 69, 75, 77, 78
# The most that Kubernetes keeps of the last words, in bytes.
LONGEST = 4096
# The seconds for which the API is asked again after a problem that may pass.
PATIENCE = 30
UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUMES = "/api/v1/persistentvolumes"


class Failed(Exception):
    """The end of a run, with its exit code and its last words, which the owner of the claim reads: write no secret."""

    def __init__(self, code, words):
        super().__init__(words)
        self.code = code


class Run:
    """A request. `id` names the storage; `env` has all variables of the contract."""

    def __init__(self, env):
        self.env = env
        self.operation = env.get("OPERATION", "")
        self.id = env.get("CLAIM_UUID", "")
        self.snapshot, self.clone_of = env.get("SNAPSHOT_ID", ""), env.get("CLONE_OF", "")
        self.bytes = int(env.get("SIZE_BYTES") or 0)

    def create(self, source, on_this_node=False, size=None, copied=False):
        """Creates the PersistentVolume, as the last act of a provision run. A volume that an earlier run created with the
        same storage is a success. `source` is a volume source, `size` the real size in bytes, and `copied` says that the
        volume has the content of its data source."""
        if (self.clone_of or self.snapshot) and not copied:
            raise Failed(NEVER, "this program makes no copies, and the volume would be empty")
        volume = persistent_volume(self.env, source, on_this_node, size)
        until, pause = time.monotonic() + PATIENCE, 0.05
        while not created(self.env, volume, source, last=time.monotonic() > until):
            time.sleep(pause)
            pause = min(2 * pause, 3)


def persistent_volume(env, source, on_this_node, size):
    """Returns the PersistentVolume of a request."""
    names = {
        "flex-provisioner.io/claim-uuid": env["PVC_UID"],
        "flex-provisioner.io/volume-id": env["CLAIM_UUID"],
        "pv.kubernetes.io/provisioned-by": env["PROVISIONER"],
    }
    metadata = {
        "name": env["PV_NAME"],
        "annotations": names,
        "labels": {"flex-provisioner.io/instance": env["INSTANCE"]},
    }
    if env["RECLAIM_POLICY"] == "Delete":
        metadata["finalizers"] = ["flex-provisioner.io/volume"]
    claim = {"namespace": env["POD_NAMESPACE"], "name": env["CLAIM_UUID"]}
    spec = {
        "storageClassName": env["STORAGE_CLASS"],
        "capacity": {"storage": str(size) if size else env["SIZE"]},
        "accessModes": env["ACCESS_MODES"].split(","),
        "volumeMode": env["VOLUME_MODE"],
        "mountOptions": [option for option in env.get("MOUNT_OPTIONS", "").split(",") if option],
        "persistentVolumeReclaimPolicy": env["RECLAIM_POLICY"],
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim},
        **source,
    }
    if on_this_node:
        node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [env["POD_NODE"]]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [node]}]}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def ask(env, method, path, body=None):
    """Asks the API. Returns the status, 0 if there is no answer, and the object or the reason."""
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(env["KUBE_API"].rstrip("/") + path, data, method=method)
    request.add_header("Content-Type", "application/json")
    authority = f"{ACCOUNT}/ca.crt"
    try:
        if request.full_url.startswith("https:"):
            with open(f"{ACCOUNT}/token") as token:
                request.add_header("Authorization", f"Bearer {token.read().strip()}")
    except OSError as error:
        raise Failed(CONFIG, f"the pod has no ServiceAccount token: does the config name an account? {error}") from error
    trust = ssl.create_default_context(cafile=authority if os.path.exists(authority) else None)
    # A proxy of the environment is for the storage, not for the API.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    try:
        with opener.open(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        try:
            return error.code, json.loads(text)
        except ValueError:
            return error.code, {"message": text}
    except (OSError, ValueError, http.client.HTTPException) as error:
        return 0, {"message": str(error)}


def created(env, volume, source, last):
    """Asks the API for the volume once. Returns False if it must be asked again, unless this was the last time."""
    name = volume["metadata"]["name"]
    status, answer = ask(env, "POST", VOLUMES, volume)
    if status == 201:
        return True
    if status == 409 and answer.get("reason") == "AlreadyExists":
        status, answer = ask(env, "GET", f"{VOLUMES}/{name}")
        if status == 200:
            return is_same(volume, source, answer)
    words = f"PersistentVolume {name}: {answer.get('message', 'no answer')}"
    if status in (400, 413, 422):
        raise Failed(NEVER, words)
    if status in (401, 403):
        raise Failed(DENIED, f"{words}; the account needs the ClusterRole flex-provisioner-image")
    if last:
        raise Failed(RETRY, words)
    return False


def is_same(ours, source, found):
    """Checks that a volume that exists is for the same claim, and leads to the same storage."""
    name, uid = ours["metadata"]["name"], "flex-provisioner.io/claim-uuid"
    if found["metadata"].get("deletionTimestamp"):
        raise Failed(RETRY, f"PersistentVolume {name} of an earlier attempt is still being deleted")
    if found["metadata"].get("annotations", {}).get(uid) != ours["metadata"]["annotations"][uid]:
        raise Failed(NEVER, f"PersistentVolume {name} exists already, for another claim")
    if not within(source, found["spec"]):
        raise Failed(NEVER, f"PersistentVolume {name} exists already for this claim, but leads to other storage")
    return True


def within(ours, theirs):
    """Says whether the API's object has all of ours; the API adds defaults."""
    if isinstance(ours, dict):
        return isinstance(theirs, dict) and all(within(value, theirs.get(key)) for key, value in ours.items())
    return ours == theirs


def remove(*paths):
    """Removes files and directories with all their contents, and follows no link. It is a success if they are not there."""
    for path in paths:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)


def variable(name):
    """Returns the variable of a parameter."""
    return re.sub("[^A-Z0-9]", "_", name.upper())


def check_ids(run):
    """Refuses ids that are no UUIDs, because they become parts of paths, and a run without its id."""
    if run.operation in ("list", "capacity"):
        return
    # A claim whose snapshot was refused can be deleted.
    ids = [run.id] if run.operation == "delete" else [run.id, run.clone_of, run.snapshot]
    if not all(UUID.fullmatch(one) for one in ids if one):
        raise Failed(NEVER, "an id of the run is no UUID: nothing is done")
    needed = {"snapshot": [run.id, run.snapshot], "delete-snapshot": [run.snapshot]}.get(run.operation, [run.id])
    if not all(needed):
        raise Failed(USAGE, "the run has no id: nothing is done")


def check_parameters(run, known):
    """Refuses names that the program does not read where a volume begins, because the default may delete data."""
    ignored = re.split(r"[,\s]+", run.env.get("IGNORED_PARAMETERS", ""))
    read = {variable(name) for name in [*known, *ignored, "ignored-parameters", "fsType"]}
    names = [name for name in run.env.get("PARAMETER_NAMES", "").split(",") if name and "/" not in name]
    unknown = [name for name in names if variable(name) not in read]
    if run.operation == "modify":
        attributes = json.loads(run.env.get("ATTRIBUTES") or "{}")
        refused = [name for name in unknown if name in attributes]
    else:
        refused = unknown if run.operation in ("provision", "move-in") else []
    wrong, right = ", ".join(refused or unknown), ", ".join(known) or "none"
    words = f"this program does not know the parameter {wrong}; it knows: {right}"
    if refused:
        raise Failed(CONFIG, f"{words}. Correct the name in the ConfigMap, the StorageClass or the VolumeAttributesClass")
    if unknown:
        print(f"{words}; the run continues", file=sys.stderr)


def end(code, words):
    """Ends the run with its last words."""
    path = os.environ.get("FLEX_TERMINATION_LOG") or "/dev/termination-log"
    print(words, file=sys.stderr)
    try:
        with open(path, "wb") as file:
            file.write(words.encode(errors="replace")[:LONGEST])
    except OSError as error:
        print(f"{path}: {error}", file=sys.stderr)
    sys.exit(code)


def main(parameters, **operations):
    """Does the run. `parameters` are the names that the program reads, `operations` a function for each operation."""
    # The first process of a container ignores signals for which it has no handler.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    run = Run(os.environ)
    try:
        work = operations.get(run.operation.replace("-", "_"))
        if not work:
            raise Failed(USAGE, f"this program cannot {run.operation}")
        check_ids(run)
        check_parameters(run, parameters)
        work(run)
    except Failed as failed:
        end(failed.code, str(failed))
    except OSError as error:
        end(RETRY, str(error))

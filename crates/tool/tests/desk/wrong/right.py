#!/usr/bin/env python3
"""A provisioner whose volumes are directories, each with a record. It keeps the contract; the tests break it in one
place at a time."""

import json
import os
import re
import shutil
import subprocess
import sys

env = os.environ
operation = env["OPERATION"]
base = env.get("BASE_PATH") or "/srv/volumes"
identity, source, sid = env.get("CLAIM_UUID", ""), env.get("CLONE_OF", ""), env.get("SNAPSHOT_ID", "")
volume, half, record = f"{base}/{identity}", f"{base}/.half-{identity}", f"{base}/.record-{identity}"
snapshot, half_snapshot = f"{base}/.snapshot-{sid}", f"{base}/.half-{sid}"
UUID = re.compile("[0-9a-f]+(-[0-9a-f]+){4}")


def flex_pv(*arguments, text=None):
    """Calls flex-pv, and ends with its exit code if it fails. It has said why."""
    code = subprocess.run(["flex-pv", *arguments], input=text, text=True).returncode
    if code:
        sys.exit(code if code > 0 else 75)


def become(*arguments):
    """Becomes flex-pv."""
    os.execvp("flex-pv", ["flex-pv", *arguments])


def remove(*paths):
    """Removes files and directories with all their contents. It is a success if they are not there."""
    for path in paths:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)


def copied(original, temporary, target):
    """Makes a copy under another name first: a run that is killed leaves half of it there."""
    remove(temporary)
    flex_pv("copy", original, temporary)
    os.rename(temporary, target)


def noted(name):
    """Returns the record of a volume."""
    try:
        with open(f"{base}/.record-{name}") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def note(**facts):
    """Changes the record of the volume as a whole: a run may be killed at any moment."""
    facts = {**noted(identity), **facts}
    with open(f"{record}.new", "w") as file:
        json.dump(facts, file)
    os.replace(f"{record}.new", record)


def check():
    """Refuses ids that are no UUIDs, because they become parts of paths, and a run without its id."""
    # A claim whose snapshot was refused can be deleted.
    ids = [identity] if operation == "delete" else [identity, source, sid]
    if not all(UUID.fullmatch(one) for one in ids if one):
        become("fail", "never", "an id is no UUID")
    needed = {"list": "none", "capacity": "none", "snapshot": sid, "delete-snapshot": sid}.get(operation, identity)
    if not needed:
        become("fail", "never", "the run has no id")


def provision():
    if not os.path.isdir(volume):
        if source:
            copied(f"{base}/{source}", half, volume)
        elif sid:
            copied(snapshot, half, volume)
        else:
            remove(half)
            os.mkdir(half)
            os.chmod(half, 0o777)
            os.rename(half, volume)
    if not noted(identity):
        note(bytes=int(env["SIZE_BYTES"]))
    # The last act: the claim can be bound as soon as the volume exists.
    flex_pv("create", "--copied", "--local", volume)


def list_volumes():
    # Other names are no volumes.
    names = [name for name in sorted(os.listdir(base)) if UUID.fullmatch(name)]
    lines = [f"volume {name} {noted(name).get('bytes', '-')} {base}/{name}" for name in names]
    flex_pv("list", text="\n".join([*lines, "end", ""]))


def main():
    if operation == "batch":
        become("each", "--", __file__)
    flex_pv("parameters", "base-path")
    check()
    if operation == "provision":
        provision()
    elif operation == "delete":
        remove(volume, half, record, f"{record}.new")
    elif operation in ("expand", "modify") and not os.path.isdir(volume):
        become("fail", "never", "the directory of the volume is lost")
    elif operation == "expand":
        note(bytes=max(noted(identity).get("bytes", 0), int(env["SIZE_BYTES"])))
    elif operation == "modify":
        note(attributes=json.loads(env.get("ATTRIBUTES") or "{}"))
    elif operation == "snapshot":
        if not os.path.isdir(snapshot):
            copied(volume, half_snapshot, snapshot)
    elif operation == "delete-snapshot":
        remove(snapshot, half_snapshot)
    elif operation == "list":
        list_volumes()
    elif operation == "capacity":
        space = os.statvfs(base)
        flex_pv("capacity", "--bytes", str(space.f_bavail * space.f_frsize))
    else:
        become("fail", "never", f"this program cannot {operation}")


try:
    main()
except OSError as error:
    become("fail", "retry", str(error))

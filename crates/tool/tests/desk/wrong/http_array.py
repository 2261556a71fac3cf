#!/usr/bin/env python3
"""A provisioner for an HTTP array. It keeps the contract; the tests break it in one place at a time."""

import json
import os
import subprocess
import sys
import time
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

# Only a request that changes nothing is sent again at once.
TRIES = {"GET": 2}

env = os.environ
url = urlsplit(env["ARRAY_URL"])
headers = {"Authorization": "Bearer " + env["ARRAY_TOKEN"]}
operation = env["OPERATION"]
volume_id = env.get("CLAIM_UUID", "")
snapshot_id = env.get("SNAPSHOT_ID", "")


def fail(kind, text):
    os.execvp("flex-pv", ["flex-pv", "fail", kind, text])


def ask(method, path, body=None, also=()):
    """Returns the answer of the array, or nothing for a status in `also`."""
    for left in reversed(range(TRIES.get(method, 1))):
        try:
            line = HTTPConnection(url.hostname, url.port, timeout=30)
            line.request(method, path, None if body is None else json.dumps(body), headers)
            answer = line.getresponse()
            text = answer.read()
            break
        except (OSError, HTTPException) as error:
            if not left:
                fail("retry", f"{method} {path}: {error!r}")
    if answer.status in also:
        return None
    if answer.status >= 300:
        fail("retry", f"the array answered {answer.status} to {method} {path}")
    return json.loads(text) if text else None


def find(kind, name):
    return ask("GET", f"/{kind}?name={name}")


def ready(kind, one):
    """Waits until the array has made something."""
    while one["state"] != "ready":
        time.sleep(0.05)
        one = ask("GET", f"/{kind}/{one['id']}")
    return one


def make(kind, body):
    found = find(kind, body["name"])
    one = found[0] if found else ask("POST", f"/{kind}", body)
    return ready(kind, one)


def remove(kind, name):
    for one in find(kind, name):
        ask("DELETE", f"/{kind}/{one['id']}", also=(404,))


def source(kind, name):
    found = find(kind, name)
    if not found:
        fail("never", f"the source {name} is lost")
    return ready(kind, found[0])["id"]


for check in (["parameters", "array-url"], ["ids"]):
    code = subprocess.run(["flex-pv", *check]).returncode
    if code:
        sys.exit(code)

if operation == "provision":
    wanted = {"name": volume_id, "bytes": int(env["SIZE_BYTES"])}
    if env.get("CLONE_OF"):
        wanted["volume"] = source("volumes", env["CLONE_OF"])
    elif snapshot_id:
        wanted["snapshot"] = source("snapshots", snapshot_id)
    volume = make("volumes", wanted)
    place = f"array.example:/volumes/{volume['id']}"
    os.execvp("flex-pv", ["flex-pv", "create", "--copied", "--nfs", place])
elif operation == "delete":
    remove("volumes", volume_id)
elif operation == "expand":
    for volume in find("volumes", volume_id):
        if volume["bytes"] < int(env["SIZE_BYTES"]):
            ask("PATCH", f"/volumes/{volume['id']}", {"bytes": int(env["SIZE_BYTES"])})
elif operation == "snapshot":
    make("snapshots", {"name": snapshot_id, "volume": source("volumes", volume_id)})
elif operation == "delete-snapshot":
    remove("snapshots", snapshot_id)
elif operation == "list":
    volumes = [one for one in ask("GET", "/volumes") if len(one["name"]) == 36]
    lines = [f"volume {one['name']} {one['bytes']} /volumes/{one['id']}" for one in volumes]
    sys.exit(subprocess.run(["flex-pv", "list"], input="\n".join([*lines, "end"]), text=True).returncode)
else:
    fail("never", f"this program cannot {operation}")

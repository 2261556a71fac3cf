#!/usr/bin/env python3
"""Runs the story of the recording on a cluster, and writes the transcript and the picture.

    record.py            writes docs/recording.json and docs/recording.svg
    record.py --check    fails unless the picture is drawn from the transcript, and a fresh run has the same commands and words

PATH has kubectl, whose context has the namespace `recording`; ../recording.sh sees to both. The cluster is this machine.
"""

import contextlib
import datetime
import json
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True

import draw
import story

HERE = Path(__file__).resolve().parent
TRANSCRIPT = HERE.parent.parent / "docs/recording.json"
PICTURE = TRANSCRIPT.with_suffix(".svg")
NAMESPACE = "recording"
CLASSES = ("drawer", "typo")
# The node's directory of the volumes. The last act removes it if it is empty.
STORAGE = Path("/var/lib/flex-drawer")
# The longest time of a step, in seconds.
LONGEST = 60


class Failed(Exception):
    """The story did not come to its end. The text says where, and what was printed."""


def shell(command, limit=LONGEST):
    """Runs a line of shell in this folder. Returns its exit code, and what it prints on both outputs."""
    words = ["bash", "-euo", "pipefail", "-c", command]
    try:
        done = subprocess.run(
            words, cwd=HERE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return 124, f"it takes longer than {limit} s"
    return done.returncode, done.stdout


def kubectl(arguments):
    """Runs kubectl for this program itself, and returns its output.

    Raises Failed with the output if kubectl fails."""
    code, output = shell(f"kubectl {arguments}")
    if code:
        raise Failed(f"kubectl {arguments} fails with {code}:\n{output}")
    return output


def performed(step):
    """Performs a step, and returns its part of the transcript.

    Raises Failed if the command fails, or does not print the words of `until`, for LONGEST seconds."""
    began = time.monotonic()
    while True:
        code, output = shell(step.command)
        seconds = time.monotonic() - began
        if code == 0 and step.until in output:
            return {"say": step.say, "command": step.command, "output": output, "seconds": round(seconds, 1)}
        if not step.until or seconds > LONGEST:
            events = shell("kubectl get events --sort-by=.lastTimestamp")[1]
            raise Failed(f"$ {step.command}\nends with {code}, and prints\n{output}\nThe events of the namespace:\n{events}")
        time.sleep(0.2)


def left():
    """Returns the volumes and contents of snapshots that the story has made and that still exist."""
    volumes = kubectl("get persistentvolumes -o jsonpath='{range .items[*]}{.spec.storageClassName} {.metadata.name}{\"\\n\"}{end}'")
    contents = kubectl(
        "get volumesnapshotcontents -o jsonpath='{range .items[*]}{.spec.volumeSnapshotClassName} {.metadata.name}{\"\\n\"}{end}'"
    )
    return [line for line in (volumes + contents).splitlines() if line.split(" ")[0] in CLASSES]


def clean_up():
    """Deletes what this story, or an interrupted one, has made: first what needs the provisioner, then the provisioner.

    Raises Failed if storage is left."""
    kubectl(f"delete namespace {NAMESPACE} --ignore-not-found --timeout={LONGEST - 5}s")
    end = time.monotonic() + LONGEST
    while rest := left():
        if time.monotonic() > end:
            raise Failed(f"these volumes and snapshots are not deleted: {rest}")
        time.sleep(0.5)
    kubectl("delete volumesnapshotclass/drawer storageclass/typo --ignore-not-found")
    kubectl("-n flex-provisioner delete configmap/drawer --ignore-not-found")
    try:
        STORAGE.rmdir()
    except OSError:
        pass


def transcript():
    """Performs the story in a fresh namespace, and returns the transcript. Raises Failed if a step fails."""
    clean_up()
    kubectl(f"create namespace {NAMESPACE}")
    kubectl(f"wait --for=create serviceaccount/default -n {NAMESPACE} --timeout=30s")
    version = json.loads(kubectl("version -o json"))["serverVersion"]["gitVersion"]
    try:
        steps = [performed(step) for step in story.STEPS]
    except Failed:
        # What has failed first is the news.
        with contextlib.suppress(Failed):
            clean_up()
        raise
    clean_up()
    return {"kubernetes": version, "recorded": datetime.date.today().isoformat(), "steps": steps}


def check():
    """Returns what is wrong with the committed picture, as lines for a person."""
    try:
        committed, picture = json.loads(TRANSCRIPT.read_text()), PICTURE.read_text()
    except FileNotFoundError as missing:
        return [f"{missing.filename} is missing"]
    wrong = [] if draw.picture(committed) == picture else [f"{PICTURE.name} is not what draw.py makes of {TRANSCRIPT.name}"]
    return wrong + list(story.differences(committed, transcript()))


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 64
    try:
        if sys.argv[1:]:
            wrong = check()
            print("\n".join(wrong) or "the picture shows what a run prints", file=sys.stderr)
            if wrong:
                print("`make recording` writes it anew", file=sys.stderr)
            return 1 if wrong else 0
        new = transcript()
        image = draw.picture(new)
    except (Failed, draw.Unfit) as error:
        print(error, file=sys.stderr)
        return 1
    TRANSCRIPT.write_text(json.dumps(new, indent=1, ensure_ascii=False) + "\n")
    PICTURE.write_text(image)
    print(f"{TRANSCRIPT} and {PICTURE} are written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks what workflows may do, with the standard library alone, which has no reader of YAML: it goes by lines and their
indentation. actionlint checks the rest.

    workflows.py                the files in .github
    workflows.py --self-test    plants a mistake of each kind, and finds it
"""

import re
import sys
from pathlib import Path

# An action or a container by its digest. For people, the version of an action stands behind it.
PINNED = re.compile(r"(?:[\w.-]+/)+[\w.-]+@[0-9a-f]{40} +# v?\d\S*|docker://\S+@sha256:[0-9a-f]{64}|\./\S+")
IMAGE = re.compile(r"\S+@sha256:[0-9a-f]{64}")
KEY = re.compile(r"( *)(?:- )?([\w-]+):(?: +(.*))?$")


def indent(line):
    """Returns the number of spaces before the text of a line."""
    return len(line) - len(line.lstrip(" "))


def blocks(lines, depth):
    """Yields the keys at a depth, each with the number of its line and the lines below it."""
    found = None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        at = indent(line)
        # An item of a list may stand as far left as the key of the list.
        key = None if line.lstrip().startswith("- ") else KEY.match(line)
        if at <= depth and found and (key or at < depth):
            yield found
            found = None
        if at == depth and key:
            found = (key[2], number, [])
        elif found:
            found[2].append(line)
    if found:
        yield found


def scripts(lines):
    """Yields the lines of programs, which are below `run`, with their numbers."""
    depth = None
    for number, line in enumerate(lines, 1):
        if depth is not None and line.strip() and indent(line) <= depth:
            depth = None
        run = re.match(r"( *)(- )?run: *(.*)$", line)
        if depth is not None:
            yield number, line
        elif run and run[3] in ("|", ">", "|-", ">-"):
            depth = len(run[1]) + len(run[2] or "")
        elif run:
            yield number, run[3]


def of_any_file(lines):
    """Finds mistakes that a workflow and an action can have."""
    for number, line in enumerate(lines, 1):
        key = KEY.match(line)
        if key and key[2] == "uses" and not PINNED.fullmatch(key[3] or ""):
            yield number, "an action is named by its whole commit, with its version in a comment"
        if key and key[2] == "image" and not IMAGE.fullmatch(key[3] or ""):
            yield number, "an image is named by its digest"
        if key and key[2] == "uses" and (key[3] or "").startswith("actions/checkout@"):
            if "persist-credentials: false" not in "".join(lines[number : number + 3]):
                yield number, "a checkout keeps no credentials: persist-credentials: false"
        if "pull_request_target" in line or "workflow_run" in line:
            yield number, "a change of a stranger must not start a workflow with rights"
    for number, line in scripts(lines):
        if "${{" in line:
            yield number, "a program gets values by its environment, not by ${{ }}"


def of_workflow(lines):
    """Finds mistakes that only a workflow can have."""
    if "permissions: {}" not in lines:
        yield 1, "the workflow begins without rights: permissions: {}"
    is_called = any(line.strip() == "workflow_call:" for line in lines)
    if not is_called and not any(line.startswith("concurrency:") for line in lines):
        yield 1, "the workflow says what happens to a second run: concurrency"
    begin = lines.index("jobs:") + 1 if "jobs:" in lines else len(lines)
    for job, number, inside in blocks(lines[begin:], 2):
        keys = {key for key, _, _ in blocks(inside, 4)}
        if "permissions" not in keys:
            yield begin + number, f"the job {job} names its rights: permissions"
        if "uses" not in keys and "timeout-minutes" not in keys:
            yield begin + number, f"the job {job} ends some time: timeout-minutes"


def problems(text, is_workflow):
    """Returns the mistakes of a file, each with the number of its line."""
    lines = text.splitlines()
    found = [*of_any_file(lines), *(of_workflow(lines) if is_workflow else ())]
    return sorted(found)


GOOD = """on: push
permissions: {}
concurrency: one
jobs:
  one:
    runs-on: ubuntu-24.04
    timeout-minutes: 5
    permissions:
      contents: read
    container:
      image: debian@sha256:DIGEST
    steps:
    - uses: actions/checkout@COMMIT # v7.0.1
      with:
        persist-credentials: false
    - uses: ./.github/actions/setup
    - run: |
        echo "$NAME"
    - if: ${{ always() }}
      run: make
  two:
    permissions: {}
    uses: ./.github/workflows/one.yml
""".replace("DIGEST", "ab" * 32).replace("COMMIT", "0a" * 20)

# A text of the good workflow, the mistake in its place, and a word of the answer.
PLANTED = (
    ("@" + "0a" * 20 + " # v7.0.1", "@v7", "whole commit"),
    ("0a # v7.0.1", "0a", "whole commit"),
    ("@sha256:" + "ab" * 32, ":12", "digest"),
    ("persist-credentials: false", "fetch-depth: 0", "credentials"),
    ("on: push", "on: pull_request_target", "stranger"),
    ('echo "$NAME"', "echo ${{ inputs.name }}", "environment"),
    ("run: make", "run: make ${{ inputs.name }}", "environment"),
    ("permissions: {}\nconcurrency", "permissions: write-all\nconcurrency", "without rights"),
    ("concurrency: one\n", "", "second run"),
    ("    permissions:\n      contents: read\n", "", "job one names its rights"),
    ("    permissions: {}\n", "", "job two names its rights"),
    ("    timeout-minutes: 5\n", "", "job one ends"),
)


def self_test():
    """Returns what the checks miss."""
    missed = [f"the good workflow has: {found}" for found in problems(GOOD, True)]
    for right, wrong, word in PLANTED:
        assert right in GOOD, right
        found = problems(GOOD.replace(right, wrong, 1), True)
        if len(found) != 1 or word not in found[0][1]:
            missed.append(f"{wrong!r} in place of {right!r}: {found}")
    return missed


def main():
    """Prints the mistakes of all files."""
    if sys.argv[1:] == ["--self-test"]:
        found = self_test()
    else:
        files = [(path, True) for path in sorted(Path(".github/workflows").glob("*.y*ml"))]
        files += [(path, False) for path in sorted(Path(".github/actions").glob("*/action.y*ml"))]
        found = [f"{path}:{line}: {what}" for path, kind in files for line, what in problems(path.read_text(), kind)]
        if not files:
            found = [".github has no workflows"]
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

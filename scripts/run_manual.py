#!/usr/bin/env python3
"""Runs the blocks of the manual's pages that are marked to run, and compares their output with the page.

docs/internals/manual.md has the form of the blocks, and where and how they run. The environment must have KUBECONFIG, and PATH
the programs.

    run_manual.py [PAGE...]     these pages; without one all of the manual
"""

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from book import DOCS, MANUAL, fenced

# The longest time that a block may take, in seconds.
LONGEST = 60
SHELL = "set -eu -o pipefail\n"


@dataclass
class Block:
    """A block of a page that runs, with the lines that it must print."""

    line: int
    words: str
    text: str = ""
    expected: list = field(default_factory=list)


def blocks(lines):
    """Returns the blocks of a page that run."""
    found, before = [], ""
    for number, info, inside in fenced(lines):
        if info.startswith("sh run"):
            found.append(Block(number + 1, info[3:], "".join(line + "\n" for line in inside)))
        elif info == "output" and before.startswith("sh run"):
            found[-1].expected = inside
        before = info
    return found


def missing(expected, printed):
    """Returns the first expected line that is missing or out of order, or None."""
    rest = [" ".join(line.split()) for line in printed.splitlines()]
    for line in expected:
        wanted = re.compile(".*".join(re.escape(part) for part in " ".join(line.split()).split("…")))
        while rest and not wanted.search(rest[0]):
            rest.pop(0)
        if not rest:
            return line
        rest.pop(0)
    return None


def end(process):
    """Ends a shell and all processes that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def run(page, parts):
    """Runs blocks in one shell. Returns the mistake of the first block that fails, or None."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, str(number)) for number in range(len(parts))]
        script = Path(folder, "script")
        begun = "".join(f"echo {n} >&9; exec >{outputs[n]} 2>&1\n{part.text}" for n, part in enumerate(parts))
        script.write_text(f"{SHELL}{begun}echo {len(parts)} >&9\n")
        reader, writer = os.pipe()
        # The shell writes the number of each block that it begins to descriptor 9.
        command = ["bash", "-c", f"exec 9>&{writer} {writer}>&-; . {script}"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[writer], start_new_session=True)
        os.close(writer)
        current, began, wrong = -1, time.monotonic(), None
        with os.fdopen(reader) as progress:
            while wrong is None and current < len(parts):
                is_ready, _, _ = select.select([progress], [], [], max(0, began + LONGEST - time.monotonic()))
                line = progress.readline() if is_ready else ""
                if current >= 0:
                    part, printed = parts[current], outputs[current].read_text(errors="replace")
                    where = f"{page}:{part.line}"
                    if not is_ready:
                        wrong = f"{where}: the block takes longer than {LONGEST} s\n{printed}"
                    elif not line:
                        wrong = f"{where}: the block fails with exit code {process.wait()}\n{printed}"
                    elif (lacks := missing(part.expected, printed)) is not None:
                        wrong = f"{where}: the block does not print `{lacks}`; it prints\n{printed}"
                    else:
                        print(f"{where}: {time.monotonic() - began:.1f} s", flush=True)
                elif not line:
                    wrong = f"{page}: the shell does not start"
                current, began = current + 1, time.monotonic()
        end(process)
        return wrong


def objects():
    """Returns the objects that a page must not leave behind or remove."""
    of_cluster = ["kubectl", "get", "persistentvolumes,storageclasses", "-o", "name"]
    of_namespaces = ["kubectl", "get", "persistentvolumeclaims", "--all-namespaces", "-o", "name"]
    configs = ["kubectl", "get", "configmaps", "--all-namespaces", "-l", "type=provisioner-config", "-o", "name"]
    lists = [
        subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout.split()
        for command in (of_cluster, of_namespaces, configs)
    ]
    return {name for names in lists for name in names}


def check(page):
    """Runs a page. Returns its mistakes."""
    found = blocks(Path(page).read_text().splitlines())
    if not found:
        return []
    before = objects()
    wrong = [run(page, [block for block in found if block.words == "run"])]
    wrong += [run(page, [block]) for block in found if block.words == "run cleanup"]
    after = objects()
    if before != after:
        wrong.append(f"{page}: leaves {sorted(after - before)}, and has removed {sorted(before - after)}")
    return [one for one in wrong if one is not None]


def main():
    pages = sys.argv[1:] or sorted(str(page) for folder in MANUAL for page in Path(DOCS, folder).glob("*.md"))
    wrong = [one for page in pages for one in check(page)]
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    print(f"{len(pages)} pages, {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks the arrows between the modules of a crate, and that no files use each other in a circle.

A line of LAYERS is a layer, the lowest first. A module may use what stands on a line above its own in that list, and no
other. Modules on one layer do not use each other. Tests may use everything.

`circles.py` says what counts as a use of a file. `--self-test` checks that planted circles are found.
"""

import re
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

import circles

LAYERS = {
    "crates/core/src": """
        limits optional_text rules
        text
        status_reason
        object
        config
        kept_script pool sync_probe
        run
        batch model
        content snapshot
        claim
        volume
        capacity policies
        findings tables
        preflight uninstall
    """,
    "src": """
        age clock flags last_hour
        log metrics state
        api
        reconcile
        gauges
        admin class_health
        overview
        page
        orchestrate
    """,
    "crates/tool/src": """
        bar collect contexts each files flags kind leader markdown name places recording rights shell
        archive beside forward left out table
        schema
        cluster job new render validate
        complete
        namespaces
        adopt check desk doctor log_level ui uninstall version vouch
        claim completion explain status
        export_traces import logs retry trace
        bundle
    """,
    "src/state": """
        answers compact id missing queue unstarted words watch_change
        record_waits work_item
        cache configs expectations fair_queue outages slot_request
        deletions facts kept_scripts members open_batch records removed_jobs revisions unmarked unseen_writes
        batches left quota slots sync_probes
        pools quota_waiters
        index
        searched
    """,
    "src/reconcile": """
        memory
        context
        creation failing kept_script record
        batch capacity config data_source delete_run drive gate pool sync_probe
        late_runs
        claim snapshot volume
        content findings
        replay
    """,
}

# The crates without circles between their files.
CIRCLE_FREE = [
    "crates/contract/src",
    "crates/core/src",
    "crates/desk/src",
    "crates/manifest/src",
    "crates/tool/src",
    "provisioner-images/kit/src",
    "provisioner-images/cinder/src",
    "provisioner-images/csi/src",
    "provisioner-images/nfs/src",
    "src",
]


def arrows(root):
    """The modules that each module uses, and a file where it does."""
    inner = root.partition("src/")[2].replace("/", "::")
    paths = "crate::" + (inner + "::" if inner and not root.startswith("crates/") else "")
    for path in sorted(Path(root).rglob("*.rs")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] in ("lib", "main", "mod") or any("test" in part or part in ("worlds", "properties") for part in parts):
            continue
        text = re.sub(r"(?m)^\s*//.*$", "", path.read_text())
        text = text.split("#[cfg(test)]\nmod tests {")[0]
        used_here = set(re.findall(rf"\b{paths}([a-z_]+)", text))
        for several in re.findall(rf"\b{paths}\{{([^}}]*)", text):
            used_here |= set(re.findall(r"(?<![\w:])[a-z_]+", several))
        if len(parts) == 1 or parts[1:] == ("mod",):
            used_here |= set(re.findall(r"\bsuper::([a-z_]+)", text))
        for used in used_here:
            if used != parts[0]:
                yield parts[0], used, path


def circles_between_files():
    """Finds mistakes in the files of the crates without circles."""
    for root in CIRCLE_FREE:
        graph = circles.arrows(root)
        for way in circles.circles(graph):
            yield "these files use each other in a circle:\n" + circles.described(graph, way)


def main():
    if sys.argv[1:] == ["--self-test"]:
        tests = unittest.defaultTestLoader.loadTestsFromName("circles_test")
        return 0 if unittest.TextTestRunner(verbosity=0).run(tests).wasSuccessful() else 1
    wrong = list(circles_between_files())
    for root, layers in LAYERS.items():
        layer = {}
        for height, line in enumerate(filter(None, map(str.strip, layers.splitlines()))):
            layer.update(dict.fromkeys(line.split(), height))
        for user, used, path in arrows(root):
            if user not in layer:
                wrong.append(f"{path}: the module {user} has no layer in scripts/layers.py")
            elif used not in layer and any(Path(root, used).with_suffix(end).exists() for end in ("", ".rs")):
                wrong.append(f"{path}: the module {used} has no layer in scripts/layers.py")
            elif used in layer and layer[used] >= layer[user]:
                wrong.append(f"{path}: {user} uses {used}, which stands on its layer or above it")
    print("\n".join(sorted(set(wrong))), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

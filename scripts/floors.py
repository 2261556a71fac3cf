#!/usr/bin/env python3
"""Checks the arrows between the modules of the orchestrator: each may use what stands on its own line or above, and no other.

A line of FLOORS is a floor, the lowest first. Modules on one floor do not use each other. Tests may use everything.
"""

import re
import sys
from pathlib import Path

FLOORS = {
    "crates/core/src": """
        decision limits text
        rules
        object
        config
        attributes node pool sync_probe
        run
        model
        snapshot
        claim
        volume
        capacity policies
        findings
    """,
    "src": """
        clock
        metrics state
        api
        reconcile
        admin
        cli
    """,
    "src/state": """
        change queue unstarted work_item
        cache configs expectations fair_queue slot_request
        facts members removed_jobs revisions unseen_writes
        batches pv_sync quota slots
        pools quota_waiters
        index
    """,
    "src/reconcile": """
        memory
        context
        batch capacity config data_source delete_run pool sync_probe
        orphaned_runs
        claim snapshot volume
        findings
    """,
}


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
        if len(parts) == 1:
            used_here |= set(re.findall(r"\bsuper::([a-z_]+)", text))
        for used in used_here:
            if used != parts[0]:
                yield parts[0], used, path


def main():
    wrong = []
    for root, floors in FLOORS.items():
        floor = {}
        for height, line in enumerate(filter(None, map(str.strip, floors.splitlines()))):
            floor.update(dict.fromkeys(line.split(), height))
        for user, used, path in arrows(root):
            if user not in floor:
                wrong.append(f"{path}: the module {user} has no floor in scripts/floors.py")
            elif used in floor and floor[used] >= floor[user]:
                wrong.append(f"{path}: {user} uses {used}, which stands on its floor or above it")
    print("\n".join(sorted(set(wrong))), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Prints what a release was made from: a statement of in-toto with the predicate of SLSA, which tools sign and check.

    provenance.py VERSION REGISTRY ARCHITECTURES <SHA256SUMS

The variable FLEX_REVISION names the commit, and BUILDER_ID the machine that builds, if a build server sets it.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def compiler():
    """Returns the version of Rust, or nothing where there is none."""
    try:
        return subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except OSError:
        return ""


def main():
    if len(sys.argv) != 4:
        sys.exit("provenance.py: error: usage: provenance.py VERSION REGISTRY ARCHITECTURES <SHA256SUMS")
    version, registry, architectures = sys.argv[1:]
    repository = re.search(r'^repository = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    sums = [line.rstrip("\n").split("  ", 1) for line in sys.stdin]
    source = {"uri": f"git+{repository}", "digest": {"gitCommit": os.environ.get("FLEX_REVISION", "unknown")}}
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for digest, name in sums],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{repository}/blob/v{version}/docs/how-to/release.md",
                "externalParameters": {
                    "version": version,
                    "registry": registry,
                    "architectures": architectures.split(),
                },
                "internalParameters": {"rust": compiler()},
                "resolvedDependencies": [source],
            },
            "runDetails": {"builder": {"id": os.environ.get("BUILDER_ID", f"{repository}#make-release")}},
        },
    }
    json.dump(statement, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()

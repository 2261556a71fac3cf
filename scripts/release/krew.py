#!/usr/bin/env python3
"""Fills the manifest of kubectl's plugin in, or checks it: krew refuses an archive whose sha256 is another.

    krew.py VERSION ARCHIVES [--check MANIFEST]

ARCHIVES is the folder with the archives that deploy/krew/flex.yaml names. A platform without an archive is left out, so that
the manifest promises nothing that the release lacks. With --check, compares MANIFEST with the archives.
"""

import hashlib
import re
import sys
from pathlib import Path

TEMPLATE = Path(__file__).resolve().parents[2] / "deploy/krew/flex.yaml"
NO_SUM = "0" * 64


def fail(text):
    sys.exit(f"krew.py: error: {text}")


def parts(manifest):
    """Divides a manifest into what stands above its platforms, and the platforms."""
    above, line, below = manifest.partition("  platforms:\n")
    if not line:
        fail("the manifest has no platforms")
    return above + line, re.findall(r"^  - .*\n(?:    .*\n?)*", below, re.MULTILINE)


def archive_of(platform):
    """Returns the name of a platform's archive."""
    uri = re.search(r"^    uri: \S*/(\S+)$", platform, re.MULTILINE)
    return uri[1] if uri else fail(f"a platform names no archive: {platform}")


def sum_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def of_version(manifest, version):
    """Checks that a manifest is of this version, by itself and in the addresses of its archives."""
    named = re.findall(r"^  version: v(\S+)$|/releases/download/v([^/]+)/", manifest, re.MULTILINE)
    wrong = {one or other for one, other in named} - {version}
    if wrong or not named:
        fail(f"the manifest is of version {', '.join(wrong) or 'unknown'}, and the release of {version}")


def filled(manifest, archives):
    """Returns the manifest with the sums of the archives that are there, without the template's comment."""
    above, platforms = parts(re.sub(r"\A(#.*\n)+", "", manifest))
    there = [platform for platform in platforms if (archives / archive_of(platform)).is_file()]
    if not there:
        fail(f"{archives} has none of the archives that the manifest names")
    return above + "".join(
        platform.replace(NO_SUM, sum_of(archives / archive_of(platform))) for platform in there
    )


def check(manifest, archives):
    """Checks that each platform has the sum of its archive."""
    _, platforms = parts(manifest)
    if not platforms:
        fail("the manifest has no platform")
    for platform in platforms:
        name = archive_of(platform)
        path = archives / name
        if not path.is_file():
            fail(f"the manifest names {name}, which is not there")
        if f'    sha256: "{sum_of(path)}"\n' not in platform + "\n":
            fail(f"the manifest has another sha256 than {name}")


def main(arguments):
    if len(arguments) not in (2, 4) or arguments[2:3] not in ([], ["--check"]):
        fail("usage: krew.py VERSION ARCHIVES [--check MANIFEST]")
    version, archives = arguments[0], Path(arguments[1])
    manifest = (Path(arguments[3]) if len(arguments) == 4 else TEMPLATE).read_text()
    of_version(manifest, version)
    if len(arguments) == 4:
        check(manifest, archives)
    else:
        sys.stdout.write(filled(manifest, archives))


if __name__ == "__main__":
    main(sys.argv[1:])

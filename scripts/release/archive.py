#!/usr/bin/env python3
"""Writes an archive .tar.gz that has the same bytes each time, wherever and whenever it is made.

    archive.py OUT FOLDER [--below NAME] [--time SECONDS]

It holds all files of FOLDER, below NAME if that is given. The time of each file is SECONDS since 1970, or the variable
SOURCE_DATE_EPOCH, or 0. Users and groups are root, and modes are 0755 or 0644. It needs Python's standard library alone, so
it also works on macOS and Windows.
"""

import argparse
import gzip
import io
import os
import sys
import tarfile
from pathlib import Path


def entries(folder, below):
    """Yields the name in the archive and the path of each file and folder, in the order of their names."""
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        yield "/".join(part for part in (below, path.relative_to(folder).as_posix()) if part), path


def header(name, path, time):
    """Returns the header of a file or folder. Links and devices are a mistake, because krew refuses them."""
    info = tarfile.TarInfo(name)
    info.mtime, info.uname, info.gname = time, "root", "root"
    if path.is_symlink() or not (path.is_dir() or path.is_file()):
        raise SystemExit(f"archive.py: error: {path} is neither a file nor a folder")
    if path.is_dir():
        info.type, info.mode = tarfile.DIRTYPE, 0o755
    else:
        info.size = path.stat().st_size
        info.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
    return info


def packed(folder, below, time):
    """Returns the bytes of the archive."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, path in entries(folder, below):
            info = header(name, path, time)
            archive.addfile(info, io.BytesIO(path.read_bytes()) if info.isreg() else None)
    return gzip.compress(plain.getvalue(), compresslevel=9, mtime=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--below", default="")
    parser.add_argument("--time", type=int, default=int(os.environ.get("SOURCE_DATE_EPOCH", "0")))
    chosen = parser.parse_args()
    if not chosen.folder.is_dir():
        sys.exit(f"archive.py: error: there is no folder {chosen.folder}")
    chosen.out.write_bytes(packed(chosen.folder, chosen.below, chosen.time))


if __name__ == "__main__":
    main()

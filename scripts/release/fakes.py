#!/usr/bin/env python3
"""Makes what release_test.sh packs in place of real programs and images, so that the test compiles nothing.

    fakes.py program ARCHITECTURE VERSION FILE     a program of Linux that prints its version
    fakes.py image ARCHITECTURE FILE               an OCI archive with one image and one Debian package
    fakes.py metadata                              what `cargo metadata` prints for a program with a crate, a macro and a build crate
"""

import gzip
import hashlib
import io
import json
import os
import struct
import sys
import tarfile

BASE, HEADERS = 0x400000, 64 + 56
STATUS = "Package: jq\nStatus: install ok installed\nArchitecture: {}\nSource: jq (1.6)\nVersion: 1:1.6-2+deb12\n\n"


def amd64(length):
    """write(1, text, length), exit(0): the text follows the code."""
    code = b"\xb8\x01\0\0\0\xbf\x01\0\0\0\x48\x8d\x35{}\xba" + struct.pack("<I", length) + b"\x0f\x05"
    end = b"\xb8\x3c\0\0\0\x31\xff\x0f\x05"
    # The address of the text counts from the end of its instruction, which is byte 17.
    after = len(code) - len(b"{}") + 4 + len(end) - 17
    return code.replace(b"{}", struct.pack("<I", after)) + end


def arm64(length):
    words = (0xD2800020, 0x10000001 | 7 << 5, 0xD2800002 | length << 5, 0xD2800808, 0xD4000001, 0xD2800000, 0xD2800BA8)
    return struct.pack("<8I", *words, 0xD4000001)


def program(architecture, version):
    """Returns a whole program in the format ELF, with one segment."""
    text = f"fake {version}\n".encode()
    machine, code = {"amd64": (62, amd64), "arm64": (183, arm64)}[architecture]
    body = code(len(text)) + text
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, BASE + HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    size = HEADERS + len(body)
    return head + struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, size, size, 4096) + body


def packed(files):
    """Returns an archive of files by name."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def image(architecture):
    """Returns an OCI archive."""
    blobs = {}

    def stored(kind, data):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    layer = packed({"var/lib/dpkg/status": STATUS.format(architecture).encode()})
    layers = [stored("layer.v1.tar+gzip", gzip.compress(layer, mtime=0))]
    config = stored("config.v1+json", json.dumps({"architecture": architecture, "os": "linux"}).encode())
    manifest = json.dumps({"schemaVersion": 2, "config": config, "layers": layers}).encode()
    index = json.dumps({"schemaVersion": 2, "manifests": [stored("manifest.v1+json", manifest)]}).encode()
    return packed(blobs | {"index.json": index})


def metadata():
    """Returns crates of which `inside` is in the program, and all others are not."""

    def package(name, kind):
        target = {"name": name, "kind": [kind]}
        return {"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": "r", "targets": [target]}

    def node(name, **kinds):
        deps = [{"pkg": needed, "dep_kinds": [{"kind": kind}]} for needed, kind in kinds.items()]
        return {"id": name, "deps": deps}

    kinds = {"fake": "bin", "inside": "lib", "macro": "proc-macro", "of_macro": "lib", "builds": "lib", "tests": "lib"}
    nodes = [
        node("fake", inside=None, builds="build", tests="dev"),
        node("inside", macro=None),
        node("macro", of_macro=None),
        *map(node, ("of_macro", "builds", "tests")),
    ]
    packages = [package(name, kind) for name, kind in kinds.items()]
    return {"packages": packages, "workspace_members": ["fake"], "resolve": {"nodes": nodes}}


def main(arguments):
    if arguments[0] == "metadata":
        return json.dump(metadata(), sys.stdout)
    with open(arguments[-1], "wb") as file:
        file.write({"program": program, "image": image}[arguments[0]](*arguments[1:-1]))
    os.chmod(arguments[-1], 0o755)


if __name__ == "__main__":
    main(sys.argv[1:])

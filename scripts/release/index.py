#!/usr/bin/env python3
"""Joins the images of several kinds of processors into one OCI archive with an index, and prints the digest of the index.

    index.py OUT REFERENCE ARCHIVE...
    index.py --check DIST      prints the name and the processors of each image of DIST/images.txt, after a check of its archive

Each ARCHIVE is an OCI archive with one image. `skopeo copy --all oci-archive:OUT docker://…` pushes the index with all images,
and a node pulls that of its own processors. The same images give the same bytes.
"""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


class Wrong(Exception):
    """An archive or a call that cannot be used, and why."""


def fail(text):
    raise Wrong(text)


def digest_of(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def name_of(digest):
    return "blobs/" + digest.replace(":", "/")


def blobs_of(path, kind):
    """Returns the descriptor of an archive's image or index, and all blobs by digest. A damaged blob is an error."""
    with tarfile.open(path) as archive:
        listed = json.load(archive.extractfile("index.json"))["manifests"]
        blobs = {
            "sha256:" + member.name.rpartition("/")[2]: archive.extractfile(member).read()
            for member in archive
            if member.isreg() and "blobs/sha256/" in member.name
        }
    for digest, data in blobs.items():
        if digest != digest_of(data):
            fail(f"{path} is damaged: a blob is not {digest}")
    if len(listed) != 1 or listed[0]["mediaType"] != kind:
        fail(f"{path} is no archive with one {kind}")
    return listed[0], blobs


def with_platform(descriptor, blobs):
    """Returns the descriptor of an image with its processors, as its own config names them."""
    config = json.loads(blobs[json.loads(blobs[descriptor["digest"]])["config"]["digest"]])
    platform = {key: config[key] for key in ("architecture", "os", "variant") if config.get(key)}
    return {key: descriptor[key] for key in ("mediaType", "digest", "size")} | {"platform": platform}


def text(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def joined(reference, archives):
    """Returns the digest of the index, and the files of the new archive by name."""
    images, blobs = [], {}
    for path in archives:
        descriptor, own = blobs_of(path, MANIFEST)
        images.append(with_platform(descriptor, own))
        blobs |= own
    images.sort(key=lambda one: one["platform"]["architecture"])
    kinds = [tuple(image["platform"].items()) for image in images]
    if len(set(kinds)) != len(kinds):
        fail(f"two images are for the same processors: {kinds}")
    index = text({"schemaVersion": 2, "mediaType": INDEX, "manifests": images})
    digest = digest_of(index)
    blobs[digest] = index
    top = {"mediaType": INDEX, "digest": digest, "size": len(index)}
    top["annotations"] = {"org.opencontainers.image.ref.name": reference}
    files = {name_of(one): data for one, data in blobs.items()}
    files["oci-layout"] = text({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = text({"schemaVersion": 2, "manifests": [top]})
    return digest, files


def processors(path, digest):
    """Returns the processors of an index, after a check that all its parts are there and undamaged."""
    descriptor, blobs = blobs_of(path, INDEX)
    if descriptor["digest"] != digest:
        fail(f"{path} has the digest {descriptor['digest']}, not {digest}")
    images = json.loads(blobs[digest])["manifests"]
    for image in images:
        manifest = json.loads(blobs.get(image["digest"]) or fail(f"{path} lacks an image"))
        for part in [manifest["config"], *manifest["layers"]]:
            if part["digest"] not in blobs:
                fail(f"{path} lacks a part of an image")
    return [image["platform"]["architecture"] for image in images]


def check(dist):
    """Prints what the images of a release are for. Returns whether all are those of its list."""
    right = True
    for reference in (dist / "images.txt").read_text().split():
        tagged, _, digest = reference.partition("@")
        name = tagged.rpartition("/")[2].partition(":")[0]
        try:
            print(name, *processors(dist / "images" / f"{name}.tar", digest))
        except (Wrong, OSError, KeyError, tarfile.TarError) as error:
            print(f"index.py: error: the image {name} is not that of images.txt: {error}", file=sys.stderr)
            right = False
    return right


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--check":
        return 0 if check(Path(arguments[1])) else 1
    if len(arguments) < 3:
        fail("usage: index.py OUT REFERENCE ARCHIVE... | index.py --check DIST")
    digest, files = joined(arguments[1], arguments[2:])
    with tarfile.open(arguments[0], "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    print(digest)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Wrong as error:
        sys.exit(f"index.py: error: {error}")

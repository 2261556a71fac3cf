#!/usr/bin/env python3
"""Prints the list of parts of a program or of an image, as CycloneDX 1.5 in JSON, which scanners read.

    cargo metadata --locked --format-version 1 --filter-platform TARGET | sbom.py program NAME
    sbom.py image ARCHIVE NAME VERSION [LIST-OF-A-PROGRAM...]

NAME of a program is that of its file. Crates that only the compiler runs, such as macros, have the scope `excluded`, because
they are not in the program. An image has the Debian packages of its /var/lib/dpkg/status, and the parts of its programs.
ARCHIVE is an OCI archive with one image. The variable SOURCE_DATE_EPOCH gives the time, so that the same input prints the
same text.
"""

import datetime
import gzip
import io
import json
import os
import sys
import tarfile
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STATUS = "var/lib/dpkg/status"


def fail(text):
    sys.exit(f"sbom.py: error: {text}")


def document(main, components, dependencies):
    """Returns a whole list. Its number follows from its contents."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    time = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {
        "metadata": {"timestamp": time, "component": main},
        "components": sorted(components, key=lambda one: one["bom-ref"]),
        "dependencies": sorted(dependencies, key=lambda one: one["ref"]),
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{number}", "version": 1}
    return head | body


# Programs.


def checksums():
    """Returns the sha256 of each crate by name and version, as Cargo.lock has them."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(one["name"], one["version"]): one["checksum"] for one in lock["package"] if "checksum" in one}


def is_macro(package):
    return any("proc-macro" in target["kind"] for target in package["targets"])


def reached(start, nodes, packages, for_compiler):
    """Returns the ids of the crates that one crate needs, itself included: in the program, or also for the compiler."""
    seen, waiting = {start}, [start]
    while waiting:
        for needed in nodes[waiting.pop()]["deps"]:
            kinds = {kind["kind"] for kind in needed["dep_kinds"]}
            inside = None in kinds and not is_macro(packages[needed["pkg"]])
            beside = for_compiler and kinds & {None, "build"}
            if (inside or beside) and needed["pkg"] not in seen:
                seen.add(needed["pkg"])
                waiting.append(needed["pkg"])
    return seen


def crate(package, sums, inside):
    """Returns the component of a crate. One of this project is in no registry, so that it has no address there."""
    name, version = package["name"], package["version"]
    one = {
        "type": "library",
        "bom-ref": f"crate:{name}@{version}",
        "name": name,
        "version": version,
        "scope": "required" if inside else "excluded",
    }
    if package.get("source"):
        one["purl"] = f"pkg:cargo/{name}@{version}"
    if sums.get((name, version)):
        one["hashes"] = [{"alg": "SHA-256", "content": sums[name, version]}]
    if package.get("license"):
        one["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if package.get("repository"):
        one["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return one


def of_program(metadata, name):
    """Returns the list of a program's crates."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    makes = [
        identity
        for identity in metadata["workspace_members"]
        if any(target["name"] == name and "bin" in target["kind"] for target in packages[identity]["targets"])
    ]
    if len(makes) != 1:
        fail(f"{len(makes)} crates of this workspace make a program {name}")
    start, sums = makes[0], checksums()
    inside = reached(start, nodes, packages, for_compiler=False)
    every = reached(start, nodes, packages, for_compiler=True)
    reference = {identity: f"crate:{packages[identity]['name']}@{packages[identity]['version']}" for identity in every}
    main = {"type": "application", "bom-ref": f"program:{name}", "name": name, "version": packages[start]["version"]}
    main["licenses"] = [{"expression": packages[start]["license"]}]
    dependencies = [{"ref": main["bom-ref"], "dependsOn": [reference[start]]}]
    for identity in every:
        needed = {reference[one["pkg"]] for one in nodes[identity]["deps"] if one["pkg"] in every}
        dependencies.append({"ref": reference[identity], "dependsOn": sorted(needed)})
    components = [crate(packages[identity], sums, identity in inside) for identity in every]
    return document(main, components, dependencies)


# Images.


def blob(archive, digest):
    return archive.extractfile("blobs/" + digest.replace(":", "/")).read()


def file_of_image(path, name):
    """Returns the text of a file of an image, that of the uppermost layer, or an empty one."""
    found = b""
    with tarfile.open(path) as archive:
        index = json.load(archive.extractfile("index.json"))
        manifest = json.loads(blob(archive, index["manifests"][0]["digest"]))
        for layer in manifest.get("layers") or fail(f"{path} is no archive with one image"):
            raw = blob(archive, layer["digest"])
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)) as files:
                for member in files:
                    if member.name.removeprefix("./").removeprefix("/") == name and member.isreg():
                        found = files.extractfile(member).read()
    return found.decode()


def paragraphs(text):
    """Yields the fields of each package, without the further lines of a field."""
    for paragraph in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if "Package" in fields:
            yield fields


def debian(fields):
    """Returns the component of a Debian package."""
    name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
    address = version.replace("+", "%2B").replace(":", "%3A")
    one = {
        "type": "library",
        "bom-ref": f"deb:{name}@{version}",
        "name": name,
        "version": version,
        "scope": "required",
        "purl": f"pkg:deb/debian/{name.replace('+', '%2B')}@{address}?arch={architecture}&distro=debian-12",
    }
    # Sources have other names, by which Debian's advisories go.
    if source := fields.get("Source"):
        one["properties"] = [{"name": "syft:metadata:source", "value": source.split(" ")[0]}]
    return one


def of_image(archive, name, version, programs):
    """Returns the list of an image: its Debian packages, its programs and their crates."""
    main = {"type": "container", "bom-ref": f"image:{name}", "name": name, "version": version}
    components = {one["bom-ref"]: one for one in map(debian, paragraphs(file_of_image(archive, STATUS)))}
    own = sorted(components)
    dependencies = {}
    for path in programs:
        listed = json.loads(Path(path).read_text())
        inner = listed["metadata"]["component"]
        own.append(inner["bom-ref"])
        components[inner["bom-ref"]] = inner | {"scope": "required"}
        for one in listed["components"]:
            # A crate that is in one program is in the image.
            known = components.get(one["bom-ref"])
            if known is None or known["scope"] == "excluded":
                components[one["bom-ref"]] = one
        for one in listed["dependencies"]:
            needed = set(one["dependsOn"]) | set(dependencies.get(one["ref"], ()))
            dependencies[one["ref"]] = sorted(needed)
    dependencies[main["bom-ref"]] = own
    listed = [{"ref": reference, "dependsOn": needed} for reference, needed in dependencies.items()]
    return document(main, components.values(), listed)


def main(arguments):
    if arguments[:1] == ["program"] and len(arguments) == 2:
        made = of_program(json.load(sys.stdin), arguments[1])
    elif arguments[:1] == ["image"] and len(arguments) >= 4:
        made = of_image(*arguments[1:4], arguments[4:])
    else:
        fail("usage: sbom.py program NAME <METADATA | sbom.py image ARCHIVE NAME VERSION [LIST...]")
    json.dump(made, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main(sys.argv[1:])

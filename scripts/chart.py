#!/usr/bin/env python3
"""Writes the parts of the Helm chart that follow from other files, or with --check compares them.

- `files/presets/*.yaml` follow from `configmaps/` and `examples/`, by the table PRESETS in chart_presets.py.
- `files/policies.yaml`, `files/alerts.yaml` and `files/dashboard.json` are copies.
- `values.schema.json` follows from the comments of `values.yaml`.
- `Chart.yaml` names the version of the workspace. It is only compared.

Only the standard library is used, so the reader of YAML below knows no more than `values.yaml` needs.
"""

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

# Python writes no files beside the sources.
sys.dont_write_bytecode = True
from chart_presets import presets

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy/helm/flex-provisioner"
COPIES = {
    "files/policies.yaml": "deploy/kustomize/policies.yaml",
    "files/alerts.yaml": "deploy/dashboards/alerts.yaml",
    "files/dashboard.json": "deploy/dashboards/flex-provisioner.json",
}
TYPES = {str: "string", bool: "boolean", int: "integer", list: "array", dict: "object"}


@dataclass
class Value:
    """A value of `values.yaml` with its comment."""

    path: str
    default: object
    doc: list[str]
    schema: dict
    children: list["Value"] = field(default_factory=list)


class Refused(Exception):
    """A mistake in a source, with its place and what to do."""


def scalar(text):
    """Reads a value that is on one line."""
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if text == "{}":
        return {}
    if text.startswith("["):
        return [scalar(item.strip()) for item in text[1:-1].split(",") if item.strip()]
    return json.loads(text) if text.startswith('"') else text


def tree(lines):
    """Reads a block of maps, lists and scalars, without comments."""
    if not lines:
        return ""
    indent = len(lines[0]) - len(lines[0].lstrip())
    of_list = lines[0].lstrip().startswith("- ")
    items = []
    for line in lines:
        # The entries of a list may have the same indentation as its key.
        is_item = line[indent : indent + 1] != " " and (of_list or not line[indent:].startswith("- "))
        items = [*items, [line]] if is_item else [*items[:-1], [*items[-1], line]]
    if of_list:
        return [tree([" " * (indent + 2) + item[0][indent + 2 :], *item[1:]]) for item in items]
    if ":" not in lines[0]:
        return scalar(lines[0].strip())
    pairs = {}
    for item in items:
        key, _, rest = item[0].strip().partition(":")
        pairs[key] = scalar(rest.strip()) if rest.strip() else tree(item[1:])
    return pairs


def entries(lines, indent, prefix):
    """Splits a block into its values with their comments. Returns nothing if no value has a comment."""
    found, doc, n = [], [], 0
    while n < len(lines):
        line = lines[n]
        if not line.strip():
            doc = []
        elif line.lstrip().startswith("#"):
            doc.append(line.strip()[1:].strip())
        else:
            key, _, rest = line.strip().partition(":")
            end = n + 1
            while end < len(lines) and lines[end].startswith((" " * (indent + 1), " " * indent + "- ")):
                end += 1
            found.append(value(f"{prefix}{key}", rest.strip(), lines[n + 1 : end], doc, indent))
            doc, n = [], end - 1
        n += 1
    return found if any(one.doc for one in found) else []


def value(path, rest, block, doc, indent):
    """Makes the value of one key from the rest of its line, the block under it and its comment."""
    schema = {}
    for line in doc:
        if line.startswith("@schema "):
            try:
                schema = json.loads(line.removeprefix("@schema "))
            except json.JSONDecodeError as error:
                raise Refused(f"values.yaml: the line @schema of {path} is not JSON: {error}") from error
    doc = [line for line in doc if not line.startswith("@schema ")]
    children = entries(block, indent + 2, f"{path}.")
    for child in children:
        if not child.doc:
            raise Refused(f"values.yaml: {child.path} has no comment; write what it does above it")
    bare = [line for line in block if not line.lstrip().startswith("#")]
    return Value(path, scalar(rest) if rest else tree(bare), doc, schema, children)


def values(text):
    """Returns all values of `values.yaml`, whose headings divide them."""
    found = []
    for body in re.split(r"^## .*\n", text, flags=re.M)[1:]:
        found += entries(body.strip("\n").split("\n"), 0, "")
    for one in found:
        if not one.doc:
            raise Refused(f"values.yaml: {one.path} has no comment; write what it does above it")
    return found


def schema_of(one, named):
    """Makes the schema of a value from its default, its children and its line @schema."""
    own = {"description": " ".join(one.doc), "type": TYPES[type(one.default)]}
    if "enum" in one.schema:
        del own["type"]
    if one.children:
        own["additionalProperties"] = False
        own["properties"] = {child.path.rsplit(".", 1)[1]: schema_of(child, named) for child in one.children}
    own |= one.schema
    if isinstance(own.get("additionalProperties"), str):
        # Each entry of the map is like another value. The templates refuse a field that nobody knows, in a sentence.
        like = named[own["additionalProperties"]]
        own["additionalProperties"] = {"type": "object", "properties": schema_of(like, named)["properties"]}
    return own


def schema(found):
    """Makes the schema of all values."""
    named = {one.path: one for one in found}
    whole = {
        "$schema": "https://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
        "properties": {path: schema_of(one, named) for path, one in named.items()},
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def version_problems():
    """Compares the versions in Chart.yaml with that of the workspace."""
    cargo = (ROOT / "Cargo.toml").read_text()
    version = re.search(r'^\[workspace\.package\]\nversion = "(.*)"$', cargo, flags=re.M)[1]
    chart = (CHART / "Chart.yaml").read_text()
    for key in ("version", "appVersion"):
        written = re.search(rf"^{key}: *\"?([^\"\n]*)", chart, flags=re.M)
        if not written or written[1] != version:
            yield f"Chart.yaml: {key} is not {version}, the version in Cargo.toml; write {key}: {version}"
    for image in re.findall(r"^ *image: (.*)$", chart, flags=re.M):
        if not image.endswith(f":{version}"):
            yield f"Chart.yaml: the image {image} has not the tag {version} of Cargo.toml"


def outputs():
    """Returns each file that is written, with its text."""
    files = {CHART / "values.schema.json": schema(values((CHART / "values.yaml").read_text()))}
    files |= {CHART / copy: (ROOT / source).read_text() for copy, source in COPIES.items()}
    files |= {CHART / f"files/presets/{name}.yaml": text for name, text in presets(ROOT)}
    return files


def main():
    """Writes the files, or compares them, and returns the exit code."""
    try:
        files = outputs()
    except (Refused, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    problems = list(version_problems())
    stale = set((CHART / "files/presets").glob("*.yaml")) - set(files)
    if sys.argv[1:] == ["--check"]:
        old = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
        wrong = [path.relative_to(ROOT) for path in [*old, *sorted(stale)]]
        problems += [f"{path} is not what its sources say; run make chart" for path in wrong]
    else:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for path in stale:
            path.unlink()
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return int(bool(problems))


sys.exit(main())

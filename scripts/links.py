#!/usr/bin/env python3
"""Finds links in Markdown files that lead to no file, or to no heading of it. Does not check links to other sites."""

import re
import subprocess
import sys
from pathlib import Path


def prose(path):
    """Yields the lines of a file that are in no block of code."""
    fenced = False
    for line in path.read_text().splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield line


def anchors(path):
    """Returns the names of a file's headings in links."""
    seen = {}
    for line in prose(path):
        if heading := re.match(r"#+ (.*)", line):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            seen[name] = seen.get(name, -1) + 1
            yield name if seen[name] == 0 else f"{name}-{seen[name]}"


def problems(path):
    """Finds mistakes in the links of a file."""
    for link in re.findall(r"\]\(([^)\s]+)\)", "\n".join(prose(path))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists():
            yield f"{path}: {link} leads to no file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{path}: {link} leads to no heading"


files = subprocess.run(["git", "ls-files", "-z", "*.md"], capture_output=True, text=True, check=True).stdout
found = [problem for name in files.split("\0") if name and Path(name).exists() for problem in problems(Path(name))]
print("\n".join(found), file=sys.stderr, end="\n" if found else "")
sys.exit(bool(found))

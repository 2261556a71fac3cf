#!/usr/bin/env python3
"""A preprocessor of mdBook, which `mdbook build` calls by book.toml, and a check of the manual's pages.

Pages link to files beside docs/, and to pages that are not in the book, such as single decisions. On GitHub these links work.
In the book they become links to the repository.

    book.py --check     finds pages that docs/SUMMARY.md does not list, pages that are too long, and blocks in a wrong form
"""

import json
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

DOCS = "docs"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
# Pages of the manual, and the number of lines that each may have.
MANUAL = ("tutorials", "how-to", "explanation")
LONGEST = 150
# The words after `sh` of a block that a program runs.
RUN = ("run", "run cleanup")


def chapters(items):
    """Yields all chapters of a list of items, and the chapters below them."""
    for item in items:
        if isinstance(item, dict) and (chapter := item.get("Chapter")):
            yield chapter
            yield from chapters(chapter["sub_items"])


def without_dots(path):
    """Returns a path without `.` and `..`, or None if it leads out of the repository."""
    parts = []
    for part in path.parts:
        if part == ".." and not parts:
            return None
        parts = parts[:-1] if part == ".." else parts + [part]
    return PurePosixPath(*parts)


def rewritten(link, source, pages, repository):
    """Returns a link of the page `source` as the book needs it. `pages` are the sources of all pages."""
    name, hash_sign, anchor = link.partition("#")
    if not name or re.match(r"[a-z]+:", name):
        return link
    target = without_dots(PurePosixPath(DOCS, source).parent / name)
    if target is None:
        return link
    inside = target.relative_to(DOCS) if target.is_relative_to(DOCS) else None
    if inside is not None and inside in pages:
        return (name[: -len("README.md")] + "index.md" if target.name == "README.md" else name) + hash_sign + anchor
    if inside is not None and target.suffix in (".svg", ".png", ".json"):
        return link
    kind = "tree" if Path(target).is_dir() else "blob"
    return f"{repository}/{kind}/main/{target}{hash_sign}{anchor}"


def rewrite(book, repository):
    """Rewrites the links of all chapters, outside of blocks of code."""
    all_chapters = [one for one in chapters(book.get("sections") or book.get("items")) if one.get("source_path")]
    pages = {PurePosixPath(one["source_path"]) for one in all_chapters}
    for chapter in all_chapters:
        source, fenced, lines = chapter["source_path"], False, []
        for line in chapter["content"].split("\n"):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            if not fenced:
                line = LINK.sub(lambda m: m[1] + rewritten(m[2], source, pages, repository) + m[3], line)
            lines.append(line)
        chapter["content"] = "\n".join(lines)


def fenced(lines):
    """Yields the blocks of a page: number of the first line, info string, and the lines inside."""
    block = None
    for number, line in enumerate(lines, 1):
        is_fence = line.startswith("```")
        if block is None and is_fence:
            block = (number, line[3:], [])
        elif is_fence:
            yield block
            block = None
        elif block is not None:
            block[2].append(line)
    if block is not None:
        yield block


def wrong_blocks(path, lines):
    """Finds mistakes in the blocks of a page that a program runs."""
    before, runs = "", []
    for number, info, _ in fenced(lines):
        language, _, words = info.partition(" ")
        if words and (language != "sh" or words not in RUN):
            yield f"{path}:{number}: no block has the form `{info}`"
        elif info == "output" and before != "sh run":
            yield f"{path}:{number}: the output follows no block `sh run`"
        if words:
            runs.append(words)
        before = info
    if "run cleanup" in runs[:-1]:
        yield f"{path}: a block that runs follows the cleanup"


def problems():
    """Finds mistakes in the pages of the manual."""
    listed = set(re.findall(r"\]\(([^)]+)\)", Path(DOCS, "SUMMARY.md").read_text()))
    found = subprocess.run(["git", "ls-files", "-z", f"{DOCS}/*.md"], capture_output=True, text=True, check=True).stdout
    for name in found.split("\0"):
        if not name or not Path(name).exists():
            continue
        page = PurePosixPath(name).relative_to(DOCS)
        lines = Path(name).read_text().splitlines()
        yield from wrong_blocks(name, lines)
        if page.parts[0] in MANUAL and len(lines) > LONGEST:
            yield f"{name}: has {len(lines)} lines, and may have {LONGEST}"
        if str(page) != "SUMMARY.md" and page.parts[0] not in ("adr", "bench") and str(page) not in listed:
            yield f"{name}: docs/SUMMARY.md does not list it"


def main():
    if sys.argv[1:2] == ["supports"]:
        return 0
    if sys.argv[1:] == ["--check"]:
        found = list(problems())
        print("\n".join(found), file=sys.stderr, end="\n" if found else "")
        return 1 if found else 0
    context, book = json.load(sys.stdin)
    rewrite(book, context["config"]["output"]["html"]["git-repository-url"])
    json.dump(book, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())

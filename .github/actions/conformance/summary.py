#!/usr/bin/env python3
"""Prints the results of conformance as Markdown: summary.py REPORT, where the report is a file of --junit."""

import html
import re
import sys
import xml.etree.ElementTree as ElementTree

# The longest text in a cell.
LONGEST = 500


def cell(text):
    """Returns a text that keeps a table whole, and is neither a link nor HTML: a program under test may have written it."""
    short = " ".join(text.split())
    short = short if len(short) <= LONGEST else short[: LONGEST - 1] + "…"
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", html.escape(short, quote=False))


def summary(report):
    """Returns the lines for a report, as the root of its document."""
    cases = list(report.iter("testcase"))
    failed = [(case, case.find("failure")) for case in cases if case.find("failure") is not None]
    skipped = [(case, case.find("skipped")) for case in cases if case.find("skipped") is not None]
    words = [prop.get("value", "") for prop in report.iter("property") if prop.get("name") == "summary"]
    passed = len(cases) - len(failed) - len(skipped)
    yield f"### Conformance: {cell(words[0]) if words else 'no summary'}"
    yield ""
    yield f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped"
    for title, found in (("failed", failed), ("skipped", skipped)):
        if not found:
            continue
        yield from ("", f"| {title} | why |", "|---|---|")
        for case, outcome in found:
            why = cell(outcome.get("message", ""))
            mend = [line for line in (outcome.text or "").splitlines() if line.startswith("mend: ")]
            yield f"| {cell(case.get('name', ''))} | {'<br>'.join([why, *map(cell, mend)])} |"


if __name__ == "__main__":
    print("\n".join(summary(ElementTree.parse(sys.argv[1]).getroot())))

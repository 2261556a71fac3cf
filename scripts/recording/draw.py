#!/usr/bin/env python3
"""Draws the transcript of the recording as a terminal in an animated SVG.

    draw.py < docs/recording.json > docs/recording.svg

The picture has no script and no font of its own, and its animation is CSS. Without animation it shows the last screen: so do
programs that know no CSS, and browsers whose user wants no motion.
"""

import html
import json
import sys
from dataclasses import dataclass

# The length of the film, and the time for which its last screen stays, in seconds.
LENGTH, HOLD = 25, 3.5
# The size of the terminal, in characters, and of a character, in pixels. `textLength` gives every font this width.
COLUMNS, ROWS = 100, 27
WIDE, HIGH = 7.8, 18
LEFT, TOP = 16, 44
# The largest picture, in bytes.
LARGEST = 60_000
# A place to the right of the picture.
OUTSIDE = 2000
# An act of at least this time shows it, in seconds.
SLOW = 0.5

STYLE = """text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;fill:#c9d1d9}
.command{fill:#fff}.say{fill:#7ee787}.bad{fill:#ffa198}.time,.title{fill:#8b949e}.ground{fill:#161b22}.cursor{fill:#c9d1d9}
@media (prefers-reduced-motion:reduce){*{animation:none!important}}"""


class Unfit(Exception):
    """No picture can be drawn. The text says why."""


@dataclass
class Row:
    """A line of the terminal: its kind is `say`, `command`, `bad`, or empty for other output."""

    text: str
    kind: str = ""
    time: str = ""


@dataclass
class Act:
    """Rows that appear together, after a command was typed; or, without output, only a pause."""

    typed: list
    output: list
    # Weights of the phases, in seconds before the whole film gets its length.
    typing: float
    waiting: float
    reading: float


def wrapped(text):
    """Returns the rows of a line, cut as a terminal cuts it."""
    return [text[at : at + COLUMNS] for at in range(0, len(text), COLUMNS)] or [""]


def act(step, is_first):
    """Returns what the terminal shows of a step."""
    typed = [] if is_first or not step["say"] else [Row("")]
    typed += [Row(f"# {step['say']}", "say")] if step["say"] else []
    typed += [Row(text, "command") for text in wrapped(f"$ {step['command']}")]
    output = []
    for line in step["output"].expandtabs(8).splitlines():
        kind = "bad" if line.lstrip().startswith("Warning ") else ""
        output += [Row(text.rstrip(), kind) for text in wrapped(line)]
    if output and step["seconds"] >= SLOW and len(output[-1].text) < COLUMNS - 8:
        output[-1].time = f"{step['seconds']:.1f} s"
    return Act(
        typed,
        output,
        typing=0.02 * len(step["command"]),
        waiting=0.2 + 0.15 * min(step["seconds"], 4),
        reading=0.4 + (0.7 if step["say"] else 0) + 0.12 * min(len(output), 15),
    )


@dataclass
class Film:
    """The rows of the whole terminal, and what happens to them, at times in seconds."""

    rows: list
    # From these times on, this number of rows is visible.
    shown: list
    # Row, begin and end of the typing of each row of a command.
    typing: list


def film(acts):
    """Returns the film of the acts, which is LENGTH seconds long."""
    whole = sum(one.typing + one.waiting + one.reading for one in acts)
    pace = (LENGTH - HOLD) / whole
    now, rows, shown, typing = 0.0, [], [(0.0, 0)], []
    for one in acts:
        letters = sum(len(row.text) for row in one.typed if row.kind == "command")
        for row in one.typed:
            rows.append(row)
            shown.append((now, len(rows)))
            if row.kind == "command":
                end = now + one.typing * pace * len(row.text) / letters
                typing.append((len(rows) - 1, now, end))
                now = end
        now += one.waiting * pace
        rows += one.output
        shown.append((now, len(rows)))
        now += one.reading * pace
    return Film(rows, shown, typing)


def percent(seconds):
    return f"{100 * seconds / LENGTH:.2f}".rstrip("0").rstrip(".") + "%"


def steps(name, moments):
    """Returns keyframes that move by whole rows. The last of several moments at one time counts."""
    places = {percent(at): pixels for at, pixels in moments}
    body = "".join(f"{at}{{transform:translateY({pixels}px)}}" for at, pixels in places.items())
    return f"@keyframes {name}{{{body}}}"


def typed(number, letters, begin, end):
    """Returns keyframes of the cover of a command, which moves to the right by letters, and then out of the picture."""
    begin, end, after = percent(begin), percent(end), percent(end + 0.02)
    there = f"{letters * WIDE:g}px"
    return (
        f"@keyframes t{number}{{0%,{begin}{{transform:none;animation-timing-function:steps({letters},end)}}"
        f"{end}{{transform:translateX({there});animation-timing-function:step-end}}{after},100%{{transform:translateX({OUTSIDE}px)}}}}"
        f".t{number}{{animation:t{number} {LENGTH}s infinite}}"
    )


def text(row, number):
    """Returns the SVG of a row."""
    y = TOP + HIGH * number + 13
    lead = len(row.text) - len(row.text.lstrip())
    words = row.text.strip()
    drawn = ""
    if words:
        kind = f' class="{row.kind}"' if row.kind else ""
        x, width = LEFT + lead * WIDE, len(words) * WIDE
        drawn = f'<text{kind} x="{x:g}" y="{y}" textLength="{width:g}">{html.escape(words, quote=False)}</text>\n'
    if row.time:
        x = LEFT + (COLUMNS - len(row.time)) * WIDE
        drawn += f'<text class="time" x="{x:g}" y="{y}" textLength="{len(row.time) * WIDE:g}">{row.time}</text>\n'
    return drawn


def cover(number, row):
    """Returns the SVG of the cover of a command: the background, and the cursor at its left end."""
    y, width = TOP + HIGH * row, COLUMNS * WIDE
    return (
        f'<g class="t{number}" transform="translate({OUTSIDE})"><rect class="ground" x="{LEFT}" y="{y}" width="{width:g}" height="{HIGH}"/>'
        f'<rect class="cursor" x="{LEFT}" y="{y + 2}" width="{WIDE}" height="{HIGH - 3}"/></g>\n'
    )


def picture(transcript):
    """Returns the SVG of a transcript, as docs/recording.json has it.

    Raises Unfit if the picture would be too large, or a row has a character that no terminal shows."""
    acts = [act(step, number == 0) for number, step in enumerate(transcript["steps"])]
    shot = film(acts)
    if odd := next((row.text for row in shot.rows if not row.text.isprintable()), None):
        raise Unfit(f"this row cannot be drawn: {odd!r}")
    depth = lambda rows: -HIGH * max(0, rows - ROWS)
    width, height = 2 * LEFT + COLUMNS * WIDE, TOP + ROWS * HIGH + 14
    style = [STYLE, steps("show", [(at, HIGH * rows) for at, rows in shot.shown])]
    style += [steps("roll", [(at, depth(rows)) for at, rows in shot.shown])]
    style += [f".show{{animation:show {LENGTH}s step-end infinite}}.roll{{animation:roll {LENGTH}s step-end infinite}}"]
    style += [typed(n, len(shot.rows[row].text), begin, end) for n, (row, begin, end) in enumerate(shot.typing)]
    seconds = sum(step["seconds"] for step in transcript["steps"])
    title = f"a real run of {seconds:.0f} s on Kubernetes {transcript['kubernetes']}, {transcript['recorded']}"
    told = ". ".join(step["say"] for step in transcript["steps"] if step["say"])
    lines = "".join(text(row, number) for number, row in enumerate(shot.rows))
    covers = "".join(cover(n, row) for n, (row, _, _) in enumerate(shot.typing))
    # The cover of all rows that are not there yet moves down. It is far below where nothing is animated.
    hidden = f'<rect class="ground show" transform="translate(0,{OUTSIDE})" y="{TOP}" width="{width:g}" height="{HIGH * (len(shot.rows) + ROWS)}"/>'
    image = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}" height="{height}" role="img" aria-label="{html.escape(told)}" xml:space="preserve">
<style>{chr(10).join(style)}</style>
<clipPath id="screen"><rect x="1" y="{TOP}" width="{width - 2:g}" height="{ROWS * HIGH + 4}"/></clipPath>
<rect class="ground" x=".5" y=".5" width="{width - 1:g}" height="{height - 1}" rx="8" stroke="#6e7681"/>
<circle cx="20" cy="19" r="6" fill="#ff5f57"/><circle cx="40" cy="19" r="6" fill="#febc2e"/><circle cx="60" cy="19" r="6" fill="#28c840"/>
<text class="title" x="{width / 2:g}" y="23" text-anchor="middle">{html.escape(title)}</text>
<g clip-path="url(#screen)"><g class="roll" transform="translate(0,{depth(len(shot.rows))})">
{lines}{covers}{hidden}
</g></g>
</svg>
"""
    if len(image.encode()) > LARGEST:
        raise Unfit(f"the picture has {len(image.encode())} bytes, more than {LARGEST}")
    return image


def main():
    try:
        sys.stdout.write(picture(json.load(sys.stdin)))
    except (Unfit, KeyError, ValueError) as error:
        print(f"draw.py: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Draws transcripts, and checks the pictures: what they show, when, and in how many bytes. Compares transcripts of two runs."""

import re
import sys
import unittest
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parent))

import draw
import story

SVG = "{http://www.w3.org/2000/svg}"


def step(command, output="done\n", say="", seconds=0.1):
    return {"say": say, "command": command, "output": output, "seconds": seconds}


def transcript(*steps):
    return {"kubernetes": "v1.36.3", "recorded": "2026-11-30", "steps": list(steps)}


def film(*steps):
    return draw.film([draw.act(one, number == 0) for number, one in enumerate(steps)])


def shown(picture):
    """The texts of a picture, without its title."""
    return [text.text for text in ElementTree.fromstring(picture).iter(SVG + "text")][1:]


class Pictures(unittest.TestCase):
    def test_commands_outputs_and_slow_times_are_shown_in_order(self):
        picture = draw.picture(transcript(step("one", say="first"), step("two", "a <b> & c\n  d\n", seconds=2.25)))
        self.assertEqual(shown(picture), ["# first", "$ one", "done", "$ two", "a <b> & c", "d", "2.2 s"])

    def test_long_lines_are_cut_and_nothing_of_them_is_lost(self):
        words = "".join(chr(ord("a") + n % 26) for n in range(2 * draw.COLUMNS + 7))
        rows = film(step("one", words + "\n")).rows[1:]
        self.assertEqual([len(row.text) for row in rows], [draw.COLUMNS, draw.COLUMNS, 7])
        self.assertEqual("".join(row.text for row in rows), words)

    def test_a_warning_stands_out_with_all_its_rows(self):
        rows = film(step("one", "  Warning  Failed  " + "x" * draw.COLUMNS + "\n  Normal  Bound\n")).rows[1:]
        self.assertEqual([row.kind for row in rows], ["bad", "bad", ""])

    def test_rows_appear_in_order_and_the_last_screen_stays(self):
        for steps in ([step("one")], [step(f"command {n}", "line\n" * n) for n in range(30)]):
            shot = film(*steps)
            self.assertEqual(shot.shown, sorted(shot.shown))
            self.assertEqual(shot.shown[-1][1], len(shot.rows))
            self.assertLess(shot.shown[-1][0], draw.LENGTH - draw.HOLD)

    def test_a_command_is_typed_before_its_output_comes(self):
        shot = film(step("x" * (draw.COLUMNS + 10)), step("two"))
        ends = {row: end for row, _, end in shot.typing}
        first = {}
        for at, rows in shot.shown:
            for row in range(rows):
                first.setdefault(row, at)
        self.assertEqual([ends[0] <= first[1], ends[1] < first[2], ends[3] < first[4]], [True] * 3)

    def test_the_animation_ends_with_the_picture_that_has_none(self):
        picture = draw.picture(transcript(*(step(f"command {n}", "line\n" * 5) for n in range(12))))
        still = re.search(r'class="roll" transform="translate\(0,(-\d+)\)"', picture)[1]
        last = re.findall(r"translateY\((-?\d+)px\)", re.search("@keyframes roll.*", picture)[0])[-1]
        self.assertEqual(last, still)
        self.assertIn("prefers-reduced-motion", picture)

    def test_a_picture_needs_nothing_from_elsewhere(self):
        picture = draw.picture(transcript(step("one")))
        self.assertEqual(re.findall(r"<script|<image|@import|@font-face|url\((?!#)|href|onload", picture), [])
        self.assertEqual(re.findall(r"https?://[^\"]*", picture), ["http://www.w3.org/2000/svg"])

    def test_what_cannot_be_drawn_is_refused(self):
        for steps in ([step("one", "\x1b[31mred\n")], [step("one", "x" * 90 + "\n")] * 900):
            with self.subTest(len(steps)), self.assertRaises(draw.Unfit):
                draw.picture(transcript(*steps))


class Comparisons(unittest.TestCase):
    def differences(self, old, new):
        return len(list(story.differences(transcript(step("one", old)), transcript(step("one", new)))))

    def test_ids_ages_and_widths_may_change(self):
        for old, new in (
            ("volume pvc-00000000-1111-4222-8333-444444444444\n", "volume pvc-0a0b0c0d-1111-4222-8333-aaaaaaaaaaaa\n"),
            ("Warning  Failed  2s    from  text\n", "Warning  Failed  12s (x2 over 1m3s)   from  text\n"),
            ("took 1.25s\n", "took 900ms\n"),
        ):
            self.assertEqual(self.differences(old, new), 0, old)

    def test_all_else_may_not(self):
        for old, new in (
            ("condition met\n", "condition not met\n"),
            ("storage: 16Mi\n", "storage: 17Mi\n"),
            ("exit code 78\n", "exit code 75\n"),
            ("in 30 min\n", "in 20 min\n"),
            ("one\n", "one\ntwo\n"),
            ("two\none\n", "one\ntwo\n"),
        ):
            self.assertEqual(self.differences(old, new), 1, old)

    def test_another_story_or_kubernetes_differs(self):
        one = transcript(step("one"))
        self.assertEqual(len(list(story.differences(one, transcript(step("one", say="new"))))), 1)
        self.assertEqual(len(list(story.differences(one, transcript(step("one"), step("two"))))), 1)
        self.assertEqual(len(list(story.differences(one, one | {"kubernetes": "v1.37.0"}))), 1)
        later = one | {"recorded": "2027-01-01", "steps": [step("one", seconds=9.0)]}
        self.assertEqual(list(story.differences(one, later)), [])

    def test_the_story_uses_each_file_and_each_command_can_be_read(self):
        folder = Path(__file__).parent
        named = {name for one in story.STEPS for name in re.findall(r"[a-z]+\.yaml", one.command)}
        self.assertEqual(named, {file.name for file in folder.glob("*.yaml")})
        self.assertLess(max(len(one.command) for one in story.STEPS), draw.COLUMNS)


if __name__ == "__main__":
    unittest.main(verbosity=0)

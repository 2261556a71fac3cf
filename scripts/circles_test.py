"""Plants circles between files, and checks that circles.py finds these circles and no others."""

import tempfile
import unittest
from pathlib import Path

import circles


class Circles(unittest.TestCase):
    def found(self, **files):
        """The circles of a crate with these files, each as a list of `file: items`; `/` in a name is written `__`."""
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                file = Path(root, name.replace("__", "/") + ".rs")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            graph = circles.arrows(root)
            name = lambda file: file.relative_to(root).with_suffix("").as_posix()
            return [
                [f"{name(here)}: {' '.join(sorted(graph[here][there]))}" for here, there in zip(way, way[1:] + way[:1])]
                for way in circles.circles(graph)
            ]

    def test_paths_and_lists(self):
        planted = [["a: Two", "b: one"]]
        lib = "mod a; mod b; mod again { pub use crate::a::one; }"
        for b in (
            "use crate::a::one; pub struct Two;",
            "use super::a::{zero, one}; pub struct Two;",
            "use crate::{a::{one}}; pub struct Two;",
            "pub struct Two; fn f() { crate::a::one() }",
            "use crate::a; pub struct Two; fn f() { a::one() }",
            "use super::a as other; pub struct Two; fn f() { other::one() }",
            "use crate::a::*; pub struct Two; fn f() { one() }",
            'pub struct Two { #[serde(with = "crate::a::one")] x: u8 }',
            "use self::super::a::one; pub struct Two;",
            "use crate::again::one; pub struct Two;",
        ):
            with self.subTest(b):
                self.assertEqual(self.found(lib=lib, a="pub fn one(two: crate::b::Two) {}", b=b), planted)

    def test_a_longer_circle(self):
        found = self.found(
            lib="mod a; mod b; mod c;",
            a="use crate::b::Two; pub struct One;",
            b="use crate::c::Three; pub struct Two;",
            c="use crate::a::One; pub struct Three;",
        )
        self.assertEqual(found, [["a: Two", "b: Three", "c: One"]])

    def test_a_reexport_leads_to_the_file_of_the_item(self):
        a = "use crate::parts::Two; pub struct One;"
        child = "use crate::a::One; pub struct Two;"
        for parts in ("mod child; pub use child::Two;", "mod child; pub use child::*;"):
            for name in ("parts", "parts__mod"):
                found = self.found(lib="mod a; mod parts;", a=a, parts__child=child, **{name: parts})
                self.assertEqual(found, [["a: Two", "parts/child: One"]])

    def test_a_parent_and_its_child(self):
        child = "use super::Shared; pub fn help(_: Shared) {}"
        parent = "mod child; pub struct Shared; fn f() { child::help(Shared) }"
        found = self.found(lib="mod parent;", parent=parent, parent__child=child)
        self.assertEqual(found, [["parent/child: Shared", "parent: help"]])
        files = {"parent__child": child, "parent__shared": "pub struct Shared;"}
        only_declares = "mod child; mod shared; pub use child::help; pub use shared::Shared;"
        self.assertEqual(self.found(lib="mod parent;", parent=only_declares, **files), [])

    def test_what_a_macro_declares(self):
        table = "use super::Spec; macro_rules! all { ($x:ident) => { pub const ALL: &[Spec] = &[]; } } all! { X }"
        for keys in (
            "mod table; pub use table::*; pub struct Spec; fn f() { ALL.len(); }",
            "mod table; pub struct Spec; fn f() { table::ALL; }",
        ):
            found = self.found(lib="mod keys;", keys=keys, keys__table=table)
            self.assertEqual(found, [["keys/table: Spec", "keys: ALL"]])

    def test_tests_comments_and_other_crates_make_none(self):
        a = "use crate::b::Two; pub struct One;"
        for b in (
            "pub struct Two; #[cfg(test)] mod tests { use crate::a::One; }",
            "pub struct Two; #[cfg(test)] mod tests;",
            "pub struct Two; #[cfg(test)] use crate::a::One;",
            "pub struct Two; #[cfg(test)] pub fn f(x: [u8; 2]) { crate::a::one() }",
            "pub struct Two; // crate::a::One\n/* crate::a::One */ /// [`crate::a::One`]",
            'pub struct Two; const TEXT: &str = "see crate::a::One";',
            'pub struct Two; const TEXT: &str = r#"x" crate::a::One"#; fn f<\'a>(x: &\'a str) -> char { \'"\' }',
            "pub struct Two; use other::a::One; fn f() { x.a::<u8>() }",
        ):
            with self.subTest(b):
                self.assertEqual(self.found(lib="mod a; mod b;", a=a, b=b, b__tests="use crate::a::One;"), [])

    def test_modules_in_one_file(self):
        inline = "pub mod deep { use super::super::b::Two; pub struct One; }"
        b = "use crate::a::deep::One; pub struct Two;"
        self.assertEqual(self.found(lib="mod a; mod b;", a=inline, b=b), [["a: Two", "b: One"]])
        self.assertEqual(self.found(lib="mod a;", a="struct X; mod deep { use super::X; } use deep::Y;"), [])

    def test_impl_blocks_of_one_type_in_several_files(self):
        run = "pub struct Run<'a>(&'a u8); mod copy; mod store; pub trait Work {}"
        copy = "use super::Run; impl<'a> Run<'a> { pub fn copy(&self) { self.keep::<u8>() } fn only(&self) {} }"
        store = "use super::Run; impl super::Work for Run<'_> { fn keep(&self) { Self::copy(self); self.keep() } }"
        found = self.found(lib="mod run;", run=run, run__copy=copy, run__store=store)
        self.assertEqual(found, [["run/copy: Run::keep", "run/store: Run::copy"]])
        other = "struct Run; impl Run { fn keep(&self) { self.copy() } }"
        self.assertEqual(self.found(lib="mod run;", run=run, run__copy=copy, run__store=other), [])

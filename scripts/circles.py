"""Reads which file of a crate uses which other, and finds the circles.

A file uses another if a path in it leads to an item that the other declares: `crate::`, `super::` and `self::` paths,
paths through a module in scope, and `use` lists. Re-exports are followed to the file that declares the item. A module
that only declares its children and re-exports their items does not use them. Tests are left out: all that stands
under `#[cfg(test)]`, and the files that only such a line declares.

Where a type has `impl` blocks in several files, `self.method()` and `Self::method()` in them are uses, too. Other calls
of methods name no path and are not seen.
"""

import re
from collections import deque
from pathlib import Path

TOKEN = re.compile(
    r"""
    //[^\n]* | /\*.*?\*/                                  # comments
    | b?r(?P<hashes>\#*)".*?"(?P=hashes)                  # raw strings
    | b?"(?P<string>(?:\\.|[^"\\])*)"
    | b?'(?:\\[^']+|\\'|[^'\\])'                          # characters
    | '\w+                                                # lifetimes
    | (?P<token>[A-Za-z_]\w*|::|=>|[^\s\w])
    """,
    re.VERBOSE | re.DOTALL,
)
DECLARES = {"fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod"}
OPEN, CLOSE = "([{", ")]}"


def tokens_of(text):
    """Returns the tokens of a source text. Keeps only strings that are a path, as attributes of serde have them."""
    found = []
    for match in TOKEN.finditer(text):
        if match["token"]:
            found.append(match["token"])
        elif match["string"] and re.fullmatch(r"\w+(::\w+)+", match["string"]):
            found.extend(re.findall(r"\w+|::", match["string"]))
        elif match["string"] is not None:
            found.append('"')
    return found


def end_of_item(tokens, at):
    """Returns the position after the item, statement or attribute that begins here."""
    depth = 0
    while at < len(tokens):
        token = tokens[at]
        depth += (token in OPEN) - (token in CLOSE)
        at += 1
        if depth < 0 or depth == 0 and token in (";", "}"):
            return at
    return at


def end_of_group(tokens, at):
    """Returns the position after the brackets that open here."""
    depth = 0
    while at < len(tokens):
        depth += (tokens[at] in OPEN) - (tokens[at] in CLOSE)
        at += 1
        if depth == 0:
            return at
    return at


def without_tests(tokens):
    """Returns the tokens without the items under `#[cfg(test)]`."""
    kept, at, test = [], 0, ["#", "[", "cfg", "(", "test", ")", "]"]
    while at < len(tokens):
        if tokens[at : at + len(test)] != test:
            kept.append(tokens[at])
            at += 1
            continue
        at += len(test)
        while tokens[at : at + 2] == ["#", "["]:
            at = end_of_group(tokens, at + 1)
        at = end_of_item(tokens, at)
    return kept


def leaves(tokens, before=()):
    """Yields the paths of a `use` tree, each with the name that it brings into scope; `*` for a glob."""
    path, at = list(before), 0
    while at < len(tokens):
        token = tokens[at]
        if token == "{":
            end, start, depth = end_of_group(tokens, at), at + 1, 0
            for here in range(at + 1, end):
                depth += (tokens[here] in OPEN) - (tokens[here] in CLOSE)
                if depth < 0 or depth == 0 and tokens[here] == ",":
                    yield from leaves(tokens[start:here], path)
                    start = here + 1
            return
        if token == "as":
            yield tuple(path), tokens[at + 1]
            return
        if token == "self" and path:
            yield tuple(path), path[-1]
            return
        if token != "::":
            path.append(token)
        at += 1
    if len(path) > len(before):
        yield tuple(path), path[-1]


class Module:
    """A module: its file, what it declares, what it has in scope, and the paths in it."""

    def __init__(self, file, parent, folder):
        self.file, self.parent, self.folder = file, parent, folder
        self.items, self.children, self.scope, self.public, self.globs = set(), {}, {}, set(), []
        self.paths, self.words, self.blocks = [], set(), []

    def root(self):
        return self.parent.root() if self.parent else self

    def read(self, tokens):
        """Reads the tokens of the module's body."""
        at, depth, is_public = 0, 0, False
        while at < len(tokens):
            token = tokens[at]
            after = tokens[at + 1] if at + 1 < len(tokens) else ""
            if token == "pub":
                is_public = True
                at = end_of_group(tokens, at + 1) if after == "(" else at + 1
                continue
            if token == "use" and after != "<":
                end = tokens.index(";", at)
                for path, name in leaves(tokens[at + 1 : end]):
                    if name == "*":
                        self.globs.append(path[:-1])
                    else:
                        self.scope.setdefault(name, path)
                        self.public |= {name} if is_public else set()
                at, is_public = end + 1, False
                continue
            if token == "impl" and depth == 0:
                self.block(tokens, at)
            if token == "mod" and depth == 0 and tokens[at + 2 : at + 3] in ([";"], ["{"]):
                at, is_public = self.child(tokens, at + 1), False
                continue
            if depth == 0 and token in DECLARES and after.isidentifier() and after not in DECLARES:
                self.items.add(after)
            if token == "macro_rules" and after == "!":
                self.items.add(tokens[at + 2])
                self.root().items_of_macros[tokens[at + 2]] = self
            if token.isidentifier():
                self.words.add(token)
                if tokens[at - 1 : at] not in (["::"], ["."]) and after == "::":
                    at = self.path(tokens, at)
                    is_public = False
                    continue
            depth += (token in OPEN) - (token in CLOSE)
            is_public = is_public and token in DECLARES
            at += 1

    def path(self, tokens, at):
        """Notes the path that begins here, and returns the position after it."""
        path = [tokens[at]]
        at += 1
        while tokens[at : at + 1] == ["::"] and at + 1 < len(tokens) and tokens[at + 1].isidentifier():
            path.append(tokens[at + 1])
            at += 2
        self.paths.append(tuple(path))
        return at

    def block(self, tokens, at):
        """Notes the `impl` block that begins here: its type, the methods in it, and those that it calls on the type."""
        start = tokens.index("{", at)
        body = tokens[start : end_of_group(tokens, start)]
        head = " ".join(tokens[at + 1 : start]).split(" where ")[0]
        head = re.sub(r"[&']|dyn |mut ", "", head.rsplit(" for ", 1)[-1])
        while re.search(r"<[^<>]*>", head):
            head = re.sub(r"<[^<>]*>", "", head)
        path = tuple(re.findall(r"\w+", head))
        declared = {body[n + 1] for n, token in enumerate(body[:-1]) if token == "fn"}
        owners = {("self", "."), ("Self", "::")}
        calls = zip(body, body[1:], body[2:], body[3:])
        called = {name for owner, dot, name, after in calls if (owner, dot) in owners and after in ("(", "::")}
        if path:
            self.blocks.append((path, declared, called))

    def child(self, tokens, at):
        """Reads the child module that is declared here, and returns the position after it."""
        name = tokens[at]
        if tokens[at + 1] == "{":
            end = end_of_group(tokens, at + 1)
            self.children[name] = Module(self.file, self, self.folder / name)
            self.children[name].read(tokens[at + 2 : end - 1])
            return end
        flat, deep = self.folder / f"{name}.rs", self.folder / name / "mod.rs"
        file = flat if flat.exists() else deep
        if file.exists():
            self.children[name] = Module(file, self, self.folder / name)
            self.children[name].read(without_tests(tokens_of(file.read_text())))
        return at + 2

    def find(self, path, seen=frozenset()):
        """Returns the home of a path as this module reads it: a module, or a module and an item. `None` if it is elsewhere."""
        here, path = self, list(path)
        if path[0] == "crate":
            here, path = self.root(), path[1:]
        elif path[0] in ("self", "super"):
            while path and path[0] in ("self", "super"):
                here = here.parent or here if path[0] == "super" else here
                path = path[1:]
        elif path[0] not in self.scope and path[0] not in self.children:
            return None
        for name in path:
            if name in here.children:
                here = here.children[name]
                continue
            found = here.named(name, seen)
            if isinstance(found, Module):
                here = found
                continue
            return found
        return here

    def named(self, name, seen=frozenset()):
        """Returns the home of a name in this module: a module, or a module and an item. `None` if it is in another crate."""
        if name in self.items:
            return self, name
        if (self, name) in seen:
            return None
        seen = seen | {(self, name)}
        if name in self.scope:
            path = self.scope[name]
            return self.find(path, seen) if path[0] != name or name in self.children else None
        for glob in self.globs:
            target = self.find(glob, seen)
            if isinstance(target, Module):
                if name in target.children:
                    return target.children[name]
                # A macro may declare the item.
                if target.named(name, seen) not in (None, (target, None)) or name in target.words:
                    return target.named(name, seen) or (target, name)
        if not self.parent and name in self.items_of_macros:
            return self.items_of_macros[name], name
        # A macro of this module may declare the item, too.
        return self, name if name in self.words else None

    def uses(self):
        """Yields the homes of all names that the module uses."""
        for name, path in self.scope.items():
            # A re-export is a use where the module itself has the name in its code.
            if name not in self.public or name in self.words:
                yield self.find(path, frozenset({(self, name)}))
        yield from map(self.find, self.paths)
        for target in map(self.find, self.globs):
            if isinstance(target, Module):
                for word in self.words - self.items - set(self.scope) - set(self.children):
                    # A macro may declare a constant, such as a list of all.
                    if word in target.items or word in target.scope or word.isupper() and word in target.words:
                        yield target.named(word)

    def home(self, path):
        """Returns the home of a type that the module has in scope, or declares."""
        return self.named(path[0]) if len(path) == 1 else self.find(path)


def modules(top):
    yield top
    for child in top.children.values():
        yield from modules(child)


def arrows(root):
    """Returns for each file of a crate the files that it uses, with the items."""
    root = Path(root)
    file = next(file for file in (root / "lib.rs", root / "main.rs") if file.exists())
    top = Module(file, None, root)
    top.items_of_macros = {}
    top.read(without_tests(tokens_of(file.read_text())))
    graph, methods = {}, {}
    for module in modules(top):
        for path, declared, _ in module.blocks:
            for name in declared:
                methods.setdefault((module.home(path), name), set()).add(module.file)
    for module in modules(top):
        used = graph.setdefault(module.file, {})
        for home in module.uses():
            if isinstance(home, tuple) and home[0].file != module.file and home[1]:
                used.setdefault(home[0].file, set()).add(home[1])
        for path, _, called in module.blocks:
            for name in called:
                files = methods.get((module.home(path), name), ())
                if len(files) == 1 and module.file not in files:
                    used.setdefault(next(iter(files)), set()).add(f"{path[-1]}::{name}")
    return graph


def shortest_circle(graph, start):
    """Returns the shortest path from a file back to itself, if there is any."""
    before, queue = {}, deque([start])
    while queue:
        here = queue.popleft()
        for there in sorted(graph.get(here, ())):
            if there == start:
                way = [here]
                while way[0] != start:
                    way.insert(0, before[way[0]])
                return way
            if there not in before:
                before[there] = here
                queue.append(there)
    return None


def circles(graph):
    """Returns circles between files: for each file in a circle its shortest circle, and each circle once."""
    found = {}
    for file in sorted(graph):
        way = shortest_circle(graph, file)
        if way:
            found.setdefault(frozenset(way), way)
    return list(found.values())


def described(graph, way):
    """Returns a circle as lines, with the items that make it."""
    lines = []
    for here, there in zip(way, way[1:] + way[:1]):
        lines.append(f"    {here} uses {', '.join(sorted(graph[here][there]))} of {there}")
    return "\n".join(lines)

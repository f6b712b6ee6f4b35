"""Relative links of all Markdown pages: their files and anchors exist."""

import functools
import os
import pathlib
import re
import tempfile
import unittest
import urllib.parse

from tests.support.page import blocks
from tests.support.daemon import ROOT

_INLINE = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)<>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?([^<>\s]+)>?", re.MULTILINE)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")


def pages(root):
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "bazel-"))]
        yield from (pathlib.Path(folder) / name for name in names if name.endswith(".md"))


@functools.lru_cache(maxsize=None)
def prose(path):
    """The page's text without fenced blocks; line numbers are kept."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for block in blocks(text):
        lines[block.line - 1:block.end] = [""] * (block.end - block.line + 1)
    return "\n".join(lines)


def slug(heading):
    """The anchor that GitHub generates for a heading."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)  # of a link, its text
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


@functools.lru_cache(maxsize=None)
def anchors(path):
    found = set()
    for line in prose(path).splitlines():
        found.update(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", line))
        heading = _HEADING.match(line)
        if heading:
            name, number = slug(heading[1]), 0
            while (anchor := f"{name}-{number}" if number else name) in found:
                number += 1
            found.add(anchor)
    return found


def problem_with(path, target, root):
    """Empty if the link is correct or points outside of the tree."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return ""
    file, _, anchor = target.partition("#")
    linked = path
    if file:
        linked = pathlib.Path(os.path.normpath(path.parent / urllib.parse.unquote(file)))
        if file.startswith("/") or not linked.is_relative_to(root):
            return "points outside of the tree"
        if not linked.exists():
            return "does not exist"
    if anchor and (linked.suffix != ".md" or anchor not in anchors(linked)):
        return "has no such anchor"
    return ""


def broken_links(root):
    """Lines `PAGE:LINE: TARGET PROBLEM`."""
    found = []
    for path in sorted(pages(root)):
        text = _CODE.sub(lambda code: " " * len(code[0]), prose(path))
        for link in sorted([*_INLINE.finditer(text), *_REFERENCE.finditer(text)], key=lambda link: link.start()):
            problem = problem_with(path, link[1], root)
            if problem:
                line = text.count("\n", 0, link.start()) + 1
                found.append(f"{path.relative_to(root)}:{line}: {link[1]} {problem}")
    return found


class LinksTest(unittest.TestCase):
    maxDiff = None

    def test_tree_has_no_broken_links(self):
        self.assertTrue((ROOT / "WORKSPACE").exists(), f"{ROOT} is not the source tree")
        self.assertGreater(len(list(pages(ROOT))), 10)
        self.assertEqual(broken_links(ROOT), [])

    def check(self, text):
        with tempfile.TemporaryDirectory(prefix="muster-links.") as folder:
            root = pathlib.Path(folder).resolve() / "root"
            (root / "docs").mkdir(parents=True)
            (root / "docs/other.md").write_text("# The other page\n\n## Use `x_y`, then z\n\n## Twice\n\n## Twice\n")
            (root / "docs/page.md").write_text(text)
            return broken_links(root)

    def test_accepts_correct_links(self):
        self.assertEqual(self.check("# Top\n[a](other.md) [b](other.md#the-other-page) [c](#top) [d](../docs/)\n"
                                    "[`e`](other.md#use-x_y-then-z) [f](https://example.com/x) [g](other.md#twice-1)\n"
                                    "[h][ref]\n\n[ref]: other.md\n"), [])

    def test_ignores_code(self):
        self.assertEqual(self.check("`[a](none.md)`\n```sh\n[b](none.md)\n```\n"), [])

    def test_reports_broken_links(self):
        text = "[a](none.md)\n\n[b](other.md#none) [c](#none) ![d](../../x.png)\n[ref]: no/file\n"
        self.assertEqual(self.check(text), [
            "docs/page.md:1: none.md does not exist",
            "docs/page.md:3: other.md#none has no such anchor",
            "docs/page.md:3: #none has no such anchor",
            "docs/page.md:3: ../../x.png points outside of the tree",
            "docs/page.md:4: no/file does not exist",
        ])


if __name__ == "__main__":
    unittest.main()

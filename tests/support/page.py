"""The fenced blocks of a Markdown page, and its commands with the output that the page shows for them."""

import dataclasses
import re

_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,})(?P<language>[^`]*)$")


@dataclasses.dataclass
class Block:
    line: int  # of the opening fence, counted from 1
    language: str
    text: str
    end: int  # line of the closing fence


@dataclasses.dataclass
class Step:
    """One `sh` block; `output` is the text of the block without a language directly below it, or None.

    `keys` are pairs (text, keys): once the text is shown, the user types the keys, if there are any.
    """

    line: int
    commands: str
    output: str = None
    keys: list = dataclasses.field(default_factory=list)


def blocks(text):
    """All fenced blocks. Raises ValueError if one is not closed."""
    found, start = [], None
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if start is None and fence:
            start, marks, language = number, fence["marks"], fence["language"].strip()
        elif start is not None and fence and not fence["language"].strip() and fence["marks"].startswith(marks):
            body = "".join(f"{inner}\n" for inner in lines[start:number - 1])
            found.append(Block(start, language, body, number))
            start = None
    if start is not None:
        raise ValueError(f"line {start}: the block is not closed")
    return found


def steps(text):
    """The page's `sh` blocks in order. Raises ValueError for a block whose purpose is unclear.

    Every block without a language must be the output of the `sh` block directly above it, or follow no `sh` block
    at all: then it is a diagram.
    """
    found = []
    previous = None
    lines = text.splitlines()
    for block in blocks(text):
        adjacent = previous is not None and not "".join(lines[previous.end:block.line - 1]).strip()
        if block.language == "sh":
            found.append(Step(block.line, block.text))
        elif block.language == "" and adjacent and previous.language == "sh":
            found[-1].output = block.text
        elif block.language not in ("", "yaml"):
            raise ValueError(f"line {block.line}: block of language {block.language!r}; commands are `sh`, their "
                             "output has no language")
        previous = block
    return found

"""Makes man pages of docs/reference/cli.md, which is generated from the tables that --help prints.

The sections `## PROGRAM` become PROGRAM.8, except muster.1; the sections `### muster VERB` become muster-VERB.1.
"""

import re

HEADS = {"argument": "ARGUMENTS", "option": "OPTIONS", "exit code": "EXIT STATUS", "example": "EXAMPLES",
         "verb": "VERBS"}


def man_pages(cli_page, version):
    """Returns {file name: text} of the page's programs and verbs."""
    pages = {}
    for name, body in re.findall(r"^###? (muster\S*(?: \S+)*)\n\n(.*?)(?=^###? |\Z)", cli_page, re.M | re.S):
        section = "1" if name == "muster" or " " in name else "8"
        page = name.replace(" ", "-")
        pages[f"{page}.{section}"] = _page(page, section, body, version)
    return pages


def _page(name, section, body, version):
    blocks = [block for block in body.strip().split("\n\n") if block]
    summary = re.split(r"\.(?:\s|$)", blocks[0])[0]
    summary = summary[0].lower() + summary[1:]
    usage = next((block.strip("`\n") for block in blocks if block.startswith("```")), f"{name} [OPTIONS]")
    lines = [f'.TH {name.upper()} {section} "" "Muster {version}"', ".SH NAME", f"{_text(name)} \\- {_text(summary)}",
             ".SH SYNOPSIS", f"\\fB{_text(usage)}\\fR", ".SH DESCRIPTION"]
    for block in blocks:
        if not block.startswith(("```", "|")):
            lines += [".PP", _inline(block)]
    for block in blocks:
        if block.startswith("|"):
            lines += _table(block)
    others = [_text("muster") + "(1)"] if name != "muster" else ["muster\\-coordinator(8)", "muster\\-worker(8)"]
    lines += [".SH SEE ALSO", ", ".join(f"\\fB{other[:-3]}\\fR{other[-3:]}" for other in others)]
    return "\n".join(lines) + "\n"


def _table(block):
    rows = [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in block.splitlines()]
    head, rows = rows[0], rows[2:]
    lines = [f".SH {HEADS[head[0]]}"]
    for row in rows:
        cells = dict(zip(head, row))
        argument = cells.get("argument", "") if head[0] == "option" else ""
        head_line = _inline(row[0]) + (f" \\fI{_text(argument.strip('`'))}\\fR" if argument else "")
        lines += [".TP", head_line, _inline(row[-1] + _note(cells.get("default", "")))]
    return lines


def _note(default):
    if default in ("", "required"):
        return f" ({default})" if default else ""
    return f" (default: {default})"


def _inline(text):
    """Markdown on one line: code in bold, links as their text."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text.replace("\n", " "))
    parts = text.split("`")
    return _protected("".join(f"\\fB{_escaped(part)}\\fR" if i % 2 else _escaped(part) for i, part in enumerate(parts)))


def _text(text):
    return _protected(_escaped(text))


def _escaped(text):
    return text.replace("\\", "\\e").replace("-", "\\-")


def _protected(line):
    """A line that begins with a dot or an apostrophe would be a request."""
    return f"\\&{line}" if line.startswith((".", "'")) else line

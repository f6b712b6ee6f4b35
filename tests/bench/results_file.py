"""Stores results of long runs incrementally, so that an interrupted benchmark can be resumed."""

import json
import os
import pathlib
import sys


class ResultsFile:
    """Lists of results by key in a JSON file, or only in memory without a path.

    `settings` apply to all results of the file; a file with other settings is rejected.
    """

    def __init__(self, path, settings):
        self.path = pathlib.Path(path) if path else None
        self.data = {"settings": settings, "results": {}}
        if self.path is None or not self.path.exists():
            return
        self.data = json.loads(self.path.read_text())
        if self.data["settings"] != settings:
            sys.exit(f"{self.path} has different settings: {self.data['settings']}, not {settings}")

    def of(self, key):
        return self.data["results"].get(key, [])

    def add(self, key, result):
        self.data["results"].setdefault(key, []).append(result)
        self.save()

    def save(self, **more):
        """Writes the file; `more` is stored next to settings and results."""
        self.data.update(more)
        if self.path is None:
            return
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_text(json.dumps(self.data, indent=1) + "\n")
        os.replace(temporary, self.path)


def markdown_table(header, rows):
    """Cells are text."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)

"""Results of runs that take long, kept as they come, so that a benchmark that was stopped goes on where it was."""

import json
import os
import pathlib
import sys


class ResultsFile:
    """Lists of results by key in a JSON file; without a path, in memory alone.

    `settings` are what all results of the file have in common; a file made with others is refused.
    """

    def __init__(self, path, settings):
        self.path = pathlib.Path(path) if path else None
        self.data = {"settings": settings, "results": {}}
        if self.path is None or not self.path.exists():
            return
        self.data = json.loads(self.path.read_text())
        if self.data["settings"] != settings:
            sys.exit(f"{self.path} is of another benchmark: {self.data['settings']}, not {settings}")

    def of(self, key):
        return self.data["results"].get(key, [])

    def add(self, key, result):
        self.data["results"].setdefault(key, []).append(result)
        self.save()

    def save(self, **more):
        """`more` goes beside settings and results."""
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

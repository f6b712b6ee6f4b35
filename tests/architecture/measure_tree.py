"""Prints the size and shape of the tree: lines, files, headers with one includer, the largest folders and classes.

    tests/architecture/measure_tree.py [COMMIT]    of a commit; without it, of the files that git tracks, as they are
"""

import collections
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = {".cc", ".h", ".inc", ".cu", ".cuh", ".py", ".proto", ".js", ".css", ".html", ".sh", ".bzl"}
CPP = {".cc", ".h", ".inc", ".cu", ".cuh"}
LARGE_FOLDER = 30


def read_tree(commit):
    """Contents of the files of a commit (empty: of the working tree) by path."""
    if not commit:
        names = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
        paths = {name: ROOT / name for name in names}
        return {name: path.read_bytes() for name, path in paths.items() if path.is_file() and not path.is_symlink()}
    listing = subprocess.check_output(["git", "ls-tree", "-r", "-z", commit], cwd=ROOT, text=True).split("\0")[:-1]
    blobs = {name: entry.split()[2] for entry, name in (line.split("\t") for line in listing)
             if entry.startswith("100")}
    output = subprocess.run(["git", "cat-file", "--batch"], cwd=ROOT, input="\n".join(blobs.values()).encode(),
                            stdout=subprocess.PIPE, check=True).stdout
    tree, position = {}, 0
    for name in blobs:
        end = output.index(b"\n", position)
        size = int(output[position:end].split()[2])
        tree[name] = output[end + 1:end + 1 + size]
        position = end + 1 + size + 1
    return tree


def kind_of(name):
    """"production", "test" or "BUILD"; None for a file without code."""
    path = pathlib.PurePosixPath(name)
    if path.name in ("BUILD", "WORKSPACE"):
        return "BUILD"
    if path.suffix not in CODE:
        return None
    test = (path.parts[0] == "tests" or {"testing", "first_hour"} & set(path.parts) or
            re.search(r"_test\.|(^|_)(fixture|testing|fake\w*)\.", path.name))
    return "test" if test else "production"


def without_comments(text):
    token = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    return re.sub(token, lambda match: " " if match[0].startswith("/") else '""', text, flags=re.DOTALL)


def declarations(text):
    """Yields (class, number of its members) for each class and struct that a C++ file defines."""
    text = without_comments(text)
    for match in re.finditer(r"\b(?:class|struct)\s+(?:\w+\([^)]*\)\s+)?(\w+)[^;{}()=]*\{", text):
        depth, count, position, pending = 1, 0, match.end(), False
        while depth > 0 and position < len(text):
            char = text[position]
            if char == "{":
                depth += 1
            elif char == "}":
                depth -= 1
                # The body of a function ends its declaration; a braced initializer is followed by `;` or `,`.
                if depth == 1 and not re.match(r"\s*[;,)]", text[position + 1:position + 40]):
                    count, pending = count + 1, False
            elif char == ";" and depth == 1:
                count, pending = count + pending, False
            elif depth == 1 and not char.isspace():
                pending = True
            position += 1
        yield match[1], count


def main():
    tree = read_tree(sys.argv[1] if len(sys.argv) > 1 else "")
    lines, files = collections.Counter(), collections.Counter()
    sizes, folders, includers, headers, classes = [], collections.Counter(), collections.Counter(), [], []
    for name, content in tree.items():
        kind = kind_of(name)
        folders[str(pathlib.PurePosixPath(name).parent)] += 1
        if not kind:
            continue
        text = content.decode(errors="replace")
        count = text.count("\n")
        lines[kind] += count
        files[kind] += 1
        path = pathlib.PurePosixPath(name)
        if path.suffix not in CPP:
            continue
        for included in set(re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)):
            if kind == "production" and included != str(path.with_suffix(".h")):
                includers[included] += 1
        if kind == "production":
            sizes.append(count)
            if path.suffix == ".h":
                headers.append(name)
            classes += [(count, f"{cls} ({name})") for cls, count in declarations(text)]
    print(f"files in git: {len(tree)}")
    for kind in ("production", "test", "BUILD"):
        print(f"{kind}: {lines[kind]} lines in {files[kind]} files")
    print(f"C++ production file: median {statistics.median(sizes):.0f} lines, "
          f"{sum(size < 60 for size in sizes)} of {len(sizes)} under 60")
    print(f"headers that one other production file includes: {sum(includers[h] == 1 for h in headers)} of {len(headers)}")
    large = [f"{folder} {count}" for folder, count in folders.most_common() if count > LARGE_FOLDER]
    print(f"folders with over {LARGE_FOLDER} files: {len(large)}: {', '.join(large)}")
    print("classes with most declarations:")
    for count, name in sorted(classes, reverse=True)[:10]:
        print(f"  {count:3} {name}")


if __name__ == "__main__":
    main()

"""Writes Fashion-MNIST with a tenth of its test set: small_test_set.py SOURCE OUT_FILE…

Every training ends with an evaluation of the test set, which takes longer than the few steps that most tests train. The
files are not compressed, so that ranks do not need to decompress them.
"""

import gzip
import pathlib
import struct
import sys

TEST_IMAGES = 1000


def shortened(data, count):
    """The first `count` entries of an IDX file of bytes."""
    dimensions = data[3]
    header = 4 + 4 * dimensions
    shape = struct.unpack(f">{dimensions}I", data[4:header])
    entry = 1
    for size in shape[1:]:
        entry *= size
    return data[:4] + struct.pack(f">{dimensions}I", count, *shape[1:]) + data[header:header + count * entry]


def main():
    source = pathlib.Path(sys.argv[1])
    for out in map(pathlib.Path, sys.argv[2:]):
        data = gzip.decompress((source / f"{out.name}.gz").read_bytes())
        out.write_bytes(shortened(data, TEST_IMAGES) if out.name.startswith("t10k") else data)


if __name__ == "__main__":
    main()

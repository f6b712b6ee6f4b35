"""Reads scalars with their timestamps from TensorBoard event files, without TensorBoard."""

import pathlib
import struct


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data):
    """(field number, value) of a protocol buffer message; values are ints or bytes, fixed-width ones as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
        else:
            size, at = {1: (8, at), 5: (4, at)}.get(kind) or _varint(data, at)
            value, at = data[at:at + size], at + size
        yield number, value


def _records(path):
    """The records of a file: each consists of its length, a checksum, the data and another checksum."""
    data = pathlib.Path(path).read_bytes()
    at = 0
    while at + 12 <= len(data):
        size, = struct.unpack_from("<Q", data, at)
        if at + 12 + size + 4 > len(data):
            return  # truncated while being written
        yield data[at + 12:at + 12 + size]
        at += 12 + size + 4


def read_scalars(directory):
    """{tag: [(step, value, seconds since 1970), …]} of all event files in a directory, by time."""
    scalars = {}
    for path in sorted(pathlib.Path(directory).iterdir()):
        for record in _records(path):
            event = dict(_fields(record))
            if 5 not in event:
                continue
            time, = struct.unpack("<d", event[1])
            for number, value in _fields(event[5]):
                if number == 1:
                    words = dict(_fields(value))
                    scalars.setdefault(words[1].decode(), []).append(
                        (event.get(2, 0), struct.unpack("<f", words[2])[0] if 2 in words else 0.0, time))
    return {tag: sorted(values, key=lambda v: v[2]) for tag, values in scalars.items()}

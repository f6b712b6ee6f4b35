"""Reads and writes torch state_dicts in the safetensors format (trainer/checkpoint/safetensors.h)."""

import json

import numpy
import torch

_DTYPES = {"F32": numpy.float32, "I64": numpy.int64}


def save(path, tensors):
    """Writes the tensors of a state_dict, in its order."""
    header, bodies, offset = {}, [], 0
    for name, tensor in tensors.items():
        body = tensor.detach().contiguous().numpy()
        dtype = next(word for word, kind in _DTYPES.items() if kind == body.dtype)
        header[name] = {"dtype": dtype, "shape": list(body.shape), "data_offsets": [offset, offset + body.nbytes]}
        bodies.append(body.tobytes())
        offset += body.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(bodies))


def load(path):
    """The file's tensors by name, in its order."""
    content = path.read_bytes()
    body = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8:body]).items():
        begin, end = (body + offset for offset in entry["data_offsets"])
        values = numpy.frombuffer(content[begin:end], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = torch.from_numpy(values.copy())
    return tensors

"""Inputs of the fuzzer, a few files each: how they are made, kept and mutated."""

import copy
import json
import re
import shutil
import tempfile
import zipfile
from fnmatch import fnmatch
from io import BytesIO
from pathlib import Path

from faults import contents

MAX_INPUT = 1 << 20


def written(write):
    """Return the files that a function writes to a folder."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return contents(Path(folder))


def pack(files):
    """Return the bytes of an input; equal inputs have equal bytes."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED)
    return out.getvalue()


def unpack(data):
    with zipfile.ZipFile(BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def read_corpus(folder):
    return [unpack(path.read_bytes()) for path in sorted(folder.glob("*.zip"))]


def write_input(files, folder):
    """Make the folder; what an earlier input has mapped keeps its bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


# ------------------------------------------------------------------------------------------------- mutations

NUMBERS = (-1, *range(9), *(2**bits + n for bits in (7, 8, 15, 16, 31, 32, 62, 63) for n in (-1, 0)))
VALUES = (*NUMBERS, 2**64, 10**400, 0.5, 1e308, float("nan"), float("inf"), None, True, [], {}, [[]])
VALUES += ("", "x", "\0", "\ud800", "../x", "/etc/passwd", "a" * 5000)


def flip_bit(data, rng, _):
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def set_byte(data, rng, _):
    data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def set_integer(data, rng, _):
    width, at = rng.choice((2, 4, 8)), rng.randrange(len(data))
    number = rng.choice((*NUMBERS, len(data))) % (1 << 8 * width)
    data[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))


def truncate(data, rng, _):
    del data[rng.randrange(len(data)) :]


def delete(data, rng, _):
    at = rng.randrange(len(data))
    del data[at : at + rng.randrange(1, 64)]


def duplicate(data, rng, _):
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + rng.randrange(1, 512)] * rng.choice((1, 1, 1, 30))


def insert(data, rng, _):
    at = rng.randrange(len(data))
    data[at:at] = rng.randbytes(rng.randrange(1, 16))


def nest(data, rng, _):
    """Open many lists of a JSON file."""
    at = rng.randrange(len(data))
    data[at:at] = b"[" * 20_000


def splice(data, rng, other):
    """Replace a part by one of another input."""
    at, start, count = rng.randrange(len(data)), rng.randrange(len(other) + 1), rng.choice((8, 64, 1 << 20))
    data[at : at + count] = other[start : start + count]


def change_number(data, rng, _):
    """Replace a number in a text."""
    found = list(re.finditer(rb"-?\d+", data[:10_000]))
    if found:
        first, last = rng.choice(found).span()
        data[first:last] = str(rng.choice(NUMBERS)).encode()


def change_json(data, rng, _):
    """Replace, remove or copy a value of a JSON file, or of the JSON header of an array file."""
    start = 8 if data[8:9] == b"{" else 0
    end = 8 + int.from_bytes(data[:8], "little") if start else len(data)
    try:
        tree = {"": json.loads(bytes(data[start:end]))}
    except (ValueError, RecursionError):
        return
    nodes, stack = [], [tree]
    while stack:
        node = stack.pop()
        inside = list(node.items() if isinstance(node, dict) else enumerate(node))
        nodes += [(node, key) for key, _ in inside]
        stack += [value for _, value in inside if isinstance(value, dict | list)]
    (node, key), (other, name) = rng.choice(nodes), rng.choice(nodes)
    choice = rng.randrange(4)
    if choice == 0 and node is not tree:
        del node[key]
    else:
        node[key] = copy.deepcopy(other[name]) if choice == 1 else rng.choice(VALUES)
    text = json.dumps(tree[""]).encode()
    data[:end] = (len(text).to_bytes(8, "little") if start else b"") + text


MUTATIONS = (
    flip_bit,
    set_byte,
    set_integer,
    truncate,
    delete,
    duplicate,
    insert,
    nest,
    splice,
    change_number,
    change_json,
)
FOR_TEXT = (change_json, change_json, change_number, splice, duplicate, delete, set_byte, nest)


def mutate(files, other, pattern, rng):
    """Return an input with one to four changes. other: an input to take parts from. pattern: of names to change."""
    files = dict(files)
    names = sorted(name for name in files if fnmatch(name, pattern))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        name = rng.choice(names)
        data = bytearray(files[name] or b"\0")
        is_text = data[:1] in b"{[" or data[8:9] == b"{"
        more = [content for key, content in other.items() if Path(key).suffix == Path(name).suffix]
        rng.choice(FOR_TEXT if is_text and rng.random() < 0.7 else MUTATIONS)(data, rng, rng.choice(more or [b""]))
        files[name] = bytes(data[:MAX_INPUT])
    return files

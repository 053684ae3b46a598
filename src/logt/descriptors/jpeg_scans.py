"""JPEG files -> the number of their scans: a decoder goes through all pixels for each, even if it has no data."""

import re
from typing import BinaryIO

_MOST_BYTES = 1 << 27  # that are read
_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd9-\xfe])")  # those that a length follows, and the end of the image
_START_OF_SCAN, _END_OF_IMAGE = b"\xda", b"\xd9"


def count_scans(stream: BinaryIO) -> int:
    """Return the number of scans of a JPEG file, without those of previews in its header or behind its end."""
    before = stream.tell()
    stream.seek(0)
    content = stream.read(_MOST_BYTES)
    stream.seek(before)
    scans = position = 0
    while (marker := _MARKER.search(content, position)) and marker[1] != _END_OF_IMAGE:
        scans += marker[1] == _START_OF_SCAN
        length = int.from_bytes(content[marker.end() : marker.end() + 2])
        position = marker.end() + max(2, length)
    return scans

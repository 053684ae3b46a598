"""Photos as a zip file, written while it is sent."""

import zipfile
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import BinaryIO

from logt.photos.folder_scan import is_photo_name

MAX_PHOTOS = 1000
"""Photos in one zip file."""

_CHUNK = 1 << 18


def stream_zip(
    photos: Sequence[tuple[str, Path | None]], render: Callable[[Path], bytes], *, originals: bool = False
) -> Iterator[bytes]:
    """Yield the bytes of a zip file that contains photos, not compressed: they are.

    photos: the id of each photo and its file. A photo without a file, or whose file cannot be read, is left out and
    listed in missing.txt.
    render: returns the JPEG to send instead of a file.
    originals: send the files themselves, if they are named as photos; an index may name any file.
    """
    out, missing, taken = _Buffer(), [], {"missing.txt"}
    with zipfile.ZipFile(out, "w") as archive:  # type: ignore[call-overload]
        for photo_id, path in photos:
            try:
                if path is None:
                    missing.append(_clean(photo_id))
                elif originals and is_photo_name(path.name):
                    with path.open("rb") as source:
                        name = _free_name(_clean(photo_id), taken)
                        info = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False)
                        yield from _copy(source, archive, info, out)
                else:
                    jpeg, name = render(path), _clean(photo_id)
                    name += "" if name.lower().endswith((".jpg", ".jpeg")) else ".jpg"
                    archive.writestr(_free_name(name, taken), jpeg)
            except (OSError, ValueError):
                missing.append(_clean(photo_id))
            yield out.take()
        if missing:
            archive.writestr("missing.txt", "\n".join(missing) + "\n")
    yield out.take()


def _free_name(name: str, taken: set[str]) -> str:
    """Return a name that is not taken, also where case does not count, and add it to those that are."""
    path = Path(name)
    numbered = (str(path.with_name(f"{path.stem} ({n}){path.suffix}")) for n in count(2))
    free = next(choice for choice in chain([name], numbered) if choice.casefold() not in taken)
    taken.add(free.casefold())
    return free


def _clean(photo_id: str) -> str:
    """Return a relative name without ".."."""
    parts = [part for part in photo_id.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return "/".join(parts).encode("utf-8", "replace").decode() or "photo"


def _copy(source: BinaryIO, archive: zipfile.ZipFile, info: zipfile.ZipInfo, out: "_Buffer") -> Iterator[bytes]:
    with archive.open(info, "w", force_zip64=True) as target:
        while chunk := source.read(_CHUNK):
            target.write(chunk)
            yield out.take()


class _Buffer:
    """A file to write to, whose bytes are taken away again and again."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._chunks.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        data = b"".join(self._chunks)
        self._chunks.clear()
        return data

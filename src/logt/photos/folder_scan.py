"""Listing, a folder -> the files in it that may be pictures, and what was passed over and why."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from logt.photos.catalog import Stamp


@dataclass
class Listing:
    """Files by their names relative to the folder, with '/'; `closed` folders could not be looked into."""

    files: dict[str, Stamp] = field(default_factory=dict)
    failed: list[tuple[str, str]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    def hides(self, name: str) -> bool:
        """Whether a file of this name may still be there, in a folder that could not be looked into."""
        return any(name.startswith(f"{folder}/") for folder in self.closed)


def listing(folder: Path, index: Path) -> Listing:
    """All files in a folder and below it, but for hidden ones and the index itself.

    Links are not followed: what they lead to inside of the folder is found anyway, and the rest is not of it.
    """
    found = Listing()
    waiting = [(folder, "")]
    while waiting:
        here, prefix = waiting.pop()
        try:
            with os.scandir(here) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            if not prefix:
                raise
            found.closed.append(prefix.removesuffix("/"))
            found.failed.append((prefix, f"the folder cannot be read: {error.strerror}"))
            continue
        for entry in inside:
            if entry.name.startswith(".") or Path(entry.path) == index:
                continue
            name = prefix + entry.name
            reason = _refused(entry, folder)
            if reason:
                found.failed.append((_shown(name), reason))
            elif entry.is_dir(follow_symlinks=False):
                waiting.append((Path(entry.path), f"{name}/"))
            elif entry.is_file(follow_symlinks=False):
                try:
                    about = entry.stat(follow_symlinks=False)
                    found.files[name] = Stamp(about.st_size, about.st_mtime_ns)
                except OSError as error:
                    found.failed.append((name, error.strerror or str(error)))
    return found


def _refused(entry: os.DirEntry[str], folder: Path) -> str | None:
    """Why an entry is passed over, if it is and someone might miss it."""
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        return "its name is not text in UTF-8; rename it"
    if entry.is_symlink():
        try:
            target = Path(entry.path).resolve(strict=True)
        except (OSError, RuntimeError):
            return "a link that leads nowhere"
        return None if target.is_relative_to(folder) else "a link that leads out of the folder; it is not followed"
    try:
        kind = entry.stat(follow_symlinks=False).st_mode
    except OSError as error:
        return error.strerror or str(error)
    return None if stat.S_ISREG(kind) or stat.S_ISDIR(kind) else "neither a file nor a folder"


def _shown(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")

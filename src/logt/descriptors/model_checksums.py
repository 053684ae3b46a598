"""Checksums of downloaded models: written next to their files by `downloads`, checked whenever a file is loaded."""

import json
from pathlib import Path

from logt.errors import InvalidInputError
from logt.storage.files import read_bytes

CHECKSUMS = "logt-checksums.json"
"""The file with the SHA-256 of each file of a downloaded model, by name. Other models have none."""

_MAX_BYTES = 1 << 16


def read_checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a downloaded model; {} for a folder that was not downloaded."""
    file = folder / CHECKSUMS
    if not file.is_file():
        return {}
    try:
        checksums = json.loads(read_bytes(file, _MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{file} is damaged: {error}; remove the folder, and download the model again"
        ) from error
    if not isinstance(checksums, dict):
        raise InvalidInputError(f"{file} is damaged; remove the folder, and download the model again")
    return checksums


def is_file(path: Path) -> bool:
    """Return whether a path that a file names is a file."""
    try:
        return path.is_file()
    except OSError:  # such as a name that is too long
        return False


def check_complete(folder: Path) -> None:
    """Raise if a file of a downloaded model is missing."""
    for name in read_checksums(folder):
        if not is_file(folder / name):
            raise InvalidInputError(
                f"{folder / name} is missing; `logt models get {folder.name}` downloads the model again"
            )


def check_unchanged(file: Path, sha256: str) -> None:
    """Raise if a file of a downloaded model differs from what was downloaded. sha256: of the bytes that were read."""
    if read_checksums(file.parent).get(file.name, sha256) != sha256:
        raise InvalidInputError(
            f"{file} differs from what was downloaded; `logt models get {file.parent.name}` downloads it again"
        )

"""Measured points on disk, one file each, so that finished work is not repeated."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from logt.reproduce.trials import Point, Trial


class PointStore:
    """The points of one benchmark and one version of the library, in a folder.

    A point is written to a temporary file and renamed, so an interrupt never leaves half a point.
    """

    def __init__(self, folder: Path, fingerprint: str, version: str):
        self._folder = folder
        self._origin = f"{fingerprint} {version}"
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, trial: Trial) -> Point | None:
        """Return the point of a trial; None if it is missing, damaged, or of other data or another version."""
        try:
            stored = json.loads(self._path(trial).read_text())
            matches = stored["trial"] == trial.key and stored["where"] == self._origin
            return dict(stored["measured"]) if matches else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, trial: Trial, point: Point) -> None:
        """Write the point of a trial."""
        path = self._path(trial)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        stored = {"trial": trial.key, "where": self._origin, "measured": point}
        temporary.write_text(json.dumps(stored, indent=1) + "\n")
        os.replace(temporary, path)

    def _path(self, trial: Trial) -> Path:
        name = hashlib.blake2b(f"{self._origin} {trial.key}".encode(), digest_size=10).hexdigest()
        return self._folder / f"{name}.json"

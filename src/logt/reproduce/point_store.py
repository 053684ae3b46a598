"""Measured points on disk, one file each: what is finished is not computed again."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from logt.reproduce.trials import Measured, Trial


class Store:
    """Points of one collection and one version of the library, in a folder.

    A point is written to a temporary name and renamed: an interrupt leaves it whole or not there.
    """

    def __init__(self, folder: Path, fingerprint: str, version: str):
        self._folder = folder
        self._where = f"{fingerprint} {version}"
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, trial: Trial) -> Measured | None:
        """What is known of a trial; a file that is damaged, or of another trial, counts as none."""
        try:
            held = json.loads(self._path(trial).read_text())
            return dict(held["measured"]) if held["trial"] == trial.key and held["where"] == self._where else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, trial: Trial, measured: Measured) -> None:
        path = self._path(trial)
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        unfinished.write_text(
            json.dumps({"trial": trial.key, "where": self._where, "measured": measured}, indent=1) + "\n"
        )
        os.replace(unfinished, path)

    def _path(self, trial: Trial) -> Path:
        name = hashlib.blake2b(f"{self._where} {trial.key}".encode(), digest_size=10).hexdigest()
        return self._folder / f"{name}.json"

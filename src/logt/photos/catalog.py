"""The catalogue of a folder: which pictures are described, from which bytes, and which vectors are in the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from logt._types import Floats
from logt.errors import CorruptIndexError

CATALOGUE = "catalogue.sqlite"

# raw: the descriptor, float16, until a settled whitening has made a vector of it. vectors: the whitening of the
# vector that is in the index; NULL until there is one.
_TABLES = """
CREATE TABLE IF NOT EXISTS pictures (
    name TEXT PRIMARY KEY, bytes INTEGER NOT NULL, changed INTEGER NOT NULL, raw BLOB, vectors TEXT
);
CREATE TABLE IF NOT EXISTS notes (note TEXT PRIMARY KEY, value TEXT NOT NULL)
"""
_RELEARN = "relearn"


class Stamp(NamedTuple):
    """What tells whether a file has changed: its size and the time of its last change, in nanoseconds."""

    bytes: int
    changed: int


class Catalogue:
    """One SQLite file; each method is one transaction."""

    def __init__(self, path: Path):
        self._file = path / CATALOGUE
        self._open = sqlite3.connect(self._file, timeout=30)
        with self._transaction() as db:
            for table in _TABLES.split(";"):
                db.execute(table)

    def close(self) -> None:
        self._open.close()

    def stamps(self) -> dict[str, Stamp]:
        """Of all pictures, as they were when they were described."""
        with self._transaction() as db:
            return {name: Stamp(*stamp) for name, *stamp in db.execute("SELECT name, bytes, changed FROM pictures")}

    def record(self, described: Iterable[tuple[str, Stamp, Floats]]) -> None:
        """New descriptors, whose vectors are still to be made."""
        rows = ((name, *stamp, x.astype(np.float16).tobytes()) for name, stamp, x in described)
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO pictures (name, bytes, changed, raw) VALUES (?, ?, ?, ?)", rows)

    def forget(self, names: Iterable[str]) -> None:
        with self._transaction() as db:
            db.executemany("DELETE FROM pictures WHERE name = ?", ((name,) for name in names))

    def forget_all(self, how: str) -> None:
        """Everything is to be described anew, and how; noted until all of it is in the index."""
        with self._transaction() as db:
            db.execute("DELETE FROM pictures")
            db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (_RELEARN, how))

    @property
    def relearning(self) -> str | None:
        """How everything is being described anew, if it is."""
        with self._transaction() as db:
            row = db.execute("SELECT value FROM notes WHERE note = ?", (_RELEARN,)).fetchone()
        return None if row is None else str(row[0])

    def count(self) -> int:
        with self._transaction() as db:
            return int(db.execute("SELECT count(*) FROM pictures").fetchone()[0])

    def sample(self, most: int, rng: np.random.Generator) -> Floats:
        """Raw descriptors of all pictures that have one, or of so many of them."""
        with self._transaction() as db:
            numbers = [row for (row,) in db.execute("SELECT rowid FROM pictures WHERE raw IS NOT NULL ORDER BY name")]
            if len(numbers) > most:
                numbers = [numbers[i] for i in np.sort(rng.choice(len(numbers), most, replace=False))]
            rows = (db.execute("SELECT raw FROM pictures WHERE rowid = ?", (n,)).fetchone()[0] for n in numbers)
            return _descriptors(rows)

    def pending(self, whitening: str, most: int) -> Iterator[tuple[list[str], Floats]]:
        """The pictures whose vectors under this whitening are not in the index, so many at a time."""
        query = (
            "SELECT name, raw FROM pictures WHERE vectors IS NOT ? AND raw IS NOT NULL AND name > ? "
            "ORDER BY name LIMIT ?"
        )
        last = ""
        while True:
            with self._transaction() as db:
                rows = db.execute(query, (whitening, last, most)).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            yield [name for name, _ in rows], _descriptors(raw for _, raw in rows)

    def in_index(self, whitening: str) -> set[str]:
        """The pictures whose vectors under this whitening were saved."""
        with self._transaction() as db:
            return {name for (name,) in db.execute("SELECT name FROM pictures WHERE vectors = ?", (whitening,))}

    def saved(self, whitening: str, *, settled: bool) -> None:
        """All vectors are saved under this whitening; one that is settled needs the raw descriptors no more."""
        with self._transaction() as db:
            db.execute("UPDATE pictures SET vectors = ? WHERE vectors IS NOT ?", (whitening, whitening))
            if settled:
                db.execute("UPDATE pictures SET raw = NULL WHERE raw IS NOT NULL")
            db.execute("DELETE FROM notes WHERE note = ?", (_RELEARN,))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._open:
                yield self._open
        except sqlite3.OperationalError as error:
            raise OSError(f"{self._file} cannot be used: {error}") from error
        except sqlite3.DatabaseError as error:
            raise CorruptIndexError(f"{self._file} is damaged: {error}; remove it to describe all anew") from error


def _descriptors(rows: Iterable[bytes]) -> Floats:
    return np.array([np.frombuffer(raw, np.float16) for raw in rows], np.float32)

"""The catalog of an index of photos: the files that were read, their stamps, and which have a vector in the index."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from logt._internal.types import Floats
from logt.descriptors.image_io import ImageDetails
from logt.errors import CorruptIndexError
from logt.index import Index
from logt.photos.regions import reconstruct

T = TypeVar("T")
CATALOG_FILE = "catalog.sqlite"
CATALOG_FILES = [CATALOG_FILE + suffix for suffix in ("", "-journal", "-wal", "-shm")]
"""The files that SQLite opens."""

# photos: size, mtime_ns are its FileStamp; width, height in pixels; taken: "" if its EXIF data do not state a time;
# descriptor: as float16, not whitened, NULL after a final whitening, when it is no longer needed; whitening: of its
# vector in the index, NULL until it has one.
# others: files that are not photos, such as videos; they are not read again until they change.
# removed: photos that were removed lately; descriptor: as above, or with a whitening, the vector in the index; time:
# of the removal, in seconds.
# contents: the checksum of the bytes of photos and of removed photos.
# notes: the row 'relearn' exists while everything is being indexed again, and holds the new manifest;
# 'failed' has the stamps of the files that the last run could not read, 'apart' the photos that are no duplicates.
_TABLES = {
    "photos": (
        "CREATE TABLE photos (name TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, "
        "width INTEGER NOT NULL, height INTEGER NOT NULL, taken TEXT NOT NULL, descriptor BLOB, whitening TEXT)"
    ),
    "others": "CREATE TABLE others (name TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL)",
    "removed": (
        "CREATE TABLE removed (name TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, "
        "width INTEGER NOT NULL, height INTEGER NOT NULL, taken TEXT NOT NULL, descriptor BLOB NOT NULL, "
        "whitening TEXT, time INTEGER NOT NULL)"
    ),
    "contents": "CREATE TABLE contents (name TEXT PRIMARY KEY, content BLOB NOT NULL)",
    "notes": "CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
}
MAX_REMOVED, REMOVED_SECONDS = 50_000, 30 * 86400
"""Photos that are remembered after they were removed, and how long."""

_NOTE = "SELECT value FROM notes WHERE name = ?"
_RELEARN, FAILED = "relearn", "failed"
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_JOURNAL_END = bytes.fromhex("d9d505f920a163d7")  # of a journal that names another file, which SQLite would delete


class FileStamp(NamedTuple):
    """The size of a file and its modification time in nanoseconds; a file whose stamp differs has changed."""

    size: int
    mtime_ns: int


def file_stamp(path: Path) -> FileStamp:
    """Return the stamp of a file."""
    status = path.lstat()
    return FileStamp(status.st_size, status.st_mtime_ns)


class CatalogPhoto(NamedTuple):
    """A photo in the catalog: its stamp, its size in pixels, 0 if unknown, and when it was taken, "" if unknown."""

    name: str
    size: int = 0
    mtime_ns: int = 0
    width: int = 0
    height: int = 0
    taken: str = ""


class Catalog:
    """One SQLite file; each method is one transaction. Without `create`, opening it writes nothing."""

    def __init__(self, path: Path, *, create: bool = True):
        self._file, self._connection = path / CATALOG_FILE, _connect(path)
        try:
            with self._transaction() as db:
                if create and not db.execute("SELECT 1 FROM sqlite_master").fetchone():
                    db.execute("BEGIN")
                    for table in _TABLES.values():
                        db.execute(table)
                self._check_schema(db)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def stamps(self, table: Literal["photos", "others", "removed"] = "photos") -> dict[str, FileStamp]:
        """Return the stamp of every file of a table at the time when it was read."""
        rows = self._rows(f"SELECT name, size, mtime_ns FROM {table}")
        return {name: FileStamp(*stamp) for name, *stamp in rows}

    def replace_others(self, files: Mapping[str, FileStamp]) -> None:
        """Replace the list of files that are not photos."""
        with self._transaction() as db:
            db.execute("DELETE FROM others")
            db.executemany("INSERT INTO others VALUES (?, ?, ?)", ((name, *stamp) for name, stamp in files.items()))

    def record(
        self,
        photos: Sequence[tuple[str, FileStamp, Floats, ImageDetails]],
        whitening: str | None = None,
        *,
        keep_descriptors: bool = True,
        contents: Mapping[str, bytes] | None = None,
    ) -> None:
        """Add or replace photos with new descriptors.

        whitening: of their vectors, which are saved next; None if they are saved later. contents: checksums of files.
        """
        rows = (
            (name, *stamp, *details, descriptor.astype(np.float16).tobytes() if keep_descriptors else None, whitening)
            for name, stamp, descriptor, details in photos
        )
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO photos VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            for table in ("removed", "contents"):  # what was known of these names is no longer true
                db.executemany(f"DELETE FROM {table} WHERE name = ?", ((name,) for name, *_ in photos))
            db.executemany("INSERT INTO contents VALUES (?, ?)", (contents or {}).items())

    def contents(self) -> dict[str, bytes]:
        """Return the checksums of the bytes of photos and of removed photos, as far as they are known."""
        return {name: bytes(content) for name, content in self._rows("SELECT name, content FROM contents")}

    def touch(self, stamps: Mapping[str, FileStamp]) -> None:
        """Replace the stamps of photos whose content is the same."""
        with self._transaction() as db:
            rows = ((*stamp, name) for name, stamp in stamps.items())
            db.executemany("UPDATE photos SET size = ?, mtime_ns = ? WHERE name = ?", rows)

    def photos(self) -> list[CatalogPhoto]:
        """Return all photos and what is known about them."""
        rows = self._rows("SELECT name, size, mtime_ns, width, height, taken FROM photos")
        return [self._check_photo(CatalogPhoto(*row)) for row in rows]

    def remove(self, names: Iterable[str]) -> None:
        """Remove photos."""
        rows = [(name,) for name in names]
        with self._transaction() as db:
            db.executemany("DELETE FROM photos WHERE name = ?", rows)
            db.executemany("DELETE FROM contents WHERE name = ?", rows)

    def note(self, name: str, value: Any) -> None:
        """Store a value, as JSON."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, json.dumps(value)))

    def read_note(self, name: str, convert: Callable[[Any], T]) -> T | None:
        """Return a value as `convert` makes it of the JSON; None if there is none."""
        rows = self._rows(_NOTE, name)
        return self._convert(rows[0][0], convert) if rows else None

    def change_note(self, name: str, change: Callable[[Any], Any]) -> None:
        """Replace a value, None if there is none, by what `change` makes of it; nobody else changes it meanwhile."""
        with self._transaction() as db:
            db.execute("BEGIN IMMEDIATE")
            row = db.execute(_NOTE, (name,)).fetchone()
            value = self._convert("null" if row is None else row[0], change)
            db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, json.dumps(value)))

    def _convert(self, value: Any, convert: Callable[[Any], T]) -> T:
        """Return what `convert` makes of a value that is stored as JSON."""
        try:
            return convert(json.loads(value))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptIndexError(f"{self._file} is damaged: {error}") from error

    def failed(self) -> dict[str, FileStamp]:
        """Return the files that the last run could not read."""
        stamps = self.read_note(FAILED, lambda files: {name: FileStamp(*stamp) for name, stamp in files.items()})
        return stamps or {}

    def clear(self, manifest: str | None = None) -> None:
        """Remove all photos, and forget those that were removed lately.

        manifest: the new one, if everything is indexed again. It is kept until `mark_indexed`, so that an interrupted
        run can resume.
        """
        with self._transaction() as db:
            for table in ("photos", "removed", "contents"):
                db.execute(f"DELETE FROM {table}")
            if manifest is not None:
                db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (_RELEARN, json.dumps(manifest)))

    def remember(
        self, names: Sequence[str], index: Index | None, whitening: str | None, copied: Sequence[str] = ()
    ) -> None:
        """Remove photos; keep what is known of them, and of copied ones, for a while: `take_back` adds them again.

        index: has the vectors of photos without a descriptor. whitening: of the vectors.
        """
        query, kept = "SELECT name FROM photos WHERE name = ? AND descriptor IS NULL", [*names, *copied]
        described = [name for name in kept if index is None or name not in index or not self._rows(query, name)]
        known = sorted(set(kept) - set(described))[:MAX_REMOVED]
        vectors = dict(zip(known, reconstruct(index, known), strict=True)) if index is not None and known else {}
        keep = (
            "INSERT OR REPLACE INTO removed SELECT name, size, mtime_ns, width, height, taken, "
            "coalesce(descriptor, :vector), CASE WHEN descriptor IS NULL THEN :whitening END, :now "
            "FROM photos WHERE name = :name AND coalesce(descriptor, :vector) IS NOT NULL"
        )
        now = int(time.time())
        with self._transaction() as db:
            for name in kept:
                vector = vectors[name].astype(np.float16).tobytes() if name in vectors else None
                db.execute(keep, {"name": name, "vector": vector, "whitening": whitening, "now": now})
            db.executemany("DELETE FROM photos WHERE name = ?", ((name,) for name in names))

    def forget_removed(self) -> None:
        """Forget photos that were removed long ago or are here again, and the content of what is not known."""
        newest = "SELECT name FROM removed ORDER BY time DESC LIMIT ?"
        with self._transaction() as db:
            db.execute("DELETE FROM removed WHERE time < ?", (int(time.time()) - REMOVED_SECONDS,))
            db.execute(f"DELETE FROM removed WHERE name NOT IN ({newest})", (MAX_REMOVED,))
            known = "SELECT name FROM photos UNION SELECT name FROM removed"
            db.execute(f"DELETE FROM contents WHERE name NOT IN ({known})")

    def take_back(
        self, files: Mapping[str, tuple[str, FileStamp, bytes | None]], whitening: str | None
    ) -> tuple[set[str], dict[str, Floats]]:
        """Add remembered photos again; return their names, and the vectors of those that have no descriptor.

        files: the name that each had, its present stamp, and the checksum of its bytes, None if it is not known. They
        are forgotten then. whitening: of the present vectors, which these vectors join next.
        """
        again: set[str] = set()
        vectors: dict[str, Floats] = {}
        with self._transaction() as db:
            for name, (source, stamp, content) in files.items():
                row = db.execute("SELECT * FROM removed WHERE name = ?", (source,)).fetchone()
                if row is None:
                    continue
                _, _, _, *details, descriptor, kind, _ = row
                if kind is None or kind == whitening:
                    again.add(name)
                    values = (name, *stamp, *details, None if kind else descriptor, kind)
                    db.execute("INSERT OR REPLACE INTO photos VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
                    if content is not None:
                        db.execute("INSERT OR REPLACE INTO contents VALUES (?, ?)", (name, content))
                    if kind:
                        vectors[name] = _decode_descriptors([descriptor])[0]
            sources = ((source,) for source, _, _ in files.values())
            db.executemany("DELETE FROM removed WHERE name = ?", sources)
        return again, vectors

    @property
    def relearning(self) -> str | None:
        """The new manifest while everything is being indexed again, else None."""
        return self.read_note(_RELEARN, str)

    def forget_vectors(self) -> None:
        """Record that the index holds no vectors; photos without a descriptor have to be read again."""
        with self._transaction() as db:
            db.execute("DELETE FROM photos WHERE descriptor IS NULL")
            db.execute("UPDATE photos SET whitening = NULL")

    def check(self) -> None:
        """Check the whole file and its values; raise CorruptIndexError if it is damaged."""
        ((result,),) = self._rows("PRAGMA integrity_check(1)")
        if result != "ok":
            raise CorruptIndexError(f"{self._file} is damaged: {result}")
        self.photos()

    def copy_to(self, path: Path) -> None:
        """Replace the catalog in another folder by the present state of this one, in one transaction."""
        with closing(_connect(path)) as target, self._transaction() as db:
            db.backup(target)

    def count(self) -> int:
        """Return the number of photos."""
        return int(self._rows("SELECT count(*) FROM photos")[0][0])

    def sample_descriptors(self, limit: int, rng: np.random.Generator) -> Floats:
        """Return the descriptors of all photos that have one, or of `limit` random ones of them."""
        with self._transaction() as db:
            query = "SELECT rowid FROM photos WHERE descriptor IS NOT NULL ORDER BY name"
            row_ids = [row for (row,) in db.execute(query)]
            if len(row_ids) > limit:
                row_ids = [row_ids[i] for i in np.sort(rng.choice(len(row_ids), limit, replace=False))]
            query = "SELECT descriptor FROM photos WHERE rowid = ?"
            return _decode_descriptors(db.execute(query, (row,)).fetchone()[0] for row in row_ids)

    def unindexed(self, whitening: str, batch_size: int) -> Iterator[tuple[list[str], Floats]]:
        """Yield (names, descriptors) of the photos that have no vector with this whitening, in batches."""
        query = (
            "SELECT name, descriptor FROM photos WHERE whitening IS NOT ? AND descriptor IS NOT NULL AND name > ? "
            "ORDER BY name LIMIT ?"
        )
        last = ""
        while True:
            rows = self._rows(query, whitening, last, batch_size)
            if not rows:
                return
            last = rows[-1][0]
            yield [name for name, _ in rows], _decode_descriptors(descriptor for _, descriptor in rows)

    def indexed_names(self, whitening: str) -> set[str]:
        """Return the photos whose vectors with this whitening were saved."""
        return {name for (name,) in self._rows("SELECT name FROM photos WHERE whitening = ?", whitening)}

    def mark_indexed(self, whitening: str, *, drop_descriptors: bool) -> None:
        """Record that the vectors of all photos are saved with this whitening."""
        with self._transaction() as db:
            db.execute("UPDATE photos SET whitening = ? WHERE whitening IS NOT ?", (whitening, whitening))
            if drop_descriptors:
                db.execute("UPDATE photos SET descriptor = NULL WHERE descriptor IS NOT NULL")
            db.execute("DELETE FROM notes WHERE name = ?", (_RELEARN,))

    def _check_schema(self, db: sqlite3.Connection) -> None:
        """Raise if the tables are not those above: a view or a trigger could compute for ever."""
        found = db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL OR type != 'index'").fetchall()
        if len(found) != len(_TABLES) or dict(found) != _TABLES:
            raise CorruptIndexError(f"{self._file} is damaged: its tables are not those of a catalog")
        for name in _TABLES:
            if db.execute(f"SELECT 1 FROM {name} WHERE name IS NULL OR name >= x'' LIMIT 1").fetchone():
                raise CorruptIndexError(f"{self._file} is damaged: a name is not a text")

    def _check_photo(self, photo: CatalogPhoto) -> CatalogPhoto:
        """Return a photo, without its date if that is none; raise if another value has the wrong type."""
        name, *numbers, taken = photo
        if not all(type(number) is int for number in numbers):
            raise CorruptIndexError(f"{self._file} is damaged: a size or time of {name!r} is not an integer")
        return photo if taken == "" or _is_date(taken) else photo._replace(taken="")

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._transaction() as db:
            return db.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._connection:
                yield self._connection
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) == sqlite3.SQLITE_ERROR:  # of the content
                raise CorruptIndexError(f"{self._file} is damaged: {error}") from error
            raise OSError(f"cannot use {self._file}: {error}") from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter of a message of SQLite
            raise CorruptIndexError(f"{self._file} is damaged: {error}") from error


def _connect(path: Path) -> sqlite3.Connection:
    for name in CATALOG_FILES:
        _check_file(path / name)
    return sqlite3.connect(path / CATALOG_FILE, timeout=30)


def _check_file(file: Path) -> None:
    """Raise if SQLite would write to a file elsewhere, wait for a pipe, or delete a file that a journal names."""
    try:
        regular = stat.S_ISREG(file.lstat().st_mode)
    except FileNotFoundError:  # or deleted since: SQLite deletes the journal of each change
        return
    if not regular:
        raise CorruptIndexError(f"{file} is not a regular file")
    if file.name.endswith("-journal"):
        with suppress(FileNotFoundError), file.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - len(_JOURNAL_END)))
            if stream.read() == _JOURNAL_END:
                raise CorruptIndexError(f"{file} is damaged: it names another file")


def _is_date(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(_DATE.fullmatch(text) and datetime.fromisoformat(text))
    except ValueError:
        return False


def _decode_descriptors(rows: Iterable[bytes]) -> Floats:
    try:
        return np.array([np.frombuffer(raw, np.float16) for raw in rows], np.float32)
    except (ValueError, TypeError) as error:
        raise CorruptIndexError(f"a descriptor in {CATALOG_FILE} is damaged: {error}") from error

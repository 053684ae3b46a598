"""Tables: the vectors of a file and the ids beside them, and how the two are chosen by name."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from logt._internal.types import Array
from logt.errors import InvalidInputError

IdName = str | Literal[False] | None
"""The name of the ids in a file. None: id or ids, if there is one of them. False: they are not read."""


class VectorTable(NamedTuple):
    """Vectors, one per row, and their ids: integers or strings, None if the file has none.

    column, id_column: what they are called in the file, None if they have no name there.
    """

    vectors: Array
    ids: Array | None = None
    column: str | None = None
    id_column: str | None = None

    def with_ids(self, values: Any, id_column: str, file: str) -> Self:
        """Return the table with ids; raise unless there is one per vector. file: its name in errors."""
        ids = np.asarray(values)
        if len(ids) != len(self.vectors):
            raise InvalidInputError(
                f"{file} has {len(self.vectors):,} vectors, but {len(ids):,} ids in {id_column!r}; choose others "
                "with --ids, or none with --no-ids"
            )
        if ids.dtype.kind not in "iu":
            try:
                words = [value.decode() if isinstance(value, bytes) else str(value) for value in ids.tolist()]
            except (ValueError, SystemError) as error:
                raise InvalidInputError(f"{id_column!r} of {file} holds no ids: {error}") from error
            ids = np.array(words, object)
        return self._replace(ids=ids, id_column=id_column)


def is_id_name(name: str) -> bool:
    """Return whether ids are expected under this name."""
    return name.lower() in ("id", "ids")


def find_ids(usable: Mapping[str, bool], wanted: IdName, file: str) -> str | None:
    """Return the name of the ids: the wanted one, or else the only one that is called id or ids; None without one.

    usable: which names have integers or strings. file: its name in errors.
    """
    if not isinstance(wanted, str):
        found = [name for name in usable if usable[name] and is_id_name(name)]
        return found[0] if len(found) == 1 else None
    if not usable[known_name(usable, wanted, file)]:
        raise InvalidInputError(f"{wanted!r} of {file} cannot be ids: these are a column of integers or strings")
    return wanted


def known_name(names: Iterable[str], wanted: str, file: str) -> str:
    """Return a name that a file has; raise if it has not."""
    if wanted not in (known := list(names)):
        raise InvalidInputError(f"{file} has no {wanted!r}; it has: {', '.join(known) or 'nothing'}")
    return wanted

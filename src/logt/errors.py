"""What can go wrong, by type. Every message names the value and the way out; a failed call changes nothing."""

from __future__ import annotations

import math
import operator
from typing import Any


class InvalidInputError(ValueError):
    """An argument that cannot be used: a NaN, a wrong dimension, an id that is taken."""


class CorruptIndexError(OSError):
    """A stored index whose bytes are not those that were saved."""


class LockedError(OSError):
    """A stored index that another writer has open."""


class ReadOnlyError(RuntimeError):
    """A change to an index that was opened for reading."""


class FormatVersionError(OSError):
    """A stored index of a format that this version does not read."""


class MissingExtraError(ImportError):
    """A part that needs an optional package; the message names the extra to install."""


def whole(name: str, value: Any, least: int = 1) -> int:
    """The value as a plain whole number of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidInputError(f"{name} must be a whole number, got {value!r}") from None
    if isinstance(value, bool) or number < least:
        raise InvalidInputError(f"{name} must be >= {least}, got {value!r}")
    return number


def real(name: str, value: Any) -> float:
    """The value as a plain number."""
    if isinstance(value, str | bytes | bool):
        raise InvalidInputError(f"{name} must be a number, got {value!r}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} must be a number, got {value!r}") from None
    if math.isnan(number):
        raise InvalidInputError(f"{name} must be a number, got {value!r}")
    return number


def at_least_one(stage: object, *names: str) -> None:
    """Make the named parameters of a frozen stage plain whole numbers of at least 1."""
    for name in names:
        object.__setattr__(stage, name, whole(name, getattr(stage, name)))


def one_of(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise unless the named value is one of the choices."""
    if value not in choices:
        raise InvalidInputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def power(name: str, value: object) -> float:
    """The value as a plain number that scores can be raised to."""
    number = real(name, value)
    if not 0 <= number < math.inf:
        raise InvalidInputError(f"{name} must be at least 0 and finite, got {value!r}")
    return number

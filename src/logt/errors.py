"""What can go wrong, by type. Every message names the value and the way out; a failed call changes nothing."""


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


def at_least_one(**values: int) -> None:
    """Raise unless every named value is a whole number of at least 1."""
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidInputError(f"{name} must be a whole number of at least 1, got {value!r}")


def one_of(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise unless the named value is one of the choices."""
    if value not in choices:
        raise InvalidInputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")

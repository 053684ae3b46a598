"""Exception types. Every message names the value and a way to fix it; a failed call changes nothing."""


class InvalidInputError(ValueError):
    """An argument that cannot be used, such as a NaN, a wrong dimension or an id that already exists."""


class CorruptIndexError(OSError):
    """A stored index whose bytes differ from those that were saved."""


class LockedError(OSError):
    """A stored index that another writer has open."""


class ConflictError(OSError):
    """A stored index that changed on disk since it was opened: saving would overwrite what another writer saved."""


class ReadOnlyError(RuntimeError):
    """A change to an index that was opened for reading."""


class FormatVersionError(OSError):
    """A stored index in a format that this version does not read."""


class MissingExtraError(ImportError):
    """A feature that needs an optional package; the message names the extra to install."""


class DeviceError(RuntimeError):
    """A GPU that cannot be used: there is none, it is too old, or its driver is missing."""


class DeviceMemoryError(MemoryError):
    """Work that does not fit into the memory of a GPU; the message states the bytes, and what would fit."""


class WorkerError(RuntimeError):
    """A task that failed on all attempts, because its worker process or machine died."""


class MissingShardsError(RuntimeError):
    """A search without an answer from some shards of an index; `shards` are their numbers."""

    def __init__(self, message: str, shards: tuple[int, ...] = ()):
        """message: what happened. shards: the numbers of the shards that are missing."""
        super().__init__(message)
        self.shards = shards


class BusyError(RuntimeError):
    """A search that was not started, because too many others are running."""

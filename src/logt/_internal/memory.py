"""How much memory this process may use."""

import os
from contextlib import suppress
from pathlib import Path

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_bytes() -> int | None:
    """Return the bytes of memory of the machine, or of the container if it has fewer; None if not known."""
    known: list[int] = []
    with suppress(AttributeError, OSError, ValueError):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # "max" is no limit
            known.append(int(path.read_text()))
    return min((size for size in known if size > 0), default=None)

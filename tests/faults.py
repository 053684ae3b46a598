"""What goes wrong in tests of storage: flipped bytes, failing disks, killed children."""

import errno
import itertools
import os
import signal

TORTURE = "LOGT_TORTURE" in os.environ
"""`make torture`: every byte, every step, long loads."""


def every(count, step):
    """Every number below `count` in the long form; otherwise one in `step`, with the first and the last."""
    return range(count) if TORTURE else sorted({*range(0, count, step), count - 1})


def contents(folder):
    """The bytes of all files of a folder but the lock, by name."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def damage(path, at=-1):
    """Flip a bit of a byte; readers that have mapped the file keep the old one."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.unlink()
    path.write_bytes(data)
    return path


class FailingOs:
    """The module os, of which the n-th call that touches the disk fails, and all after it."""

    def __init__(self, n, error=errno.EIO):
        self.left, self.error, self.failed = n, error, False

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in ("open", "write", "fsync", "replace"):
            return real

        def call(*args, **kwargs):
            self.left -= 1
            if self.left < 0:
                self.failed = True
                raise OSError(self.error, os.strerror(self.error))
            return real(*args, **kwargs)

        return call


def killed_in_child(call):
    """Call a function in a forked child; return whether it was killed."""
    child = os.fork()
    if not child:
        try:
            call()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def die_at(n, names=("write", "fsync", "replace", "unlink", "ftruncate")):
    """Kill this process at the n-th of some calls of os; of a write, the first half happens."""
    calls = itertools.count()

    def dying(real):
        def call(*args, **kwargs):
            if next(calls) == n:
                if real is os_write:
                    real(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    os_write = os.write
    for name in names:
        setattr(os, name, dying(getattr(os, name)))

"""A worker process: reads tasks from the standard input and writes their results, one line of JSON each."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run tasks until the input ends."""
    results = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print does not mix with results
    from logt.distributed.tasks import run_task

    for line in sys.stdin:
        results.write(run_task(line) + "\n")
        results.flush()


if __name__ == "__main__":
    main()

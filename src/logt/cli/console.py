"""Output and options that several commands share."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from logt._progress import progress_bars
from logt._threads import Progress
from logt.errors import InvalidInputError

out, err = Console(), Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON output.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of threads. Default: all cores.")]

_LINE_SECONDS = 15  # between two lines of progress


def refuse_unused(context: typer.Context | None, names: Sequence[str], why: str) -> None:
    """Raise if one of these options, which would have no effect, was given on the command line.

    context: None if the command is called as a function.
    """
    if context is None:
        return
    for option in context.command.params:
        source = context.get_parameter_source(option.name) if option.name in names else None
        if source is not None and source.name == "COMMANDLINE":
            raise InvalidInputError(f"{max(option.opts, key=len)} {why}")


def say(text: str) -> None:
    """Print text as it is: paths and ids may contain characters that look like markup."""
    out.print(text, highlight=False, markup=False, soft_wrap=True)


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


@contextmanager
def progress(quiet: bool) -> Iterator[Progress]:
    """Return a progress callback that writes to stderr: bars on a terminal, else lines; nothing if `quiet`."""
    if quiet:
        yield _ignore
    elif not err.is_terminal:
        yield _LineProgress()
    else:
        with progress_bars(err, transient=True) as report:
            yield report


def _ignore(what: str, done: int, total: int) -> None:
    pass


class _LineProgress:
    """A progress callback that prints a line every few seconds."""

    def __init__(self) -> None:
        self._started: dict[str, tuple[float, int]] = {}  # by kind of work: start time, last `done`
        self._last_line = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        start, last_done = self._started.get(what, (now, 0))
        if done < last_done:  # the same kind of work has started again
            start = now
        self._started[what] = start, done
        if now - self._last_line >= _LINE_SECONDS and now > start:
            self._last_line = now
            rate = done / (now - start)
            minutes = (total - done) / max(rate, 1e-9) / 60
            left = "less than 1 min" if minutes < 1 else f"{minutes:,.0f} min"
            err.print(f"{what} {done:,}/{total:,}, {rate:,.1f}/s, {left} left", highlight=False, soft_wrap=True)

"""What commands share: where they print, how progress looks, options that several have."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from logt._threads import Progress as Report

out, err = Console(), Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads to use; all cores by default.")]

_SECONDS = 15  # between lines of progress where no bar can be drawn


def say(text: str) -> None:
    """Print as it is: paths and ids may look like markup."""
    out.print(text, highlight=False, markup=False, soft_wrap=True)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


@contextmanager
def progress(quiet: bool) -> Iterator[Report]:
    """A bar per kind of work, with rate and time left, on the error stream; a line now and then if that is a file."""
    if quiet or not err.is_terminal:
        yield _silent if quiet else _lines()
        return
    bars = Progress(
        TextColumn("{task.description:<16}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        _Rate(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    )
    tasks: dict[str, TaskID] = {}

    def report(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = bars.add_task(what)
        bars.update(tasks[what], completed=done, total=total)

    with bars:
        yield report


def _silent(what: str, done: int, total: int) -> None:
    pass


def _lines() -> Report:
    begun: dict[str, tuple[float, int]] = {}
    last = time.monotonic()

    def report(what: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        start, before = begun.get(what, (now, 0))
        if done < before:  # the same work on something else
            start = now
        begun[what] = start, done
        if now - last >= _SECONDS and now > start:
            last = now
            rate = done / (now - start)
            left = (total - done) / max(rate, 1e-9)
            err.print(f"{what} {done:,}/{total:,}, {rate:,.1f}/s, {left / 60:,.0f} min left", highlight=False)

    return report

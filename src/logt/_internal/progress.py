"""Progress of long calls: a callback, or bars on the terminal and in notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from logt._internal.threads import Progress
from logt.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


@contextmanager
def shown_progress(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """Return the callback to report to: the given one, one that draws bars for True, none for False and None."""
    if progress is None or progress is False:
        yield None
    elif callable(progress):
        yield progress
    elif progress is True:
        from rich.console import Console

        with progress_bars(Console(stderr=True), transient=False) as report:
            yield report
    else:
        raise InvalidInputError(f"progress must be True, False or a function (what, done, total), got {progress!r}")


@contextmanager
def progress_bars(console: Console, *, transient: bool) -> Iterator[Progress]:
    """Return a progress callback that draws one bar for each kind of work, until the end of the block.

    transient: erase the bars at the end.
    """
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as ProgressBars
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f}/s")

    columns: list[Any] = [
        TextColumn("{task.description:<16}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        Rate(),
        TimeRemainingColumn(),
    ]
    tasks: dict[str, TaskID] = {}
    with ProgressBars(*columns, console=console, transient=transient) as bars:

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=total)

        yield report

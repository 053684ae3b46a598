"""Output and options that several commands share."""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.highlighter import JSONHighlighter
from typer.core import TyperGroup

from logt._internal.progress import progress_bars
from logt._internal.threads import Progress
from logt.errors import InvalidInputError

out, err = Console(), Console(stderr=True)

IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of the index.")]
AnyIndexPath = Annotated[
    Path, typer.Argument(metavar="INDEX", help="The folder of an index, or a folder of photos that contains one.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON output.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of threads. Default: all cores.")]
Device = Annotated[
    str | None, typer.Option(metavar="DEVICE", help="A GPU to compute on: cuda or cuda:1. Default: the processor.")
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="[ADDRESS]",
        help="Use a Ray cluster: the one at an address (HOST:PORT), or local for a new one on this machine; "
        "without an address, the one that runs here or at RAY_ADDRESS, or else a new one.",
    ),
]

Results = Annotated[int, typer.Option("-k", min=1, help="Number of results per query.")]
Effort = Annotated[float | None, typer.Option(help="How much to read, from 0 (fastest) to 1 (everything).")]
Recall = Annotated[
    float | None, typer.Option(help="Fraction of the results of a full scan to find; replaces --effort.")
]
Rerank = Annotated[
    str | None, typer.Option(help="diffusion: re-rank on the neighbor graph that `logt link` computed.")
]
MovedModel = Annotated[
    str | None, typer.Option("--model", help="The model of the photos, if it was moved or not used before.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file or index.")]

_LINE_SECONDS = 15  # between two lines of progress
_RAY_ADDRESS = re.compile(r"auto|local|ray://.+|[^/\s]+:\d+")
_ESCAPED_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # and what json.dumps escapes


class CommandsWithRay(TyperGroup):
    """Commands in which --ray may stand without a value, listed by panel."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each panel; on a terminal, rich does so."""
        panels: dict[str, list[tuple[str, str]]] = {}
        column = max(map(len, self.commands))
        for name, command in self.commands.items():
            row = name.ljust(column), command.get_short_help_str(formatter.width - 6 - column)
            panels.setdefault(str(getattr(command, "rich_help_panel", "Commands")), []).append(row)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_value(args))


def with_value(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with an empty value after each --ray that no address follows."""
    done: list[str] = []
    for number, word in enumerate(words):
        done.append(word)
        if word == "--":
            return [*done, *words[number + 1 :]]
        if word == "--ray" and not _RAY_ADDRESS.fullmatch(words[number + 1] if number + 1 < len(words) else ""):
            done.append("")
    return done


def refuse_unused(options: Mapping[str, object], why: str) -> None:
    """Raise if one of these options, which would have no effect, was given. options: values, None by default."""
    for name, value in options.items():
        if value is not None:
            raise InvalidInputError(f"{name} {why}")


def refuse_existing(path: str | Path) -> None:
    """Raise if there is a file or a folder at a path that a command would write to."""
    if Path(path).exists():
        raise InvalidInputError(f"{path} exists; choose another path, or pass --overwrite")


def say(text: str, console: Console = out, style: str | None = None) -> None:
    """Print text without markup, which paths and ids may look like, and with control characters escaped."""
    lines = "\n".join(map(printable, text.split("\n")))
    console.print(lines, style=style, highlight=False, markup=False, soft_wrap=True)


def printable(name: object) -> str:
    """Return an id or a name on one line, with control characters and lone surrogates escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(name))


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, with control characters and lone surrogates escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _ESCAPED_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    out.print(JSONHighlighter()(to_json(value, indent=2)), soft_wrap=True)


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


@contextmanager
def progress(quiet: bool, interrupted: str = "") -> Iterator[Progress]:
    """Return a progress callback that writes to stderr: bars on a terminal, else lines; nothing if `quiet`.

    interrupted: what to print after Ctrl+C, which ends the command with status 130.
    """
    try:
        if quiet:
            yield lambda what, done, total: None
        elif not err.is_terminal:
            yield _LineProgress()
        else:
            with progress_bars(err, transient=True) as report:
                yield report
    except KeyboardInterrupt:
        if not interrupted:
            raise
        say(f"interrupted; {interrupted}", err)
        raise typer.Exit(130) from None


class _LineProgress:
    """A progress callback that prints a line every few seconds for each kind of work."""

    def __init__(self) -> None:
        self._kinds: dict[str, tuple[float, int, int, float]] = {}  # start, first and last `done`, last line

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        start, first, last, last_line = self._kinds.get(what, (now, done, done, now))
        if done < last:  # the same kind of work has started again
            start, first = now, done
        is_due = now - last_line >= _LINE_SECONDS and now > start
        self._kinds[what] = start, first, done, now if is_due else last_line
        if is_due:
            rate = (done - first) / (now - start)
            minutes = (total - done) / max(rate, 1e-9) / 60
            left = "done" if done >= total else "less than 1 min left" if minutes < 1 else f"{minutes:,.0f} min left"
            speed = [f"{rate:,.1f}/s"] if rate >= 0.1 else []
            remaining = [left] if rate else []
            err.print(", ".join([f"{what} {done:,}/{total:,}", *speed, *remaining]), highlight=False, soft_wrap=True)

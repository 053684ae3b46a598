"""The option --ray [ADDRESS], whose value may be left out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

_OPTION = "--ray"
_ADDRESS = re.compile(r"auto|local|ray://.+|[^/\s]+:\d+")

Ray = Annotated[
    str | None,
    typer.Option(
        metavar="[ADDRESS]",
        help="Use a Ray cluster: the one at an address (HOST:PORT), local for a new one on this machine; "
        "without an address, the one that runs here or at RAY_ADDRESS, or else a new one.",
    ),
]


class CommandsWithRay(TyperGroup):
    """Commands in which --ray may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_value(args))


def with_value(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with an empty value after each --ray that no address follows."""
    done: list[str] = []
    for number, word in enumerate(words):
        done.append(word)
        if word == "--":
            return [*done, *words[number + 1 :]]
        if word == _OPTION and not _ADDRESS.fullmatch(words[number + 1] if number + 1 < len(words) else ""):
            done.append("")
    return done

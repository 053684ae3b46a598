"""The command `logt`: its subcommands, and how errors are printed."""

from collections.abc import Callable
from typing import Annotated

import typer

import logt
from logt.cli import images, models
from logt.cli.console import CommandsWithRay, err, out, say
from logt.cli.contents import add, export, remove
from logt.cli.demo import demo
from logt.cli.evaluate import evaluate
from logt.cli.graph import duplicates, link, pairs
from logt.cli.reproduce import reproduce
from logt.cli.serve import serve
from logt.cli.storage import backup, compact, info, repair, restore, verify
from logt.cli.tune import tune
from logt.cli.vectors import build, convert, search
from logt.errors import CorruptIndexError, InvalidInputError

app = typer.Typer(
    cls=CommandsWithRay,
    help="Search large collections of image descriptors, and folders of photos.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if err.is_terminal else None,  # without it, errors are not wrapped
)
_COMMANDS: dict[str, tuple[Callable[..., None] | typer.Typer, ...]] = {
    "Build and search an index": (build, convert, search, tune, info),
    "Change an index": (add, remove, link, compact),
    "Neighbors, and files to export": (duplicates, pairs, export),
    "Keep an index safe": (verify, backup, restore, repair),
    "Photos and the service": (images.app, models.app, serve),
    "Try, evaluate and reproduce": (demo, evaluate, reproduce),
}
for panel, commands in _COMMANDS.items():
    for command in commands:
        if isinstance(command, typer.Typer):
            app.add_typer(command, rich_help_panel=panel)
        else:
            app.command(rich_help_panel=panel)(command)


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Search large collections of image descriptors, and folders of photos."""
    if version:
        out.print(logt.__version__, highlight=False)
        raise typer.Exit


def main() -> None:
    """Run the command line; print errors that a user can fix as one line, without a traceback."""
    try:
        app(standalone_mode=True)
    except (InvalidInputError, OSError, ImportError) as error:
        help_repair = isinstance(error, CorruptIndexError) and "repair" not in str(error)
        way_out = "; `logt repair` shows what can be kept, `logt restore` reads a backup" if help_repair else ""
        say(f"error: {error}{way_out}", err, "red")
        raise SystemExit(1) from None

"""`logt images`: a folder of photos in, answers out."""

from __future__ import annotations

import json
import tempfile
import time
import warnings
import webbrowser
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from logt.cli.console import AsJson, Threads, err, out, progress, say
from logt.descriptors import Box, ImageError, Model, read_image
from logt.errors import InvalidInputError
from logt.evaluation import mean_average_precision
from logt.photos import Photos, Summary, duplicates, update
from logt.photos.duplicates import THRESHOLD
from logt.photos.html_report import ReportPhoto, render_report
from logt.photos.index_folder import DEFAULT_NAME
from logt.photos.synthetic_scenes import write_synthetic_photos

app = typer.Typer(help="Search in a folder of photos.", no_args_is_help=True)

_FAILURES = 20  # shown; --json gives all
_THUMBNAIL = 160  # pictures of a page are read no smaller than twice this

IndexPath = Annotated[Path, typer.Argument(help="An index of photos, or the folder of photos that it lies in.")]
ModelPath = Annotated[
    Path | None, typer.Option("--model", help="An ONNX model: feature map or vector. Default: the one inside.")
]


@app.command()
def index(
    folder: Annotated[Path, typer.Argument(help="The folder of photos; folders in it are looked into as well.")],
    path: Annotated[Path | None, typer.Argument(metavar="[INDEX]", help="Its index. Default: FOLDER/.logt")] = None,
    model: ModelPath = None,
    side: Annotated[int | None, typer.Option(min=32, help="Pixels of the longer side that are looked at.")] = None,
    relearn: Annotated[bool, typer.Option(help="Describe everything anew, with a new whitening.")] = False,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Describe the photos of a folder, or what is new in it; can be stopped, and goes on where it was."""
    warnings.filterwarnings("ignore", module=r"PIL\.")  # remarks on odd metadata would break into the progress
    chosen: Path | Model | None = model if side is None else Model.load(model, side=side)
    start = time.perf_counter()
    try:
        with progress(quiet=as_json) as report:
            done = update(folder, path, model=chosen, relearn=relearn, workers=threads, progress=report)
    except KeyboardInterrupt:
        err.print("stopped; the same command goes on where it was")
        raise typer.Exit(130) from None
    _summary(done, path or folder / DEFAULT_NAME, time.perf_counter() - start, as_json)


@app.command()
def search(
    path: IndexPath,
    photo: Annotated[Path, typer.Argument(help="The photo to search with.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Results.")] = 10,
    box: Annotated[str | None, typer.Option(help="Search with a part: left,top,right,bottom in pixels.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the pictures to this file.")] = None,
    show: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    model: ModelPath = None,
    as_json: AsJson = False,
) -> None:
    """Find the photos that are most like a photo."""
    photos = Photos.open(_home(path), model=model)
    part = None if box is None else _box(box)
    image = read_image(photo, side=photos.side if part is None else None)
    found = photos.search(image, k, part)
    if html is not None or show:
        query = image if part is None else image.crop(tuple(round(side) for side in part))  # type: ignore[arg-type]
        shown = (
            ReportPhoto(photo.name, query),
            [ReportPhoto(name, _thumbnail(photos, name), score) for name, score in found],
        )
        note = f"{len(found)} of {len(photos.index):,} photos in {photos.folder}"
        _write_page(html, render_report(f"Photos like {photo.name}", note, [shown]), show)
    if as_json:
        out.print_json(json.dumps([{"name": name, "score": score} for name, score in found]))
        return
    table = Table("score", "photo")
    for name, score in found:
        table.add_row(f"{score:.3f}", Text(_printable(name)))
    out.print(table)


@app.command("duplicates")
def near_duplicates(
    path: IndexPath,
    threshold: Annotated[float, typer.Option(help="The least score of near-duplicates, up to 1.")] = THRESHOLD,
    model: ModelPath = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """List groups of photos that are one photo, scaled, compressed or retouched."""
    photos = Photos.open(_home(path), model=model)
    with progress(quiet=as_json) as report:
        groups = duplicates(photos, threshold, threads=threads, progress=report)
    if as_json:
        out.print_json(json.dumps([asdict(group) for group in groups]))
        return
    for number, group in enumerate(groups, 1):
        say(f"group {number}, score {group.score:.3f}")
        for name in group.names:
            say(f"  {_printable(name)}")
    say(f"{len(groups):,} groups of near-duplicates among {len(photos.index):,} photos")


@app.command()
def demo(
    folder: Annotated[Path | None, typer.Argument(help="Where to make the pictures. Default: a new folder.")] = None,
    scenes: Annotated[int, typer.Option(min=2, max=100, help="Scenes, each in five views.")] = 12,
    others: Annotated[int, typer.Option(min=0, max=2000, help="Other pictures.")] = 60,
    show: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Make pictures of drawn scenes, index them, search with other views of them, and write a page of the answers."""
    home = Path(tempfile.mkdtemp(prefix="logt-images-")) if folder is None else folder
    if home.exists() and any(home.iterdir()):
        raise InvalidInputError(f"{home} is not empty; choose another folder")
    relevant = write_synthetic_photos(home, scenes, 5, others)
    with progress(quiet=as_json) as report:
        update(home / "collection", workers=threads, progress=report)
    photos = Photos.open(home / "collection" / DEFAULT_NAME)
    names = photos.index.ids.tolist()
    rows, answers, rankings = [], [], []
    for query, views in relevant.items():
        image = read_image(home / "queries" / query)
        ranking = photos.search(image, len(names))
        rankings.append([names.index(name) for name, _ in ranking])
        rows.append({"query": query, "found in the first 5": sum(name in views for name, _ in ranking[:5])})
        answers.append(
            (ReportPhoto(query, image), [ReportPhoto(n, _thumbnail(photos, n), score) for n, score in ranking[:5]])
        )
    quality = mean_average_precision(rankings, [[names.index(name) for name in views] for views in relevant.values()])
    note = f"{scenes} scenes in 5 views each, among {others} other pictures. mAP {quality:.1f}"
    _write_page(home / "answers.html", render_report("logt images demo", note, answers), show)
    if as_json:
        out.print_json(json.dumps({"mAP": quality, "queries": rows, "page": str(home / "answers.html")}))
        return
    table = Table("query", "of 5 views, in the first 5", title=note)
    for row in rows:
        table.add_row(str(row["query"]), str(row["found in the first 5"]))
    out.print(table)
    say(f"pictures and index: {home / 'collection'}\npage of the answers: {home / 'answers.html'}")


def _summary(done: Summary, path: Path, seconds: float, as_json: bool) -> None:
    if as_json:
        out.print_json(json.dumps({**asdict(done), "seconds": seconds, "index": str(path)}))
        return
    for name, reason in done.failed[:_FAILURES]:
        say(f"failed: {_printable(name)}: {reason}")
    if len(done.failed) > _FAILURES:
        say(f"… and {len(done.failed) - _FAILURES:,} more that failed; --json lists all")
    described = done.added + done.changed
    rate = f", {described / seconds:,.1f} a second" if described else ""
    say(
        f"{done.added:,} new, {done.changed:,} changed, {done.removed:,} gone, {done.unchanged:,} as before, "
        f"{len(done.failed):,} failed; {seconds:,.1f} s{rate}"
    )
    say(f"index: {path}")


def _home(path: Path) -> Path:
    """An index of photos, or that of a folder of photos."""
    return path / DEFAULT_NAME if (path / DEFAULT_NAME).is_dir() else path


def _box(text: str) -> Box:
    try:
        left, top, right, bottom = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInputError(f"--box must be left,top,right,bottom in pixels, got {text!r}") from None
    return left, top, right, bottom


def _thumbnail(photos: Photos, name: str) -> Any:
    """A picture for a page; None where it has left the folder or cannot be read."""
    try:
        return read_image(photos.photo_path(name), side=_THUMBNAIL)
    except (InvalidInputError, ImageError):
        return None


def _write_page(path: Path | None, text: str, show: bool) -> None:
    if path is None:
        path = Path(tempfile.mkdtemp(prefix="logt-images-")) / "answers.html"
    path.write_text(text, encoding="utf-8")
    if show and not webbrowser.open(path.resolve().as_uri()):
        err.print(f"no browser could be started; the page is {path}", markup=False, highlight=False)


def _printable(name: str) -> str:
    """A name on one line, whatever it holds."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)

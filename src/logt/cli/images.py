"""`logt images`: index and search a folder of photos."""

from __future__ import annotations

import os
import tempfile
import time
import webbrowser
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from logt.cli.console import (
    AsJson,
    Device,
    MovedModel,
    Ray,
    Threads,
    count_of,
    err,
    out,
    print_json,
    printable,
    progress,
    say,
)
from logt.descriptors import Model, read_image
from logt.descriptors.boxes import parse_box, to_pixels
from logt.descriptors.onnx_session import DEVICE_VARIABLE
from logt.distributed.photos import RayExtractor
from logt.errors import InvalidInputError
from logt.evaluation import mean_average_precision
from logt.gpu.device import check_device_name
from logt.photos import Photos, Summary, duplicates, update
from logt.photos.html_report import render_report
from logt.photos.index_folder import DEFAULT_NAME
from logt.photos.regions import Match
from logt.photos.synthetic_scenes import write_synthetic_photos

if TYPE_CHECKING:
    from PIL.Image import Image

app = typer.Typer(name="images", help="Index and search a folder of photos.", no_args_is_help=True)

_MAX_FAILURES = 20  # printed; --json prints all
_THUMBNAIL_SIDE = 160  # images of a report are read with at least twice this many pixels
_DEMO_VIEWS = 5

PhotoIndexPath = Annotated[
    Path, typer.Argument(metavar="INDEX", help="An index of photos, or the folder of photos that contains it.")
]


@app.command()
def index(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of photos; subfolders are included.")],
    path: Annotated[
        Path | None, typer.Argument(metavar="INDEX", help="The folder of the index. Default: FOLDER/.logt")
    ] = None,
    also: Annotated[
        list[Path] | None,
        typer.Option(help="Also index the photos of this folder; can be repeated. Later runs include it."),
    ] = None,
    only: Annotated[
        bool, typer.Option("--only", help="Remove the photos of other folders (--also) from the index.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|PATH",
            help="dinov2 (the default) or lite, both included; a model of `logt models`; an ONNX image encoder, a "
            "folder that contains one, or a name in the folder LOGT_MODELS.",
        ),
    ] = None,
    regions: Annotated[
        bool,
        typer.Option(
            "--regions", help="Also index regions of photos; takes ten times as long. Later runs do so, too."
        ),
    ] = False,
    text: Annotated[
        str | None,
        typer.Option(metavar="NAME|PATH", help="A second model, for searches by text. Later runs use it, too."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Preprocessing of a family of models: clip, siglip, dinov2 or timm.")
    ] = None,
    side: Annotated[
        int | None, typer.Option(min=32, help="Longer side, in pixels, to which photos are resized.")
    ] = None,
    relearn: Annotated[
        bool, typer.Option("--relearn", help="Compute all descriptors and the whitening again.")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Remove damaged files of the index, and compute them again.")
    ] = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Remove missing photos from the index, even if many of them are missing."),
    ] = False,
    threads: Threads = None,
    device: Device = None,
    ray: Ray = None,
    as_json: AsJson = False,
) -> None:
    """Create or update the index of a folder of photos. An interrupted run can be resumed."""
    if only and also:
        raise InvalidInputError("--only and --also cannot be combined")
    given: dict[str, Any] = {} if side is None else {"side": side}
    if device is not None:
        os.environ[DEVICE_VARIABLE] = check_device_name(device)
    chosen = Model.load(model, preset=preset, **given) if given or preset else model
    start = time.perf_counter()
    with progress(as_json, "run the same command again to resume") as report:
        summary = update(
            folder,
            path,
            also=[] if only else also or None,
            model=chosen,
            regions=regions,
            text=text,
            relearn=relearn,
            rebuild=rebuild,
            yes=yes,
            workers=threads,
            extract=None if ray is None else RayExtractor(ray or None),
            progress=report,
        )
    _print_summary(summary, path or folder, path or folder / DEFAULT_NAME, time.perf_counter() - start, as_json)


@app.command()
def search(
    path: PhotoIndexPath,
    photo: Annotated[Path | None, typer.Argument(metavar="PHOTO", help="The photo to search for.")] = None,
    text: Annotated[
        str | None, typer.Option(help="Search by text instead, with a model that has a text encoder.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of results.")] = 10,
    box: Annotated[
        str | None,
        typer.Option(
            help="Search for a region of the photo: left,top,right,bottom as fractions of its width and height "
            "(0 to 1), or in whole pixels."
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the results as an HTML page to this file.")] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the results as a page in the browser.")] = False,
    model: MovedModel = None,
    as_json: AsJson = False,
) -> None:
    """Find the photos that are most similar to a photo or a text."""
    if (photo is None) == (text is None) or (text is not None and box is not None):
        raise InvalidInputError("pass a photo, or --text TEXT without --box")
    region = None if box is None else parse_box(box)
    photos = Photos.open(path, model=model)
    if photo is None:
        image, title = None, text or ""
        results = [Match(*pair) for pair in photos.search_text(title, k)]
    else:
        image, title = read_image(photo, side=photos.side if region is None else None), photo.name
        results = photos.search_regions(image, k, region)
        image = image if region is None else image.crop(to_pixels(region, image.size))
    if html is not None or show:
        note = f"The {len(results)} most similar of {count_of(len(photos.index), 'photo')} in {photos.folder}"
        found = [(name, score, _read_thumbnail(photos, name)) for name, score, _ in results]
        file = html or Path(tempfile.mkdtemp(prefix="logt-images-")) / "results.html"
        file.write_text(render_report(title, image, note, found), encoding="utf-8", errors="replace")
        if show and not webbrowser.open(file.resolve().as_uri()):
            say(f"no browser can be started; the results are in {file}", err)
    if as_json:
        print_json([result._asdict() for result in results])
        return
    has_boxes = any(result.box for result in results)
    table = Table("score", "photo", *(["region"] if has_boxes else []))
    for name, score, found_in in results:
        where = [",".join(map(str, found_in or ("whole",)))] if has_boxes else []
        table.add_row(f"{score:.3f}", Text(printable(name)), *where)
    out.print(table)


@app.command("duplicates")
def near_duplicates(
    path: PhotoIndexPath,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Minimum score of near-duplicates, up to 1. Default: 0.9; lite: 0.85; without whitening: 0.95."
        ),
    ] = None,
    model: MovedModel = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """List groups of near-duplicates, such as resized photos."""
    photos = Photos.open(path, model=model)
    with progress(quiet=as_json) as report:
        groups = duplicates(photos, threshold, threads=threads, progress=report)
    if as_json:
        print_json([asdict(group) for group in groups])
        return
    for number, group in enumerate(groups, 1):
        say(f"group {number}, score {group.score:.3f}")
        for name in group.names:
            say(f"  {printable(name)}")
    groups_found, among = count_of(len(groups), "group"), count_of(len(photos.index), "photo")
    say(f"{groups_found} of near-duplicates in {among}")


@app.command()
def demo(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="The folder to write to. Default: a new temporary folder.")
    ] = None,
    scenes: Annotated[int, typer.Option(min=2, max=100, help="Number of scenes, with five views each.")] = 12,
    others: Annotated[int, typer.Option(min=0, max=2000, help="Number of additional photos, of other scenes.")] = 60,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Draw photos of synthetic scenes, and index and search them."""
    target = Path(tempfile.mkdtemp(prefix="logt-images-")) if folder is None else folder
    if target.exists() and any(target.iterdir()):
        raise InvalidInputError(f"{target} is not empty; choose another folder")
    relevant = write_synthetic_photos(target, scenes, _DEMO_VIEWS, others)
    with progress(quiet=as_json) as report:
        update(target / "collection", workers=threads, progress=report)
    photos = Photos.open(target / "collection" / DEFAULT_NAME)
    names = photos.index.ids.tolist()
    rankings, positives, found = [], [], {}
    for query, views in relevant.items():
        ranking = [name for name, _ in photos.search(target / "queries" / query, len(names))]
        rankings.append([names.index(name) for name in ranking])
        positives.append([names.index(name) for name in views])
        found[query] = len(set(ranking[:_DEMO_VIEWS]) & set(views))
    quality = mean_average_precision(rankings, positives)
    if as_json:
        print_json({"mAP": quality, "found in the first 5": found, "collection": str(target / "collection")})
        return
    note = f"{scenes} scenes with {_DEMO_VIEWS} views each, and {others} other photos. mAP {quality:.1f}"
    table = Table("query", f"relevant photos in the first {_DEMO_VIEWS}", title=note)
    for query, count in found.items():
        table.add_row(query, str(count))
    out.print(table)
    say(f"search in them with: logt serve {target / 'collection'} --open")


def _print_summary(summary: Summary, folder: Path, path: Path, seconds: float, as_json: bool) -> None:
    if as_json:
        print_json({**asdict(summary), "seconds": seconds, "index": str(path)})
        return
    for name, reason in summary.failed[:_MAX_FAILURES]:
        say(f"failed: {printable(name)}: {reason}")
    if len(summary.failed) > _MAX_FAILURES:
        say(f"… and {len(summary.failed) - _MAX_FAILURES:,} more that failed; --json lists all")
    indexed = summary.added + summary.changed
    others = f", {count_of(summary.others, 'other file')}" if summary.others else ""
    moved = f"{summary.moved:,} moved, " if summary.moved else ""
    rate = f", {indexed / seconds:,.1f} photos/s" if indexed else ""
    say(
        f"{summary.added:,} added, {summary.changed:,} changed, {summary.removed:,} removed, {moved}"
        f"{summary.unchanged:,} unchanged, {len(summary.failed):,} failed{others}; {seconds:,.1f} s{rate}"
    )
    say(f"index: {path}")
    if summary.added + summary.changed + summary.moved + summary.unchanged:
        say(f"search in it with: logt serve {folder} --open")
    else:
        say(f"there are no photos in {folder}; copy some there, and run this command again")


def _read_thumbnail(photos: Photos, name: str) -> Image | None:
    """Read a small version of a photo; None if it is no longer in the folder or cannot be read."""
    try:
        return read_image(photos.photo_path(name), side=_THUMBNAIL_SIDE)
    except InvalidInputError:
        return None

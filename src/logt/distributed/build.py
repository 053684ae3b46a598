"""Build an index with many workers, sources -> index: one task per block, and a manifest that is committed last.

The driver handles descriptions only: vectors go from the sources to the workers, and from there to the files of the
index. What a finished task wrote is recorded, so that a build that was stopped resumes.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from logt._internal.progress import shown_progress
from logt._internal.segment import MAX_ROWS
from logt._internal.threads import Progress
from logt._internal.validation import check_int
from logt._linked_index import MAX_NEIGHBORS
from logt.datasets.vector_files import SUFFIXES
from logt.distributed.blocks import Block, split_sources
from logt.distributed.pools import Pool, ProcessPool
from logt.distributed.tasks import HELD_OUT, Result, read_record, write_record
from logt.engine.protocols import Method
from logt.errors import InvalidInputError
from logt.gpu.device import check_device_name
from logt.lists.method import Sketched
from logt.lists.training import PER_UNIT
from logt.methods import _check_method
from logt.metrics import parse_metric
from logt.storage.files import checksum
from logt.storage.locations import is_url, local_path, location_at
from logt.storage.manifest import stage_to_json
from logt.storage.store import Store

MEASURED = 2 << 30
"""Bytes of the segments on which recall by effort, and the ranks of the nearest vectors, are measured, at most.

One task reads them. At least one segment is read.
"""

MEASURED_LINKED = 16 << 30
"""The same for searches on the neighbor graph. It is more because vectors of other segments are missing as neighbors.

The task maps the files; only the full read that searches are compared with reads all of them.
"""


@dataclass(frozen=True)
class BuildSummary:
    """What a build did.

    vectors, segments: of the index. linked: vectors in the neighbor graph. resumed: segments that an earlier run had
    finished. driver_bytes: received from the workers by the process that started them.
    """

    vectors: int
    segments: int
    linked: int
    resumed: int
    driver_bytes: int


def build(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    method: Method | None = None,
    metric: str = "cosine",
    seed: int = 0,
    segment_size: int | Literal["auto"] = "auto",
    link: int | None = None,
    device: str | None = None,
    workers: int | None = None,
    pool: Pool | None = None,
    overwrite: bool = False,
    progress: Progress | bool | None = None,
) -> BuildSummary:
    """Build an index from files of vectors, with many workers, and return what was done.

    The bytes of the index do not depend on the workers. Until the last moment, `out` is what it was before. A build
    that was stopped or killed resumes if it is started again with the same arguments.

    sources: files of vectors (.npy, .fbin, .parquet, .h5 and others), by path or URL; ids are the numbers of their
    rows, in the order of the sources. out: the folder or URL of the index; all workers must be able to write to it.
    method, metric, seed: as of `logt.Index`. segment_size: the most vectors of a segment, and of one task. link:
    neighbors per vector of the neighbor graph, as of `Index.link`; None for no graph. A task links the vectors of
    some lists that are near each other, and reads as many around them: some neighbors further away are missing.
    device: "cuda" lets the workers train, encode and compare on a GPU, which they share. workers: processes on this
    machine; if None one per core, or one in all with a device. pool: where tasks run instead, such as
    `logt.distributed.RayPool()`. overwrite: replace an index that is there. progress: True draws bars; a function is
    called as progress(what, done, total).
    """
    files = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    if not files:
        raise InvalidInputError(f"no sources are given; pass files of vectors: {', '.join(SUFFIXES)}")
    method = _check_method(method)
    size = check_int("segment_size", method.segment_size if segment_size == "auto" else segment_size)
    if size > MAX_ROWS:
        raise InvalidInputError(f"segment_size must be at most {MAX_ROWS:,}, got {size}")
    if link is not None and check_int("link", link) > MAX_NEIGHBORS:
        raise InvalidInputError(f"link must be at most {MAX_NEIGHBORS:,}, got {link}")
    if link is not None and not isinstance(method, Sketched):
        raise InvalidInputError("a build links inverted lists only; build without link, and call Index.link")
    device_name = None if device is None else check_device_name(device)
    if device_name is not None and not isinstance(method, Sketched):
        raise InvalidInputError(f"only logt.methods.sketched() builds on a device, not {method.describe()}")
    settings = {"metric": parse_metric(metric), "seed": check_int("seed", seed, least=0), "segment_size": size}
    with (
        ProcessPool(workers if device_name is None else workers or 1) if pool is None else nullcontext(pool) as used,
        shown_progress(progress) as report,
        _open_target(out, overwrite=overwrite) as target,
    ):
        names = [str(source) if is_url(source) else str(local_path(source)) for source in files]
        return _Build(used, target, method, settings, report, link, device_name).run(names)


@contextmanager
def _open_target(path: object, *, overwrite: bool) -> Iterator[Store]:
    """Lock a folder, or note the generation of a URL, that a new index is to be written to.

    Its files are written first, by anyone, and the manifest last, by `Store.write_entries`.
    overwrite: an index that is there may be replaced.
    """
    location = location_at(path)
    if not overwrite and location.holds_index():
        raise InvalidInputError(f"{path} is an index; choose another path, or pass overwrite to replace it")
    new = location.folder is not None and not location.folder.exists()
    store = Store.create(path)
    try:
        yield store
    except InvalidInputError:  # what is left of other failures is used by the next attempt
        if new:
            shutil.rmtree(location.name, ignore_errors=True)
        raise
    finally:
        store.close()


@dataclass(frozen=True)
class _Build:
    """One build: the steps of the driver.

    settings: metric, seed and segment_size. link: neighbors per vector. device: where workers compute.
    """

    pool: Pool
    target: Store
    method: Method
    settings: dict[str, Any]
    progress: Progress | None
    link: int | None = None
    device: str | None = None

    def run(self, sources: Sequence[str]) -> BuildSummary:
        before = self.pool.received
        about = self._map([{"kind": "inspect", "source": source} for source in sources], "reading headers")
        dim = about[0]["dim"]
        for source, shape in zip(sources, about, strict=True):
            if shape["dim"] != dim or dim < 1:
                raise InvalidInputError(
                    f"{source} has {shape['dim']} dimensions, {sources[0]} has {dim}; nothing was built"
                )
        rows = [shape["rows"] for shape in about]
        blocks = split_sources(list(zip(sources, rows, strict=True)), self.settings["segment_size"])
        if not blocks:
            raise InvalidInputError("the sources hold no vectors; nothing was built")
        about_index = {"dim": dim, "method": stage_to_json(self.method), "device": self.device}
        task = {"out": self.target.location.name, **about_index, **self.settings}
        plan = [sources, [shape["stamp"] for shape in about], task]
        key = checksum(json.dumps(plan).encode())[:16]
        task["threads"] = self.pool.threads
        codec = self._learn(self.method, task, blocks, key) if isinstance(self.method, Sketched) else None
        results, resumed = self._encode(task, blocks, codec, key)
        measured = codec and self._measure(task, codec, results)
        vectors, graph, links = sum(rows), None, list[Result]()
        if measured is not None and self.link is not None and vectors > 1:
            graph, links = self._link(task, measured, results, key)
        self._commit({"dim": dim, **self.settings, "next_id": vectors}, results, codec, measured, graph)
        for file in links:
            self.target.location.remove(file["name"])
        linked = 0 if graph is None else vectors
        return BuildSummary(vectors, len(blocks), linked, resumed, self.pool.received - before)

    def _learn(self, method: Sketched, task: dict[str, Any], blocks: Sequence[Block], key: str) -> Result:
        """Return the file of the codec: draw a sample of all blocks, and train on it in one task."""
        record = f"build-{key}-plan.json"
        if done := self._earlier(record):
            return dict(done["file"])
        vectors = sum(block.rows for block in blocks)
        wanted = PER_UNIT * method.codec_settings(task["dim"], vectors).units + HELD_OUT
        share = min(1.0, wanted / vectors)
        draws = [
            {**task, "kind": "draw_sample", "block": block, "rows": math.ceil(share * block.rows)} for block in blocks
        ]
        files = [sample["file"] for sample in self._map(draws, "sampling")]
        drawn = sum(draw["rows"] for draw in draws)
        alone = {**task, "kind": "train", "threads": self.pool.machine_threads}
        (trained,) = self._map([{**alone, "samples": files, "vectors": vectors, "drawn": drawn}], "learning")
        write_record(self.target.location, record, trained)
        for name in {file["name"] for file in files}:
            self.target.location.remove(name)
        return dict(trained["file"])

    def _encode(
        self, task: dict[str, Any], blocks: Sequence[Block], codec: Result | None, key: str
    ) -> tuple[list[Result], int]:
        """Return the results of all blocks, and how many were there already."""
        results: dict[int, Result] = {}
        tasks = []
        for block in blocks:
            record = f"build-{key}-{block.number:08d}.json"
            if done := self._earlier(record):
                results[block.number] = done
            else:
                tasks.append({**task, "kind": "encode", "block": block, "codec": codec, "record": record})
        resumed, total = len(results), sum(block.rows for block in blocks)

        def finished(_: int, result: Result | None = None) -> None:
            if result is not None:
                results[result["number"]] = result  # one result per block, whichever task wrote it
            self._report("encoding", sum(blocks[number].rows for number in results), total)

        finished(0)
        self.pool.run(tasks, finished)
        return [results[block.number] for block in blocks], resumed

    def _measure(self, task: dict[str, Any], codec: Result, results: Sequence[Result]) -> Result:
        chosen = _some(results, MEASURED)
        alone = {**task, "kind": "measure", "threads": self.pool.machine_threads}
        about = {"codec": codec, "segments": _segment_files(chosen), "share": len(chosen) / len(results)}
        (done,) = self._map([{**alone, **about}], "measuring recall")
        return dict(done["file"])

    def _link(
        self, task: dict[str, Any], codec: Result, results: Sequence[Result], key: str
    ) -> tuple[Result, list[Result]]:
        """Return (the file of the neighbor graph, files that are not needed after that).

        Each region of lists is linked by one task. Another one joins their neighbors to one graph.
        """
        task = {**task, "codec": codec, "k": self.link}
        every = {**task, "kind": "link_region", "segments": _segment_files(results), "regions": len(results)}
        if len(results) == 1:
            every["threads"] = self.pool.machine_threads
        names = [f"build-{key}-links-{self.link}-{number:08d}.json" for number in range(len(results))]
        done = {number: old for number, name in enumerate(names) if (old := self._earlier(name))}
        tasks = [{**every, "number": n, "record": name} for n, name in enumerate(names) if n not in done]
        done |= {result["number"]: result for result in self._map(tasks, "linking")}
        links = [done[number]["file"] for number in range(len(names))]
        alone = {**task, "kind": "store_links", "links": links, "threads": self.pool.machine_threads}
        chosen = _segment_files(_some(results, MEASURED_LINKED))
        (stored,) = self._map([{**alone, "segments": chosen}], "measuring recall of the graph")
        return dict(stored["file"]), links

    def _commit(
        self,
        settings: dict[str, Any],
        results: Sequence[Result],
        codec: Result | None,
        measured: Result | None,
        graph: Result | None,
    ) -> None:
        files = {name: about for result in results for name, about in result["files"].items()}
        models = {name: kind for result in results for name, kind in result["models"].items()}
        entries = [result["entry"] for result in results]
        if codec is not None and measured is not None:
            name = measured.pop("name")
            files = {n: about for n, about in files.items() if n != codec["name"]} | {name: measured}
            models, entries = {name: "Codec"}, [{**entry, "model": name} for entry in entries]
        contents = {
            "settings": settings,
            "method": stage_to_json(self.method),
            "models": dict(sorted(models.items())),
            "segments": entries,
            "strings": None,
        }
        if graph is not None:
            contents["graph"] = {"graph": graph["name"]}
            files[graph["name"]] = {"bytes": graph["bytes"], "checksum": graph["checksum"]}
        self.target.write_entries(contents, dict(sorted(files.items())))

    # ------------------------------------------------------------------------------------------------ details

    def _map(self, tasks: Sequence[dict[str, Any]], what: str) -> list[Result]:
        results: dict[int, Result] = {}

        def finished(number: int, result: Result) -> None:
            results[number] = result
            self._report(what, len(results), len(tasks))

        self._report(what, 0, len(tasks))
        self.pool.run(tasks, finished)
        return [results[number] for number in range(len(tasks))]

    def _report(self, what: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(what, done, total)

    def _earlier(self, record: str) -> Result | None:
        """Return the result that an earlier run recorded, if its files are still there."""
        done = read_record(self.target.location, record)
        if done is None:
            return None
        files = {done["file"]["name"]: done["file"]} if "file" in done else done["files"]
        there = all(self.target.location.size(name) == about["bytes"] for name, about in files.items())
        return done if there else None


def _some(results: Sequence[Result], most: int) -> Sequence[Result]:
    """Return the results of segments, or of some of them that have about so many bytes at most."""
    size = sum(about["bytes"] for result in results for about in result["files"].values())
    return results[:: min(-(-size // most), len(results))]


def _segment_files(results: Sequence[Result]) -> list[list[Result]]:
    return [
        [{"name": name, **files[name]} for part in ("segment", "refinement") if (name := entry.get(part))]
        for entry, files in ((result["entry"], result["files"]) for result in results)
    ]

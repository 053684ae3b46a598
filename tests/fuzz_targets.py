"""What tests/fuzz.py fuzzes: for each loader, small valid inputs, and a function that loads the files of a folder."""

import io
import json
import os
import pickle
import struct
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
from faults import contents
from fuzz_inputs import written
from fuzz_photos import (
    X,
    all_of,
    catalog_seeds,
    image_seeds,
    load_model,
    model_seeds,
    photo_seeds,
    read_catalog,
    read_images,
    read_photos,
    read_rows_of_catalog,
    request_seeds,
    row_seeds,
    send_request,
)

import logt
from logt.errors import InvalidInputError
from logt.lists.method import Sketched
from logt.storage import changes
from logt.storage.files import checksum
from logt.storage.manifest import manifest_bytes

NAMES = np.array([f"name {row}" for row in range(12)])
KIND = "text"
GOLDEN = Path(__file__).parent / "golden" / "format-1"


@dataclass(frozen=True)
class Target:
    """A loader.

    seeds: return inputs, each {name: bytes}. load: read the input in a folder as a user would. pattern: of the names
    of the files to mutate. is_default: whether it is fuzzed if no target is named.
    """

    seeds: Callable[[], Iterable[dict[str, bytes]]]
    load: Callable[[Path], object]
    pattern: str = "*"
    is_default: bool = True


# --------------------------------------------------------------------------------------------------- indexes


@cache
def index_seeds():
    def linked(folder):
        index = logt.Index(8, segment_size=100)
        index.add(np.tile(X, (5, 1)) + np.arange(60)[:, None] % 7, ids=[f"n{i}" for i in range(60)])
        index.link(3)
        index.save(folder)
        with logt.open(folder, "a") as writer:
            writer.add(X, ids=[f"new {i}" for i in range(12)])
            writer.save()
            writer.remove(["n3", "new 1"])
            writer.save()

    def with_items(folder):
        index = logt.Index(8)
        index.add(X, items=[f"i{row // 2}" for row in range(12)])
        index.save(folder)
        with logt.open(folder, "a") as writer:
            writer.remove([3])
            writer.save()

    def with_kinds(folder):
        index = logt.Index(8, segment_size=100)
        index.add(np.tile(X, (5, 1)) + np.arange(60)[:, None] % 7)
        index.link(3)
        index.tune(np.tile(X, (2, 1)), name=KIND)
        index.save(folder)
        with logt.open(folder, "a") as writer:
            writer.remove([3])
            writer.save()

    return [
        written(linked),
        written(with_items),
        written(with_kinds),
        *map(contents, sorted(path for path in GOLDEN.iterdir() if path.is_dir())),
    ]


def sign(folder):
    """Make the checksums of an index right, if its manifest can be read at all."""
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())["manifest"]
        for name in manifest["files"]:
            data = (folder / name).read_bytes()
            manifest["files"][name] = {"bytes": len(data), "checksum": checksum(data)}
        (folder / "manifest.json").write_bytes(manifest_bytes(manifest))
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        return


def search_index(folder):
    index = logt.open(folder)
    index.verify()
    queries = np.ones((2, min(index.dim, 1000)))
    index.search(queries, 5)
    index.search(queries, 5, effort=1.0)
    if isinstance(index.method, Sketched) and all(
        KIND in segment.codec.kinds for segment in index._snapshot.segments
    ):
        index.search(queries, 5, like=KIND)
    if index.items is not None:
        index.search(queries, 5, by="item")
    if index.report()["linked"]:
        index.search(queries, 3, rerank="diffusion")
        index.links.groups(0.5)
    index.reconstruct(index.ids[:3])


def search_signed(folder):
    sign(folder)
    search_index(folder)


def search_url(folder):
    """Open an index at a URL, with right checksums and an empty cache."""
    sign(folder)
    disk = memory_files()
    disk.rm("/fuzz", recursive=True) if disk.exists("/fuzz") else None
    for name, data in contents(folder).items():
        disk.pipe(f"/fuzz/{name.replace('manifest.json', 'manifest-000000000001.json')}", data)
    with patch.dict(os.environ, LOGT_CACHE=str(folder / "cache")):
        search_index("memory://fuzz")


def repair_index(folder):
    from logt.storage.repair import repair

    sign(folder)
    if len(list(folder.iterdir())) % 2:  # some files keep a wrong checksum
        next(folder.glob("segment-*")).write_bytes(b"damaged")
    repair(folder, logt.open)


def log_seeds():
    """Indexes whose log is split into its changes: see `search_log`."""
    for files in index_seeds():
        files = dict(files)
        (name,) = (name for name in files if name.endswith(".log"))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / name).write_bytes(files.pop(name))
            manifest = json.loads(files["manifest.json"])["manifest"]
            found, _, _ = changes.read(Path(folder) / name, changes.start_of_log(manifest))
        yield files | {f"{number:02}.change": changes._encode(change)[8:] for number, change in enumerate(found)}


def search_log(folder):
    """Write the changes to the log, with right checksums."""
    manifest = json.loads((folder / "manifest.json").read_bytes())["manifest"]
    log, at = changes.log_path(folder, manifest["state"]), changes.start_of_log(manifest)
    with patch.object(changes, "_encode", lambda data: struct.pack("<Q", len(data)) + data):
        for path in sorted(folder.glob("*.change")):
            at = changes.append(log, at, [path.read_bytes()])
            path.unlink()
    search_index(folder)


# ------------------------------------------------------------------------------------------ files of vectors


def vector_seeds(*suffixes):
    def npz(file):
        np.savez_compressed(file, X=X, label=np.arange(3), id=NAMES)

    def hdf5(file):
        import h5py

        with h5py.File(file, "w") as out:
            out.create_dataset("train", data=X, chunks=(5, 3), compression="gzip", shuffle=True)
            out.create_dataset("other", data=X)
            if "list" in file.name:  # a child process reads them, which takes a while
                out["id"] = NAMES.tolist()

    def parquet(file):
        import pyarrow as pa
        import pyarrow.parquet as pq

        kind = pa.list_(pa.float32(), 8) if "list" in file.name else pa.list_(pa.float32())
        pq.write_table(pa.table({"id": NAMES, "vector": pa.array(X.tolist(), kind)}), file, row_group_size=5)

    def vecs(file):
        kind = np.float32 if file.suffix == ".fvecs" else np.uint8
        file.write_bytes(b"".join(struct.pack("<i", 8) + row.astype(kind).tobytes() for row in np.abs(X)))

    def bins(file):
        kind = {".fbin": np.float32, ".u8bin": np.uint8, ".i8bin": np.int8}[file.suffix]
        file.write_bytes(struct.pack("<II", *X.shape) + np.abs(X).astype(kind).tobytes())

    writers = {
        ".npy": lambda file: np.save(file, X.astype(np.float16 if "list" in file.name else np.float32)),
        ".npz": npz,
        ".csv": lambda file: np.savetxt(file, X, "%.3g", ",", header="a,id,c", comments=""),
        ".hdf5": hdf5,
        ".parquet": parquet,
    }
    for name in ("vectors", "list"):
        yield {
            f"{name}{suffix}": (
                content_of(writers.get(suffix, vecs if "vecs" in suffix else bins), f"{name}{suffix}")
            )
            for suffix in suffixes
        }


def content_of(write, name):
    return written(lambda folder: write(folder / name))[name]


def read_all_vectors(folder):
    """Read vectors as `logt build` does: from a file, from the standard input, by block, and by URL."""
    from logt.datasets.row_files import read_rows, rows_shape
    from logt.datasets.tables import VectorTable
    from logt.datasets.vector_files import read_stream, read_table

    def add(read, source):
        table = read(source)
        if table.vectors.size <= 10_000:
            logt.Index(table.vectors.shape[1]).add(table.vectors, table.ids)

    def first_rows(source):
        return VectorTable(read_rows(source, 0, min(3, rows_shape(source)[0])))

    for path in sorted(folder.iterdir()):
        memory_files().pipe(f"/fuzz/{path.name}", path.read_bytes())
        stream = io.BytesIO(path.read_bytes())
        ways = [(read_table, path), (read_stream, stream), (first_rows, str(path))]
        all_of(*(partial(add, *way) for way in (*ways, (first_rows, f"memory://fuzz/{path.name}"))))


@cache
def memory_files():
    import fsspec

    return fsspec.filesystem("memory")


def benchmark_seeds():
    def text(folder):
        for kind, names in {"query": "a 1 2 3 4", "good": "img0\nimg1", "ok": "img2", "junk": "img3"}.items():
            (folder / f"q0_{kind}.txt").write_text(names)
        (folder / "imlist.txt").write_text("\n".join(f"img{i}.jpg" for i in range(12)))

    def mat_5(folder):
        from scipy.io import savemat

        savemat(folder / "a.mat", {"X": X.T, "Q": X[:1].T}, do_compression=True)
        savemat(folder / "b.mat", {"X": X[:0].T.astype(np.float64)})
        text(folder)

    def mat_73(folder):
        import h5py

        with h5py.File(folder / "a.mat", "w", userblock_size=512) as file:
            file["X"], file["Q"] = X, X[:2]
        rows = {"easy": [0], "hard": [1], "junk": [2]}
        (folder / "ground_truth.json").write_text(json.dumps({"queries": [rows, rows]}))

    def bins(folder):
        for name, rows in (("base", X), ("query", X[:2])):
            (folder / f"{name}.fbin").write_bytes(struct.pack("<II", *rows.shape) + rows.tobytes())
        (folder / "groundtruth.ibin").write_bytes(struct.pack("<II", 2, 3) + np.arange(6, dtype="<i4").tobytes())

    def ann_benchmarks(folder):
        import h5py

        with h5py.File(folder / "a.hdf5", "w") as file:
            file.attrs["distance"] = "euclidean"
            file["train"], file["test"], file["neighbors"] = X, X[:2], np.arange(6).reshape(2, 3)

    def revisited(folder):
        np.save(folder / "vectors.npy", X)
        np.save(folder / "queries.npy", X[:1])
        query = {"easy": np.arange(2), "hard": [np.int64(3)], "junk": [], "bbx": np.ones(4)}
        (folder / "gnd_a.pkl").write_bytes(pickle.dumps({"gnd": [query], "imlist": ["a", "b"]}))

    return [written(write) for write in (mat_5, mat_73, bins, ann_benchmarks, revisited)]


def read_benchmark(folder):
    from logt.datasets import load_benchmark

    benchmark = load_benchmark(folder)
    if benchmark.truths:
        benchmark.mean_ap(np.zeros((len(benchmark.Q), 3), np.int64))
    assert benchmark.fingerprint


def truth_seeds():
    """Ground truths and results of `logt evaluate`."""
    query = {"easy": np.arange(2), "hard": np.array([np.int64(3)]), "junk": [], "bbx": np.ones((2, 2), order="F")}
    contents = {"gnd": [query, query], "imlist": ["a", "b"]}
    results = {"results.json": json.dumps({"a/1": {"a": 0.5, "3": 1}, "b/2": {"b": 2, "x": -1}}).encode()}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield results | {"truth.pkl": pickle.dumps(contents, protocol)}
    rows = {"positives": [0, 2], "junk": [1]}
    yield results | {"truth.json": json.dumps({"queries": [rows, rows]}).encode()}
    yield results | {"positive_ids.txt": b"a/1.jpg\na/2.jpg\nb/3.jpg,x\n"}


def read_truth(folder):
    from logt.datasets.ground_truth import read_results, read_truths

    results = read_results(folder / "results.json")
    (path,) = (path for path in folder.iterdir() if path.name != "results.json")
    truths = read_truths(path, list(results))
    for ids in results.values():
        truths.to_rows(ids)


def faiss_seeds():
    import faiss

    for kind in ("Flat", "IVF2,Flat", "SQ8", "IDMap,Flat"):
        index = faiss.index_factory(8, kind)
        index.train(X)
        index.add_with_ids(X, np.arange(12)) if "ID" in kind else index.add(X)
        yield {"index.faiss": faiss.serialize_index(index).tobytes()}


def read_faiss(folder):
    import faiss

    from logt.integrations.faiss import from_faiss

    if hasattr(faiss, "set_deserialization_vector_byte_limit"):  # faiss takes the memory that a file states
        faiss.set_deserialization_vector_byte_limit(1 << 20)
        faiss.set_deserialization_loop_limit(1 << 16)
    from_faiss(folder / "index.faiss")


# -------------------------------------------------------------------------------------------------- all of them


def read_points(folder):
    from logt.reproduce.trials import EXHAUSTIVE, Points

    Points(folder / "points.jsonl", "fingerprint", "1.0").has(EXHAUSTIVE)


def point_seeds():
    from logt.reproduce.trials import EXHAUSTIVE, Points

    yield written(lambda folder: Points(folder / "points.jsonl", "fingerprint", "1.0").add(EXHAUSTIVE, {"ms": 1.5}))


def fail(folder):
    """Fail in the ways that the fuzzer notices, and in two that it accepts: the fuzzer is tested with it."""
    kind = (folder / "input").read_bytes()[:1]
    if kind == b"e":
        raise KeyError("e")
    if kind == b"m":
        np.ones(150 << 20)
    if kind == b"c":
        os.abort()
    if kind == b"t":
        raise InvalidInputError("t")


TARGETS = {
    "index": Target(index_seeds, search_signed),
    "index-raw": Target(index_seeds, search_index),
    "url": Target(index_seeds, search_url),
    "manifest": Target(index_seeds, search_signed, "manifest.json"),
    "log": Target(log_seeds, search_log, "*.change"),
    "log-raw": Target(index_seeds, search_index, "*.log"),
    "repair": Target(index_seeds, repair_index),
    "npy": Target(lambda: vector_seeds(".npy"), read_all_vectors),
    "npz": Target(lambda: vector_seeds(".npz"), read_all_vectors),
    "csv": Target(lambda: vector_seeds(".csv"), read_all_vectors),
    "hdf5": Target(lambda: vector_seeds(".hdf5"), read_all_vectors),
    "parquet": Target(lambda: vector_seeds(".parquet"), read_all_vectors),
    "vecs": Target(lambda: vector_seeds(".fvecs", ".bvecs", ".fbin", ".u8bin", ".i8bin"), read_all_vectors),
    "benchmark": Target(benchmark_seeds, read_benchmark),
    "truth": Target(truth_seeds, read_truth),
    "faiss": Target(faiss_seeds, read_faiss),
    "points": Target(point_seeds, read_points),
    "model": Target(model_seeds, load_model),
    "photos": Target(photo_seeds, read_photos, "index/[!c]*"),
    "catalog": Target(catalog_seeds, read_catalog),
    "catalog-rows": Target(row_seeds, read_rows_of_catalog),
    "image": Target(image_seeds, read_images),
    "server": Target(request_seeds, send_request),
    "self-test": Target(
        lambda: [{"input": kind} for kind in (b"e", b"m", b"c", b"t", b"none")], fail, is_default=False
    ),
}

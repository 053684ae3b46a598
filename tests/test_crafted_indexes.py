"""Indexes whose files fit their checksums but are not as logt writes them: they are refused when they are opened."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest

import logt
from logt._internal.threads import SERIAL
from logt.engine.items import Items
from logt.engine.string_ids import Layer
from logt.errors import CorruptIndexError
from logt.methods import compact, lo_gt, sketched, starred
from logt.storage import changes
from logt.storage.changes import Change
from logt.storage.files import array_file, checksum, parse_arrays
from logt.storage.manifest import manifest_bytes, stage_to_json, state_of

DIM = 16


@pytest.fixture(scope="module")
def whole(tmp_path_factory, vectors):
    """An index of the default method with lists, string ids and a neighbor graph."""
    index = logt.Index(DIM, segment_size=2000)
    index.add(vectors(1100, DIM), ids=[f"n{i}" for i in range(1100)])
    index.link(4)
    folder = tmp_path_factory.mktemp("linked") / "index"
    index.save(folder)
    return folder


@pytest.fixture(params=[sketched(), starred(compact(lo_gt(n=5, m=2, L=4)))], ids=["sketched", "lo_gt"])
def small(request, tmp_path, vectors):
    """An index of 30 vectors in two segments."""
    index = logt.Index(8, method=request.param, metric="l2", segment_size=20)
    index.add(vectors(30, 8))
    index.save(tmp_path / "small")
    return tmp_path / "small"


def read(folder):
    return json.loads((folder / "manifest.json").read_bytes())["manifest"]


def write(folder, manifest):
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))


def replace_file(folder, name, data):
    """Write other bytes, and what the manifest holds of them."""
    (folder / name).unlink()
    (folder / name).write_bytes(data)
    manifest = read(folder)
    manifest["files"][name] = {"bytes": len(data), "checksum": checksum(data)}
    write(folder, manifest | {"state": state_of(manifest)})


def edit(folder, kind, array, change):
    """Replace one array of the file of a kind."""
    (name,) = (path.name for path in folder.glob(f"{kind}-*"))
    arrays, _ = parse_arrays(np.frombuffer((folder / name).read_bytes(), np.uint8))
    replace_file(folder, name, array_file({**arrays, array: change(np.array(arrays[array]))}))


def wrapped_starts(starts):
    starts[1:4] = 2**63 - 1, -(2**63), -1
    return starts


def wrapped_ids(ids):
    ids[-2:] = 2**63 - 1, -(2**63)
    return ids


@pytest.mark.parametrize(
    ("kind", "array", "change"),
    [
        ("segment", "starts", wrapped_starts),
        ("segment", "ids", wrapped_ids),
        ("model", "band_size", lambda size: np.array([2**62] * 4 + [DIM])),
        ("strings", "ends", lambda ends: np.where(np.arange(len(ends)) % 2, 0, ends[-1])),
        ("strings", "ends", lambda ends: ends - 1),
        ("segment", "unit", lambda unit: np.full_like(unit, 60_000)),
        ("segment", "row", lambda row: np.zeros_like(row)),
        ("model", "order", lambda order: np.zeros_like(order)),
    ],
)
def test_numbers_that_overflow_or_do_not_fit_are_refused(saved, kind, array, change):
    edit(saved, kind, array, change)
    with pytest.raises(CorruptIndexError):
        logt.open(saved)


def test_codes_of_unknown_units_are_refused(vectors, tmp_path):
    index = logt.Index(8, method=lo_gt(n=5, m=2, L=4))
    index.add(vectors(30, 8))
    index._snapshot.segments[0].codes.unit[3] = 60_000
    index.save(tmp_path / "index")
    with pytest.raises(CorruptIndexError, match="memory vector that does not exist"):
        logt.open(tmp_path / "index")


def lies(manifest):
    """Changes that make a manifest wrong."""
    settings, method, (a, b) = manifest["settings"], manifest["method"], manifest["segments"]
    other = lo_gt() if method["stage"] == "Sketched" else sketched()
    for name, value in [("dim", 9), ("dim", -1), ("unknown", 1), ("next_id", 3), ("next_id", "x"), ("device", "cpu")]:
        yield {"settings": {**settings, name: value}}
    yield {"settings": {**settings, "metric": "cosine"}}
    yield from ({"settings": {key: settings[key] for key in settings.keys() - {name}}} for name in settings)
    yield from ({"settings": value} for value in (None, "x"))
    yield from ({"generation": value} for value in ("1", 1.5, -5, 2**64))
    yield from ({"state": value} for value in ("x/../../victim", None, 5, "\0", ""))
    yield from ({"method": value} for value in ({"stage": "Path"}, {"stage": "Random", "n": 5}, stage_to_json(other)))
    for part, value in [("probe", 5), ("group", None), ("residual", "x"), ("decode", {"stage": "Sum"})]:
        yield {"method": {**method, part: value}}
    for kind in ("Float32Codebook", "os"):
        yield {"models": {a["model"]: kind, b["model"]: kind}}
    yield from ({"segments": value} for value in (7, {}, [b, {}], [a, a]))
    for change in [
        {"model": a["segment"]},
        {"segment": a["model"]},
        {"segment": "../../etc/passwd"},
        {"removed": "none"},
        {"vectors": 5},
    ]:
        yield {"segments": [{**a, **change}]}
    if "refinement" in a:
        yield {"segments": [{key: value for key, value in a.items() if key != "refinement"}]}
    yield from ({"strings": value} for value in ([a["model"]], a["model"]))
    yield {"files": []}
    for name in ("manifest.json", ".lock", "..", "", "../victim", "/tmp/victim", "thesis.pdf"):
        yield {"files": {**manifest["files"], name: {"bytes": 3, "checksum": checksum(b"abc")}}}
    for about in ({"checksum": "/tmp/x"}, {"checksum": 5}, {"bytes": -1}, {"bytes": 2.5}):
        yield {"files": {**manifest["files"], a["segment"]: {**manifest["files"][a["segment"]], **about}}}


def test_a_wrong_manifest_with_a_right_checksum_is_refused(small):
    """Checksums guard against accidents; what is read is checked all the same before a kernel sees it."""
    manifest = read(small)
    for change in lies(manifest):
        write(small, manifest | change)
        for mode in ("r", "a"):
            with pytest.raises(CorruptIndexError):
                logt.open(small, mode)
    (small / "manifest.json").write_text('{"manifest":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(CorruptIndexError):
        logt.open(small)


def test_arrays_that_are_not_aligned_are_refused(small):
    """Kernels read them by pointers of their type, which must be aligned."""
    for path in sorted(small.glob("*.safetensors")):
        original = path.read_bytes()
        length = int.from_bytes(original[:8], "little")
        header = json.loads(original[8 : 8 + length])
        header = {
            name: {**about, "data_offsets": [place + 1 for place in about["data_offsets"]]}
            for name, about in header.items()
        }
        text = json.dumps(header).encode()
        replace_file(small, path.name, len(text).to_bytes(8, "little") + text + b"\0" + original[8 + length :])
        with pytest.raises(CorruptIndexError, match="does not start at a multiple"):
            logt.open(small).search(np.ones((3, 8)), 5)
        replace_file(small, path.name, original)


def test_a_crafted_manifest_by_url_is_refused_before_the_cache_is_written(small, tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("LOGT_CACHE", str(tmp_path / "cache"))
    url = f"memory://crafted-{tmp_path.name}"
    logt.open(small).save(url)
    disk, path = fsspec.core.url_to_fs(url)
    (name,) = (name for name in disk.ls(path, detail=False) if name.endswith(".json"))
    manifest = json.loads(disk.cat(name))["manifest"]
    for change in lies(manifest):
        if "files" in change:
            disk.pipe(name, manifest_bytes(manifest | change))
            with pytest.raises(CorruptIndexError, match="is damaged"):
                logt.open(url)
    assert not (tmp_path / "cache").exists()


def log_of(folder, changes_made):
    """Write a log with these changes to an index."""
    manifest = read(folder)
    start = changes.start_of_log(manifest)
    changes.append(changes.log_path(folder, manifest["state"]), start, changes_made)


def wrong_additions(index, codec, vectors):
    """Changes with right checksums that do not fit an index with string ids."""

    def addition(n=2, dim=DIM, ids=(5000, 5001), strings=("x", "y")):
        segment = index.method.encode(vectors(n, dim), np.array(ids), 0, codec, index._settings, SERIAL)
        return Change.add(segment, strings)

    good = addition()
    return {
        "the dimension": replace(good, arrays={**good.arrays, "refinement": np.zeros((2, 2 * DIM), np.int8)}),
        "the model": replace(good, model="model-0123456789abcdef.safetensors"),
        "no model": replace(good, model=None),
        "a missing array": replace(good, arrays={"ids": good.ids}),
        "a unit": replace(good, arrays={**good.arrays, "unit": good.arrays["unit"] | 0xF000}),
        "ids that are taken": addition(ids=(0, 1)),
        "strings that are taken": addition(strings=("x", index.ids[0])),
        "strings that repeat": addition(strings=("x", "x")),
        "no strings": addition(strings=None),
        "items": replace(good, items=Items().add(good.ids, ["a", "b"])),
        "too few strings": replace(good, strings=Layer.of(["x"], good.ids[:1])),
    }


def test_additions_in_the_log_that_do_not_fit_the_index_are_refused(saved, vectors):
    reader = logt.open(saved)
    codec = reader._snapshot.segments[0].model
    name = next(iter(read(saved)["models"]))
    for what, change in wrong_additions(reader, codec, vectors).items():
        log_of(saved, [change if change.model is not codec else replace(change, model=name)])
        for call in (lambda: logt.open(saved), reader.refresh):
            with pytest.raises(CorruptIndexError) as refused:
                call()
            assert "log" in str(refused.value), what
        next(saved.glob("changes-*.log")).unlink()


def test_a_log_with_another_generation_or_kind_of_change_is_refused(saved):
    start = changes.start_of_log(read(saved))
    path = changes.log_path(saved, read(saved)["state"])
    for at, kind in ((replace(start, generation=7), "remove"), (start, "rename"), (start, "add")):
        changes.append(path, at, [Change(kind, {"ids": np.array([1])})])
        with pytest.raises(CorruptIndexError, match="damaged at byte 0"):
            logt.open(saved)
        path.unlink()


@pytest.mark.parametrize("payload", [b"abc", struct.pack("<Q", 10) + struct.pack("<Q", 2) + b"[]"])
def test_a_log_that_is_no_list_of_changes_is_refused(saved, payload, monkeypatch):
    monkeypatch.setattr(changes, "_encode", lambda change: payload)
    log_of(saved, [Change.remove(np.array([1]))])
    with pytest.raises(CorruptIndexError, match="damaged at byte"):
        logt.open(saved)


@pytest.mark.parametrize("name", [".lock", "log"])
@pytest.mark.filterwarnings("ignore:.* did not finish")
def test_nothing_is_written_through_a_link(saved, tmp_path, vectors, name):
    victim = tmp_path / "victim"
    victim.write_bytes(b"text")
    link = saved / (f"changes-{read(saved)['state']}.log" if name == "log" else name)
    link.unlink(missing_ok=True)
    link.symlink_to(victim)

    def add():
        with logt.open(saved, "a") as index:
            index.add(vectors(1, DIM, seed=3), ids=["new"])
            index.save()

    with pytest.raises(CorruptIndexError, match="symbolic link"):
        add()
    assert victim.read_bytes() == b"text"


@pytest.mark.parametrize("path", [5, b"abc", "", "a\0b", None])
def test_wrong_paths_are_named(path):
    index = logt.Index(DIM)
    for call in (index.save, logt.open):
        with pytest.raises(logt.InvalidInputError, match="path"):
            call(path)


def test_huge_numbers_are_refused_or_cut(saved):
    index, q = logt.open(saved), np.ones(DIM)
    assert index.search(q, 3, beam=10**30).ids.tolist() == index.search(q, 3, beam=1100).ids.tolist()
    with pytest.raises(logt.InvalidInputError, match="expand must be at most"):
        index.search(q, 3, expand=10**30)
    with pytest.raises(logt.InvalidInputError, match="effort must be a number below"):
        index.search(q, 3, effort=10**400)
    for threshold in (None, "x"):
        with pytest.raises(logt.InvalidInputError, match="threshold"):
            index.links.groups(threshold)

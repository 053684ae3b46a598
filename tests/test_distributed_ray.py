"""Builds on a Ray cluster of one node on this machine: the bytes of a build with processes."""

import json
import os
import signal

import numpy as np
import pytest

import logt
import logt.distributed
from logt.distributed.tasks import run_task

ray = pytest.importorskip("ray", reason="needs Ray: pip install ray, which has no wheel for Python 3.14")

from test_project import ROOT, blocks  # noqa: E402

DIM = 16
pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_a_build_on_ray_has_the_bytes_of_a_build_with_processes_whatever_is_killed(tmp_path, vectors):
    sources = [tmp_path / f"{number}.npy" for number in range(3)]
    for number, source in enumerate(sources):
        np.save(source, vectors(300, DIM, seed=number))

    def die_once(line):
        kind = json.loads(line)["kind"]
        if kind in ("train", "encode", "link_region") and not (mark := tmp_path / f"{kind} died").exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return run_task(line)

    pool = logt.distributed.RayPool()
    pool._remote = ray.remote(die_once)
    done = logt.distributed.build(sources, tmp_path / "ray", pool=pool, segment_size=500, link=5)
    assert (done.segments, done.linked) == (2, 900)
    for kind in ("train", "encode", "link_region"):
        assert (tmp_path / f"{kind} died").exists()
    logt.distributed.build(sources, tmp_path / "here", workers=1, segment_size=500, link=5)
    mine, here = ({path.name: path.read_bytes() for path in (tmp_path / n).iterdir()} for n in ("ray", "here"))
    assert mine == here


def test_the_command_builds_on_a_cluster_that_is_not_named(tmp_path, vectors, run_logt):
    np.save(tmp_path / "vectors.npy", vectors(300, DIM))
    options = ("--ray", "--link", 5, "--json")
    assert '"linked": 300' in run_logt("build", tmp_path / "vectors.npy", tmp_path / "index", *options)
    assert len(logt.open(tmp_path / "index")) == 300


def test_descriptors_of_photos_are_computed_on_the_cluster(tmp_path, small):
    Image = pytest.importorskip("PIL.Image")
    from logt.photos import Photos, update

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for number in range(10):
            pixels = np.random.default_rng(number).integers(0, 256, (40, 50, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
        (tmp_path / name / "bad.png").write_bytes(bytes(100))
    there = update(tmp_path / "one", model=small, extract=logt.distributed.RayExtractor())
    here = update(tmp_path / "two", model=small)
    assert there == here
    assert there.added == 10
    assert [name for name, _ in there.failed] == ["bad.png"]
    one, two = Photos.open(tmp_path / "one").index, Photos.open(tmp_path / "two").index
    names = sorted(one.ids)
    np.testing.assert_array_equal(one.reconstruct(names), two.reconstruct(names))


def test_the_code_of_the_how_to_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("vectors.npy", np.random.default_rng(0).standard_normal((500, 64)).astype(np.float32))
    names = {}
    for example in blocks(ROOT / "docs" / "how-to" / "cluster.md", "python"):
        exec(compile(example, "cluster.md", "exec"), names)

"""The similarity backend for FiftyOne, with the real package and its database, next to its backend sklearn."""

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

pytestmark = [
    pytest.mark.skipif(find_spec("fiftyone") is None, reason="needs fiftyone: pip install fiftyone"),
    pytest.mark.filterwarnings("ignore"),
]

BACKEND = {"config_cls": "logt.integrations.fiftyone.LogtSimilarityConfig"}


@pytest.fixture(scope="module")
def fiftyone(tmp_path_factory):
    """The package, with its database and its files in a temporary folder, and the backend in its configuration."""
    home = tmp_path_factory.mktemp("fiftyone")
    config = home / "brain_config.json"
    config.write_text(json.dumps({"similarity_backends": {"logt": {**BACKEND, "folder": str(home / "indexes")}}}))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("FIFTYONE_BRAIN_CONFIG_PATH", str(config))
        environment.setenv("FIFTYONE_DATABASE_DIR", str(home / "database"))
        environment.setenv("FIFTYONE_DO_NOT_TRACK", "true")
        import fiftyone
        import fiftyone.brain

        fiftyone.indexes = home / "indexes"
        yield fiftyone


@pytest.fixture(scope="module")
def embeddings():
    """40 vectors of norm 1, the last 10 of which are the first 10 with a little noise."""
    rng = np.random.default_rng(5)
    first = rng.normal(size=(30, 32))
    X = np.concatenate([first, first[:10] + 0.05 * rng.normal(size=(10, 32))])
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.fixture
def dataset(fiftyone):
    dataset = fiftyone.Dataset()
    dataset.add_samples([fiftyone.Sample(f"/photos/{number}.jpg", number=number) for number in range(40)])
    yield dataset
    dataset.delete()


@pytest.fixture
def both(fiftyone, dataset, embeddings):
    """The same embeddings in our backend, and in sklearn's."""
    compute = fiftyone.brain.compute_similarity
    ours = compute(dataset, embeddings=embeddings, backend="logt", brain_key="ours", bits=8, effort=1.0)
    return ours, compute(dataset, embeddings=embeddings, backend="sklearn", brain_key="theirs")


def numbers(view):
    return view.values("number")


@pytest.mark.parametrize("reverse", [False, True])
def test_sort_by_similarity_returns_the_nearest_and_the_farthest(dataset, both, embeddings, reverse):
    ours, _ = both
    samples = dataset.values("id")
    for query, vectors in (
        (samples[3], [3]),
        (samples[:3], [0, 1, 2]),
        (embeddings[7], [7]),
        (embeddings[7:9], [7, 8]),
    ):
        mean = embeddings[vectors].mean(axis=0)
        exact = 1 - embeddings @ mean / np.linalg.norm(mean)
        view = ours.sort_by_similarity(query, k=5, reverse=reverse, dist_field="distance")
        assert view.values("distance") == pytest.approx(exact[numbers(view)], abs=0.005)
        assert view.values("distance") == pytest.approx(sorted(exact, reverse=reverse)[:5], abs=0.005)
    assert len(dataset.sort_by_similarity(samples[0], brain_key="ours")) == 40
    assert numbers(dataset.sort_by_similarity(samples[0], k=2, brain_key="ours")) == [0, 30]


def test_duplicates_and_unique_samples_agree_with_sklearn(dataset, both):
    for results in both:
        results.find_duplicates(thresh=0.05)
    ours, theirs = both
    assert len(ours.duplicate_ids) == 10
    assert set(ours.duplicate_ids) == set(theirs.duplicate_ids)
    assert set(ours.unique_ids) == set(theirs.unique_ids)
    assert {name: [copy for copy, _ in found] for name, found in ours.neighbors_map.items()} == {
        name: [copy for copy, _ in found] for name, found in theirs.neighbors_map.items()
    }
    assert numbers(ours.duplicates_view())[:2] in [[n, n + 30] for n in range(10)]
    for results in both:
        results.find_unique(30)
    assert set(ours.unique_ids) == set(theirs.unique_ids) == set(dataset.values("id")[:30])


def test_methods_that_need_the_neighbors_of_all_points_run(fiftyone, dataset, both):
    brain = fiftyone.brain
    brain.compute_uniqueness(dataset, similarity_index=both[0])
    uniqueness = np.array(dataset.values("uniqueness"))
    assert uniqueness[10:30].min() > max(uniqueness[:10].max(), uniqueness[30:].max())
    found = brain.compute_near_duplicates(dataset, threshold=0.05, similarity_index=both[0])
    assert len(found.duplicate_ids) == 10
    rows, distances = both[0]._kneighbors(k=1, return_dists=True)
    assert [int(row[0]) for row in rows[:10]] == list(range(30, 40))
    assert max(found[0] for found in distances[:10]) < 0.05


def test_a_view_restricts_the_results(fiftyone, dataset, both):
    view = dataset.match(fiftyone.ViewField("number") < 35)
    ours, _ = both
    ours.use_view(view)
    assert ours.index_size == 35
    assert set(numbers(ours.sort_by_similarity(dataset.values("id")[8]))) == set(range(35))
    assert numbers(ours.sort_by_similarity(dataset.values("id")[8], k=1)) == [8]
    ours.find_duplicates(thresh=0.05)
    assert len(ours.duplicate_ids) == 5
    assert [len(row) for row in ours._radius_neighbors(thresh=0.05)] == 5 * [1] + 25 * [0] + 5 * [1]
    ours.clear_view()
    assert ours.index_size == 40


def test_changes_are_saved_and_another_process_reads_them(fiftyone, dataset, both, embeddings):
    ours, _ = both
    samples = dataset.values("id")
    ours.remove_from_index(sample_ids=samples[30:])
    ours.add_to_index(embeddings[:1], [samples[39]])
    ours.add_to_index(embeddings[5:6], [samples[39]], overwrite=False)
    assert ours.total_index_size == 31
    with pytest.raises(ValueError, match="in the index already"):
        ours.add_to_index(embeddings[:1], [samples[0]], overwrite=False, allow_existing=False)
    with pytest.raises(ValueError, match="not in the index"):
        ours.remove_from_index(sample_ids=[samples[31]], allow_missing=False)
    vectors, ids, labels = ours.get_embeddings(sample_ids=samples[2:4])
    np.testing.assert_allclose(vectors, embeddings[2:4], atol=0.01)
    assert ids.tolist() == samples[2:4]
    assert labels is None
    dataset.persistent = True
    script = (
        f"import fiftyone as fo; dataset = fo.load_dataset({dataset.name!r}); "
        "results = dataset.load_brain_results('ours'); "
        f"print(results.total_index_size, *results.sort_by_similarity({samples[0]!r}, k=2).values('number'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-3:] in (["31", "0", "39"], ["31", "39", "0"])


def test_patches_are_searched_by_label(fiftyone, dataset, embeddings):
    for sample, at in zip(dataset.limit(20), range(0, 40, 2), strict=True):
        boxes = [fiftyone.Detection(label=str(at + n), bounding_box=[0, 0, 0.5, 0.5]) for n in range(2)]
        sample["objects"] = fiftyone.Detections(detections=boxes)
        sample.save()
    of_patches = {s.id: embeddings[2 * n : 2 * n + 2] for n, s in enumerate(dataset.limit(20))}
    results = fiftyone.brain.compute_similarity(
        dataset.limit(20), patches_field="objects", embeddings=of_patches, backend="logt", brain_key="patches", bits=8
    )
    assert results.total_index_size == 40
    patches = dataset.limit(20).to_patches("objects")
    query = patches.match(fiftyone.ViewField("objects.label") == "4").first().id
    found = patches.sort_by_similarity(query, k=2, brain_key="patches")
    assert [sample.objects.label for sample in found] == ["4", "34"]
    results.find_duplicates(thresh=0.05)
    assert len(results.duplicate_ids) == 10
    first = dataset.first()
    results.remove_from_index(label_ids=[first.objects.detections[0].id])
    assert results.total_index_size == 39
    assert len(results.get_embeddings(sample_ids=[first.id])[0]) == 1


def test_cleanup_deletes_the_folder_and_indexes_have_folders_of_their_own(fiftyone, dataset, embeddings):
    compute = fiftyone.brain.compute_similarity
    results = [compute(dataset, embeddings=embeddings, backend="logt", brain_key=f"n{n}") for n in range(2)]
    folders = [fiftyone.indexes / result.config.index_name for result in results]
    assert folders[0] != folders[1]
    results[0].cleanup()
    assert [folder.exists() for folder in folders] == [False, True]


def test_wrong_input_is_refused(fiftyone, dataset, both):
    compute = fiftyone.brain.compute_similarity
    with pytest.raises(ValueError, match="metric must be one of"):
        compute(dataset, embeddings=np.ones((40, 4)), backend="logt", metric="manhattan")
    with pytest.raises(ValueError, match="are not in the index"):
        both[0].sort_by_similarity("0" * 24)
    with pytest.raises(ValueError, match="unsupported aggregation"):
        both[0].sort_by_similarity(dataset.values("id")[:2], aggregation="post-min")
    with pytest.raises(ValueError, match="pass sample_ids"):
        both[0].remove_from_index(label_ids=["0" * 24])

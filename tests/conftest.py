import os
import re
import shutil
import sys
from collections import Counter

# Each core has a worker of xdist: threads that wait in a loop for the next call of OpenMP or BLAS only slow it down.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
import reference

from logt import _kernels
from logt.lists import calibration

os.environ["LOGT_MODEL"] = "lite"  # the small model, where the model does not matter; processes inherit it
# Threads of Ray that report usage log tracebacks at any time, which Python 3.11 formats with `ast`. If another thread
# parses meanwhile, as Hypothesis does, that one fails with a SystemError.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

# With --dist loadfile, a worker takes one file after the other: one that takes long must not be the last.
SLOW_FILES = [
    "distributed_ray", "photo_regions", "calibration", "linked_changes", "benchmarks", "distributed_build",
    "overview", "web_browse", "margins", "docs", "storage_url", "linked_shards", "gpu", "web", "large_view",
    "gpu_doors", "images_cli", "server_images", "server_uploads", "examples", "library", "reproduce", "fuzz",
    "server_limits",
]  # fmt: skip

# What is measured by a build, or built by another process, too, matters in these.
MEASURED = [
    "calibration", "margins", "query_kinds", "linked_changes", "linked_shards", "shards", "distributed_build",
    "distributed_ray", "gpu_building", "storage_url",
]  # fmt: skip


def pytest_collection_modifyitems(items):
    """Start with the slow files; the order within a file stays."""
    order = {f"test_{name}": place for place, name in enumerate(SLOW_FILES)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


def pytest_terminal_summary(terminalreporter):
    """List what to install or set to run the tests that were skipped."""
    texts = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    reasons = [re.sub(r"could not import '(\w+).*", r"needs \1: pip install \1", text) for text in texts]
    for reason, count in Counter(reason.removeprefix("Skipped: ") for reason in reasons).most_common():
        terminalreporter.write_line(f"{count:4} skipped: {reason}")


@pytest.fixture(scope="module", autouse=True)
def few_calibration_queries(request):
    """Builds measure the recall with fewer queries, which takes most of their time, unless a file is about that."""
    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__.removeprefix("test_") not in MEASURED:
            patch.setattr(calibration, "_QUERIES", 24)
        yield


@pytest.fixture(scope="session", autouse=True)
def own_config(tmp_path_factory):
    """Models that tests pass or download are not among those of the user; processes inherit it."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        os.environ[name] = str(tmp_path_factory.mktemp("own"))
    os.environ.pop("LOGT_MODELS", None)


@pytest.fixture(params=_kernels.instruction_sets())
def isa(request):
    """Each instruction set that this processor has, the oldest included."""
    before = _kernels.instruction_set()
    _kernels.use_instruction_set(request.param)
    yield request.param
    _kernels.use_instruction_set(before)


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
BROWSER_FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="session")
def browser():
    """A real Chromium; without it, the tests that need it are skipped."""
    if BROWSER is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=BROWSER, args=BROWSER_FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def new_page(browser, request):
    """A page with the options that a test parametrizes; fails if the browser reports an error."""
    options = {"viewport": {"width": 1280, "height": 800}, **getattr(request, "param", {})}
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(30_000)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    yield page
    context.close()
    # A status of 4xx and a stopped server are errors that the page shows to the user.
    expected = re.compile("responded with a status of 4|ERR_CONNECTION_REFUSED")
    assert not [text for text in errors if not expected.search(text)]


@pytest.fixture(scope="session")
def photo_album(tmp_path_factory):
    """(folder, index, ids) of 24 photos of 8 scenes and of photos with odd names; no test changes them."""
    photos = pytest.importorskip("synthetic_photos")
    root = tmp_path_factory.mktemp("album")
    ids = photos.write_photos(root / "photos", root / "index", also=photos.ODD_NAMES)
    return root / "photos", root / "index", ids


@pytest.fixture(scope="session")
def photo_client(photo_album):
    """A client of a server with these photos; no test changes it."""
    server = pytest.importorskip("server_testing")
    with server.open_client(server.open_album(photo_album)) as client:
        yield client


@pytest.fixture(scope="session")
def web_album(tmp_path_factory):
    """(URL, collection) of 150 photos of 50 scenes, one a day from 2020-01-01, with a graph; no test changes them.

    The newest photo has a name that is HTML.
    """
    server, photos = pytest.importorskip("server_testing"), pytest.importorskip("synthetic_photos")
    root = tmp_path_factory.mktemp("web")
    names = "scene {number:03}/photo {seed}.jpg"
    photos.write_photos(root / "photos", root / "index", 50, 3, names, also=["zoo/" + photos.ODD_NAMES[0]], link=5)
    collection = server.open_album((root / "photos", root / "index"))
    with server.run_server(server.create_app(collection)) as url:
        yield url, collection


@pytest.fixture
def page(new_page, web_album):
    """The start page of these photos, when the script has run."""
    new_page.goto(web_album[0])
    new_page.wait_for_selector("#virtual.active .card")
    return new_page


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def vectors():
    """make(N, d, seed=0): unit vectors with a falling spectrum."""

    def make(N, d, seed=0):
        V = np.random.default_rng(seed).standard_normal((N, d), np.float32) * (np.arange(d) + 4.0) ** -0.3
        V = V.astype(np.float32)
        return V / np.linalg.norm(V, axis=1, keepdims=True)

    return make


@pytest.fixture(scope="session")
def network(tmp_path_factory):
    """make(name, ...) -> path of a small ONNX network that returns a feature map, or a vector."""
    onnx = pytest.importorskip("onnx")

    def make(name, *, layout="NCHW", size=("H", "W"), vector=False, channels=16, about=None, seed=0):
        helper, floats = onnx.helper, onnx.TensorProto.FLOAT
        weights = np.random.default_rng(seed).standard_normal((channels, 3, 8, 8)).astype(np.float32) / 8
        shape = ["N", 3, *size] if layout == "NCHW" else ["N", *size, 3]
        nodes, x = [], "images"
        if layout == "NHWC":
            nodes.append(helper.make_node("Transpose", [x], ["turned"], perm=[0, 3, 1, 2]))
            x = "turned"
        nodes.append(helper.make_node("Conv", [x, "weights"], ["map"], strides=[8, 8]))
        nodes.append(helper.make_node("Relu", ["map"], ["positive"]))
        last, rank = "positive", ["N", channels, "h", "w"]
        if vector:
            nodes.append(helper.make_node("ReduceMean", [last], ["mean"], axes=[2, 3], keepdims=0))
            last, rank = "mean", ["N", channels]
        elif layout == "NHWC":
            nodes.append(helper.make_node("Transpose", [last], ["back"], perm=[0, 2, 3, 1]))
            last, rank = "back", ["N", "h", "w", channels]
        graph = helper.make_graph(
            nodes,
            name,
            [helper.make_tensor_value_info("images", floats, shape)],
            [helper.make_tensor_value_info(last, floats, rank)],
            [onnx.numpy_helper.from_array(weights, "weights")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        if about is not None:
            model.metadata_props.append(onnx.StringStringEntryProto(key="logt", value=about))
        path = tmp_path_factory.mktemp("networks") / f"{name}.onnx"
        onnx.save(model, path)
        return path

    return make


@pytest.fixture(scope="session")
def small(network):
    """A fast network for small images."""
    return network("small", about='{"side": 64, "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}')


@pytest.fixture(scope="session")
def encoders(tmp_path_factory):
    """The folder of the image encoder and the text encoder that examples/text_search.py trains."""
    from text_encoders import example

    folder = tmp_path_factory.mktemp("encoders") / "words"
    folder.mkdir()
    example.write_encoders(folder)
    return folder


@pytest.fixture(scope="session")
def indexed_photos(tmp_path_factory, small):
    """A folder of five drawn photos with its index; `album` is a copy to change."""
    from drawn_photos import counts, draw_folder

    from logt.photos import update

    folder = draw_folder(tmp_path_factory.mktemp("indexed") / "photos")
    assert counts(update(folder, model=small, progress=True)) == (5, 0, 0, 0, 0)
    return folder


@pytest.fixture
def album(indexed_photos, tmp_path):
    return shutil.copytree(indexed_photos, tmp_path / "photos")


@pytest.fixture
def described(monkeypatch):
    """The names of the files that are described from now on."""
    from logt.photos import extraction

    names, real = [], extraction.read_photo
    monkeypatch.setattr(extraction, "read_photo", lambda path, side: names.append(path.name) or real(path, side))
    return names


@pytest.fixture
def saved(whole, tmp_path):
    """A copy, to change, of the folder that a test file has saved once."""
    return shutil.copytree(whole, tmp_path / "index")


@pytest.fixture(scope="module")
def segment(index):
    """The only segment of the index of a test file."""
    (segment,) = index._snapshot.segments
    return segment


@pytest.fixture(scope="module")
def decoded(segment):
    return reference.list_vectors(segment)


@pytest.fixture
def run_logt(monkeypatch, capsys):
    """run(*words) -> what the command `logt` prints; with ok=False, errors too, on one line."""
    from logt.cli.main import main

    def run(*words, ok=True):
        monkeypatch.setattr(sys, "argv", ["logt", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert (ended.value.code in (None, 0)) == ok, printed
        return printed.out if ok else " ".join((printed.out + printed.err).split())

    return run


@pytest.fixture(scope="session")
def s3_server():
    """The address of a server that speaks the protocol of S3."""
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()
    server.stop()


@pytest.fixture
def s3_address(s3_server):
    """The address that clients use; a test file may put something before the server."""
    return s3_server


@pytest.fixture
def bucket(s3_address, tmp_path, monkeypatch):
    """The URL of a new bucket; the cache is empty."""
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*s3_address))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("LOGT_CACHE", str(tmp_path / "cache"))
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem()
    name = f"bucket-{tmp_path.name.replace('_', '-').lower()}"[:60]
    files.mkdir(name)
    return f"s3://{name}"

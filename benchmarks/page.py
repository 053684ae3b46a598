"""The web page with many photos: time to start, to browse, to search, to scroll; memory. `make page-bench`.

The photos are small generated JPEG files, and the network is a small one with random weights, so that indexing takes
minutes. Everything else is as a user would run it. With Chromium, the whole list is scrolled through.
"""

import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL import Image
from urllib3.filepost import encode_multipart_formdata

from benchmarks.data import Note, Table, argument_parser, seconds, write_rows
from benchmarks.memory import memory_of
from benchmarks.serve import run_server

PER_FOLDER = 500
REPEATS = 9


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argument_parser(__doc__, "page.csv")
    parser.add_argument("--photos", type=int, default=100_000, help="number of photos")
    parser.add_argument("--folder", help="folder to keep the photos and their index in; default a temporary one")
    parser.add_argument("--steps", type=int, default=200, help="in how many steps the list is scrolled through")
    args = parser.parse_args(arguments)
    table = Table()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.folder or temporary)
        build(folder, args.photos, table.note)
        measure(folder / "photos", args.photos, args.steps, table.note)
    write_rows(table.rows, args.out, "page.csv")


def build(folder: Path, count: int, note: Note) -> None:
    """Write the photos and their index, unless they are there."""
    photos, network = folder / "photos", folder / "small.onnx"
    if (photos / ".logt" / "photos.json").exists():
        return
    note("write photos", seconds(lambda: write_photos(photos, count)), "s")
    write_network(network)
    command = [sys.executable, "-m", "logt", "images", "index", str(photos), "--model", str(network)]
    note("index photos", seconds(lambda: subprocess.run(command, check=True)), "s")


def photo_name(number: int) -> str:
    return f"{2010 + number // PER_FOLDER // 20:04}/folder {number // PER_FOLDER:04}/IMG_{number:06}.jpg"


def write_photos(folder: Path, count: int) -> None:
    """Write photos of random colors, several a day from 2010 on, to folders of 500."""
    rng = np.random.default_rng(0)
    exif = Image.Exif()
    for number in range(count):
        day = np.datetime64("2010-01-01") + number // 20
        exif.get_ifd(0x8769)[0x9003] = f"{str(day).replace('-', ':')} {number % 24:02}:00:00"
        path = folder / photo_name(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        colors = Image.fromarray(rng.integers(0, 256, (3, 4, 3), np.uint8))
        colors.resize((64, 48), Image.Resampling.BICUBIC).save(path, quality=80, exif=exif)


def write_network(path: Path) -> None:
    """Write a network from 64 x 64 pixels to 64 values, with random weights."""
    import onnx

    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    weights = np.random.default_rng(0).standard_normal((64, 3 * 16)).astype(np.float32)
    nodes = [
        helper.make_node("AveragePool", ["image"], ["cells"], kernel_shape=[16, 16], strides=[16, 16]),
        helper.make_node("Flatten", ["cells"], ["flat"]),
        helper.make_node("Gemm", ["flat", "weights"], ["vector"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", floats, ["N", 3, 64, 64])],
        [helper.make_tensor_value_info("vector", floats, ["N", 64])],
        [onnx.numpy_helper.from_array(weights, "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def measure(photos: Path, count: int, steps: int, note: Note) -> None:
    """Measure the times of a server, and its memory."""
    start = time.perf_counter()
    with run_server(photos) as (url, pid):
        get(f"{url}api/v1/health")
        note("start, to the first response", time.perf_counter() - start, "s")
        note("first page of all photos", 1000 * seconds(lambda: get(url)), "ms")
        some = [quote(photo_name(n * 997 % count)) for n in range(REPEATS)]
        photo = (photos / photo_name(1)).read_bytes()
        body, content_type = encode_multipart_formdata({"photo": ("photo", photo)})
        upload = urllib.request.Request(url, body, {"Content-Type": content_type})
        requests: dict[str, Callable[[int], object]] = {
            "first page, again": lambda i: get(url),
            "a page in the middle": lambda i: get(f"{url}cards?page={count // 240 + i}"),
            "by folder": lambda i: get(f"{url}?order=folder"),
            "filter by name": lambda i: get(f"{url}?name={1000 + i}"),
            "search": lambda i: get(f"{url}?id={some[i]}"),
            "search with a filter": lambda i: get(f"{url}?id={some[i]}&folder={2010 + i % 3}"),
            "search with a photo": lambda i: get(upload),
            "preview": lambda i: get(f"{url}api/v1/photo?id={some[i]}"),
        }
        for what, request in requests.items():
            times = [1000 * seconds(lambda i=i, request=request: request(i)) for i in range(REPEATS)]
            note(f"{what}, median", float(np.median(times)), "ms")
            note(f"{what}, slowest", max(times), "ms")
        note("memory of the server", memory_of(pid, "VmRSS") / 2**20, "MB")
        draw_map(url, note)
        in_browser(lambda page: (scroll(page, url, steps, note), move_map(page, url, steps, note)))


def get(request: str | urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request) as response:
        return response.read()


def draw_map(url: str, note: Note) -> None:
    """Wait for the groups and the map, which are computed in the background."""
    for what, mark in (("groups", b"of similar photos"), ("map", b'id="map"')):
        start = time.perf_counter()
        while mark not in (answer := get(url + what)):
            if b'role="alert"' in answer:
                print(f"{what} cannot be computed; pip install 'logt-search[map]'")
                return
            time.sleep(0.2)
        note(f"{what}, first time", time.perf_counter() - start, "s")
    note("data of the map", len(get(f"{url}map/data")) / 2**20, "MB")


def in_browser(measure: Callable[[Any], None]) -> None:
    """Call a function with a page of Chromium, if it is installed."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        print("Chromium is not installed; the page is not measured")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        measure(browser.new_page(viewport={"width": 1280, "height": 800}))
        browser.close()


def move_map(page: Any, url: str, steps: int, note: Note) -> None:
    """Move and zoom the map, from all photos to a few, and measure the times of frames."""
    script = """async (steps) => {
        const map = document.querySelector('#map'), times = [];
        const send = (type, init) => map.dispatchEvent(new PointerEvent(type, { pointerId: 1, ...init }));
        map.setPointerCapture = () => {};
        const frame = () => new Promise((done) => requestAnimationFrame(done));
        for (let i = 0; i < steps; i++) {
            const start = performance.now();
            const middle = { clientX: 640, clientY: 400 };
            map.dispatchEvent(new WheelEvent('wheel', { deltaY: i < steps / 2 ? -20 : 20, ...middle }));
            send('pointerdown', middle);
            send('pointermove', { clientX: 640 + 9 * Math.sin(i), clientY: 400 + 9 * Math.cos(i) });
            send('pointercancel', {});
            await frame();
            await frame();
            times.push((performance.now() - start) / 2);
        }
        return times;
    }"""
    page.goto(f"{url}map")
    if not page.locator("#map").count():
        return
    page.wait_for_function("() => document.querySelector('#map').width > 300")
    page.wait_for_timeout(2000)
    times = page.evaluate(script, steps)
    note("frame of the map, median", float(np.quantile(times, 0.5)), "ms")
    note("frame of the map, 95 %", float(np.quantile(times, 0.95)), "ms")


def scroll(page: Any, url: str, steps: int, note: Note) -> None:
    """Scroll through the whole list; measure the times of frames and the most cards in the document."""
    script = """async (steps) => {
        const times = [], counts = [];
        const height = document.documentElement.scrollHeight - innerHeight;
        for (let i = 1; i <= steps; i++) {
            const start = performance.now();
            window.scrollTo(0, height * i / steps);
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            times.push(performance.now() - start);
            counts.push(document.querySelectorAll('.card').length);
        }
        return [times, counts];
    }"""
    page.goto(url)
    page.wait_for_selector(".card")
    times, counts = page.evaluate(script, steps)
    p50, p95 = np.quantile(times, (0.5, 0.95))
    note(f"scroll by 1/{steps} of the list, two frames, median", float(p50), "ms")
    note(f"scroll by 1/{steps} of the list, two frames, 95 %", float(p95), "ms")
    note("cards in the document, most", max(counts), "")


if __name__ == "__main__":
    main()

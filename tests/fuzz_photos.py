"""Loaders that tests/fuzz.py fuzzes: models, indexes of photos, images, and the requests of the server."""

import atexit
import hashlib
import io
import json
import logging
import os
import platform
import sqlite3
import tempfile
from contextlib import ExitStack, closing, suppress
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
from fuzz_inputs import written

import logt
from logt.errors import CorruptIndexError, InvalidInputError

X = np.random.default_rng(0).standard_normal((12, 8)).astype(np.float32)


def all_of(*calls):
    """Call all functions, and raise the first typed error at the end."""
    errors = []
    for call in calls:
        try:
            call()
        except (InvalidInputError, CorruptIndexError) as error:
            errors.append(error)
    if errors:
        raise errors[0]


# ---------------------------------------------------------------------------------------------------- photos


def model_files(folder):
    """Write a small CLIP: an image encoder with external data, a text encoder, a tokenizer and settings."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from tokenizers import Tokenizer, models

    def save(name, nodes, kind, shape, array, **options):
        graph = helper.make_graph(
            nodes,
            name,
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])],
            [numpy_helper.from_array(array, "w")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(model, folder / f"{name}.onnx", **options)

    rng = np.random.default_rng(0)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], strides=[8, 8])]
    nodes.append(helper.make_node("ReduceMean", ["c"], ["y"], axes=[2, 3], keepdims=0))
    filters = rng.standard_normal((8, 3, 8, 8)).astype(np.float32)
    save("vision_model", nodes, TensorProto.FLOAT, ["N", 3, "H", "W"], filters)
    nodes = [helper.make_node("Gather", ["w", "x"], ["t"])]
    nodes.append(helper.make_node("ReduceMean", ["t"], ["y"], axes=[1], keepdims=0))
    save("text_model", nodes, TensorProto.INT64, ["N", "T"], filters[:4, 0, 0])
    Tokenizer(models.WordLevel({"[UNK]": 0, "red": 1}, unk_token="[UNK]")).save(str(folder / "tokenizer.json"))
    configs = {
        "tokenizer_config": {"pad_token": "red", "model_max_length": 7},
        "preprocessor_config": {"size": {"shortest_edge": 64}, "crop_size": 64, "image_mean": [0.5, 0.5, 0.5]},
        "logt": {"text_length": 5, "pooling": "cls", "scales": [1.0], "whiten": True, "side": 64, "multiple": 8},
    }
    for name, values in configs.items():
        (folder / f"{name}.json").write_text(json.dumps(values))


def model_seeds():
    full = written(model_files)
    timm = {"pretrained_cfg": {"input_size": [3, 64, 64], "mean": [0.5, 0.5, 0.5], "crop_pct": 0.9}}
    clip = {"preprocess_cfg": {"size": 64, "mean": [0.5, 0.5, 0.5], "std": [1, 1, 1], "resize_mode": "squash"}}
    yield full
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in full.items()}
    yield full | {"logt-checksums.json": json.dumps(sums).encode()}
    yield full | {"logt.json": b'{"text_model": "text_model.onnx", "tokenizer": "tokenizer.json"}'}
    for name, values in (("config.json", timm), ("open_clip_config.json", clip)):
        yield {"model.onnx": full["vision_model.onnx"], name: json.dumps(values).encode()}


def load_model(folder):
    from PIL import Image

    from logt.descriptors import Model, TextEncoder

    model = Model.load(folder)
    if model.side <= 512 and len(model.output.scales) < 20:  # larger ones are slow, but valid
        model(Image.new("RGB", (40, 30), "red"))
    if model.has_text:
        TextEncoder.load(model)("red dog")


@cache
def photo_seeds():
    from drawn_photos import draw_folder

    from logt.photos import update

    def index(folder):
        model_files(folder)
        draw_folder(folder / "photos")
        with patch.dict(os.environ, XDG_CONFIG_HOME=str(folder)):  # where models that were passed are recorded
            update(folder / "photos", folder / "index", model=folder)
        values = {"what": "indexing", "done": 1, "total": 2, "host": platform.node(), "pid": os.getpid()}
        (folder / "index" / "progress.json").write_text(json.dumps(values))

    return [{name: data for name, data in written(index).items() if name.startswith("index/")}]


def read_photos(folder):
    """Read an index of photos, its manifest with a right checksum."""
    from logt.descriptors import Whitening
    from logt.photos.index_folder import IndexFolder
    from logt.photos.manifest import MANIFEST_FILE, PhotoManifest, _checksum
    from logt.photos.progress_file import read_progress

    folder = folder / "index"
    try:
        values = json.loads((folder / MANIFEST_FILE).read_bytes())
        values.pop("checksum", None)
        (folder / MANIFEST_FILE).write_text(json.dumps({**values, "checksum": _checksum(values)}))
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass

    def read_manifest():
        manifest = PhotoManifest.read(folder)
        manifest.photo_folders(folder)
        manifest.load_model()

    (whitening,) = folder.glob("whitening-*")
    read_progress(folder)
    all_of(lambda: Whitening.from_bytes(whitening.read_bytes())(X[:, :8]), read_manifest, IndexFolder(folder).check)


def catalog_seeds():
    return [{name: data for name, data in files.items() if "catalog" in name} for files in photo_seeds()]


def read_catalog(folder):
    from logt.descriptors.image_io import ImageDetails
    from logt.photos.catalog import Catalog, FileStamp
    from logt.photos.duplicates import keep_apart, read_apart
    from logt.photos.manifest import PhotoManifest
    from logt.server.library import Library, PhotoFilter

    folder = folder / "index"
    with closing(Catalog(folder)) as catalog:
        catalog.check()
        library = Library(catalog.photos())
        library.page(library.select(PhotoFilter("a", "", "2020", "2030-01"), "date"), 0, 9)
        library.page(library.select(PhotoFilter(), "folder"), 0, 9)
        catalog.stamps(), catalog.stamps("others"), catalog.count(), catalog.indexed_names("x")
        catalog.failed(), catalog.contents(), read_apart(folder)
        keep_apart(folder, ["a.png", "z.jpg"])
        catalog.take_back({"b.png": ("old.png", FileStamp(1, 2), b"0" * 16)}, "x")
        if catalog.relearning is not None:
            PhotoManifest.from_json(catalog.relearning, folder)
        catalog.sample_descriptors(3, np.random.default_rng(0))
        assert sum(len(names) for names, _ in catalog.unindexed("x", 2)) <= catalog.count()
        catalog.replace_others({"a.mov": FileStamp(1, 2)})
        catalog.record([("z.jpg", FileStamp(1, 2), X[0], ImageDetails(1, 1, ""))])
        catalog.remove(["a.png"])
        catalog.clear("{}")
        catalog.mark_indexed("x", drop_descriptors=True)
        catalog.forget_removed()
        catalog.forget_vectors()


def row_seeds():
    """Rows of a catalog as JSON; bytes are lists of numbers."""
    photo = [1000, 10**18, 40, 30, "2020-01-02T03:04:05", list(X[0].astype(np.float16).tobytes())]
    rows = {
        "photos": [["a.png", *photo, None], ["trip/b.png", *photo, "x"], ["trip/c.png", *photo, None]],
        "others": [["a.mov", 1, 2]],
        "notes": [["relearn", "{}"], ["apart", '[["a.png", "trip/b.png"]]'], ["failed", '{"x.jpg": [1, 2]}']],
        "removed": [["old.png", *photo, "x", 10**9]],
        "contents": [["a.png", [0] * 16], ["old.png", [48] * 16]],
    }
    yield {"rows.json": json.dumps(rows).encode()}


def read_rows_of_catalog(folder):
    """Write a catalog with these rows, as far as SQLite takes them, and read it."""
    from logt.photos.catalog import CATALOG_FILE, Catalog

    (folder / "index").mkdir()
    Catalog(folder / "index").close()
    with closing(sqlite3.connect(folder / "index" / CATALOG_FILE)) as db:
        with suppress(ValueError, AttributeError, RecursionError, TypeError):
            for table, rows in json.loads((folder / "rows.json").read_bytes()).items():
                for row in rows:
                    with suppress(sqlite3.Error, ValueError, OverflowError, TypeError):
                        values = [bytes(value) if isinstance(value, list) else value for value in row]
                        db.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(values))})", values)
        db.commit()
    read_catalog(folder)


def image_seeds():
    from PIL import Image, ImageCms

    rgb = Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 30, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112], exif[0x0132] = 6, "2020:01:02 03:04:05"
    exif.get_ifd(0x8769)[0x9003] = "2020:01:02 03:04:05"
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    about = {"exif": exif.tobytes(), "icc_profile": icc}
    gray = Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30) * 100)
    wanted = [
        *(
            ("JPEG", rgb, {**about, "quality": 80}),
            ("JPEG", rgb, {"progressive": True}),
            ("JPEG", rgb.convert("CMYK"), {}),
        ),
        *(
            ("PNG", rgb, about),
            ("PNG", rgb.convert("P"), {"transparency": 3}),
            ("PNG", gray, {}),
            ("PNG", rgb.convert("1"), {}),
        ),
        *(
            ("WEBP", rgb, about),
            ("WEBP", rgb.convert("RGBA"), {"lossless": True}),
            ("BMP", rgb, {}),
            ("ICO", rgb, {}),
        ),
        ("GIF", rgb.convert("P"), {"save_all": True, "append_images": [rgb.rotate(90).convert("P")]}),
        *(("TIFF", rgb, {"icc_profile": icc, "compression": name}) for name in ("tiff_lzw", "jpeg")),
        ("TIFF", rgb, about),
        *(("TIFF", image, {}) for image in (gray, rgb.convert("F"), rgb.convert("CMYK"), rgb.convert("LAB"))),
        *(("PPM", rgb, {}), ("TGA", rgb.convert("RGBA"), {"compression": "tga_rle"}), ("PCX", rgb, {})),
        *(("JPEG2000", rgb, {}), ("AVIF", rgb, about), ("MPO", rgb, {"save_all": True, "append_images": [rgb]})),
    ]
    Image.init()
    for kind, image, options in wanted:
        if kind not in Image.SAVE:  # of another build of Pillow
            continue
        out = io.BytesIO()
        image.save(out, kind, **options)
        yield {"image": out.getvalue()}


def read_images(folder):
    """Read an image with limits that keep a valid one fast."""
    from logt.descriptors import read_image
    from logt.descriptors.image_io import read_details

    data = (folder / "image").read_bytes()
    all_of(
        partial(read_details, data),
        partial(read_image, data, side=4, max_pixels=1 << 20),
        partial(read_image, io.BytesIO(data), max_pixels=1 << 20),
    )


# ---------------------------------------------------------------------------------------------------- server


def request_seeds():
    """Requests: a line "COLLECTION METHOD PATH TYPE" and a body."""
    from synthetic_photos import draw_scene, encode_jpeg

    clients()  # its start is not a part of the first request
    vector, box = [0.5] * 8, [0.1, 0.1, 0.9, 0.9]
    photo, form = "scene 00/photo 0.jpg", "multipart/form-data; boundary=x"
    bodies = {
        "vectors /search": {"vectors": [vector], "k": 3, "recall": 0.9, "like": None, "filter": {"wanted": ["n1"]}},
        "vectors /search/ids": {"ids": ["n1", "n2"], "k": 3},
        "vectors /vectors": {"vectors": [vector], "ids": ["n1"], "replace": True},
        "vectors /vectors/remove": {"ids": ["n5"]},
        "vectors /compact": {},
        "photos /update": {},
        "photos /photos/trash": {"ids": [photo]},
        "photos /photos/restore": {"batch": "2020-01-02 03.04.05 0a1b2c"},
        "photos /duplicates/dismiss": {"ids": [photo]},
        "photos /search/region": {"id": photo, "box": box, "k": 2},
        "photos /search/text": {"text": "a red dog", "k": 2},
    }
    for path, body in bodies.items():
        where, path = path.split()
        yield {"line": f"{where} POST /api/v1{path} application/json".encode(), "body": json.dumps(body).encode()}
    parts = [("photo", encode_jpeg(draw_scene(1, size=(40, 30)))), ("box", b"0.1,0.1,0.9,0.9"), ("k", b"3")]
    head = '--x\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n'
    body = b"".join(
        head.format(name, '; filename="a.jpg"' if name == "photo" else "").encode() + data + b"\r\n"
        for name, data in parts
    )
    for path in ("/api/v1/search/photo", "/api/v1/photos", "/search"):
        yield {"line": f"photos POST {path} {form}".encode(), "body": body + b"--x--\r\n"}
    ids = f"ids={json.dumps([photo])}".replace(" ", "+").encode()
    yield {"line": b"photos POST /api/v1/photos/zip application/x-www-form-urlencoded", "body": ids}
    for path in (
        "/api/v1/photos?from=2020-01&to=2021&name=a&order=folder&limit=3",
        f"/api/v1/photo?id={photo}&size=large",
        "/?page=2&name=a",
        f"/?id={photo}&box=0.1,0.1,0.5,0.5",
        "/api/v1/duplicates?threshold=0.5",
        "/api/v1/folder",
        f"/api/v1/photo/about?id={photo}",
        f"/groups?of={photo}&unusual=true",
        f"/?also={photo}&unlike={photo}&text=a&deep=1",
        "/duplicates?threshold=0.5",
        "/map/data",
    ):
        yield {"line": f"photos GET {path.replace(' ', '%20')} x".encode(), "body": b""}


@cache
def clients():
    """Clients of a server of vectors and of one of photos, for the rest of this process; and its errors."""
    from server_testing import open_album, open_client
    from synthetic_photos import write_photos

    from logt.server.collection import VectorCollection
    from logt.server.settings import Limits

    stack = ExitStack()
    root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    index = logt.Index(8)
    index.add(X, ids=[f"n{i}" for i in range(12)])
    index.save(root / "vectors")
    write_photos(root / "photos", root / "index", 3, 2, link=2)
    errors = []
    handler = logging.Handler()
    handler.emit = lambda record: errors.append(record.exc_info[1]) if record.exc_info else None
    logging.getLogger("logt.server").addHandler(handler)
    collections = {
        "vectors": VectorCollection(root / "vectors"),
        "photos": open_album((root / "photos", root / "index")),
    }
    atexit.register(clients.cache_clear)
    atexit.register(stack.close)
    settings = {"limits": Limits(seconds=5), "workers": 1}
    opened = {name: stack.enter_context(open_client(each, **settings)) for name, each in collections.items()}
    return opened, errors


def send_request(folder):
    line, body = (folder / "line").read_bytes(), (folder / "body").read_bytes()
    where, method, path, kind = (line.split(b" ", 3) + [b""] * 4)[:4]
    opened, errors = clients()
    client = opened["vectors" if where == b"vectors" else "photos"]
    try:
        headers = {b"content-type": kind}
        request = client.build_request(method.decode("latin1"), path.decode("latin1"), content=body, headers=headers)
    except Exception:  # httpx cannot send it
        return
    errors.clear()
    response = client.send(request, follow_redirects=False)
    if errors:
        raise errors[0]
    assert response.status_code != 500, response.text
    if response.status_code >= 400:
        raise InvalidInputError(response.text)

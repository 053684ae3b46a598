"""Downloaded models: a name of the catalog -> a folder with its files, settings and checksums."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

from logt._internal.extras import needs_extra
from logt._internal.threads import Progress
from logt.descriptors.model_catalog import CATALOG, TEXT, TOKENIZER, CatalogModel, RemoteFile
from logt.descriptors.model_checksums import CHECKSUMS, read_checksums
from logt.descriptors.model_files import SETTINGS, models_folder
from logt.errors import InvalidInputError
from logt.storage.files import flush_folder, make_folder, replace_file
from logt.storage.lock import Lock


def download(name: str, progress: Progress | None = None) -> Path:
    """Return the folder of a model of the catalog; download what is missing or damaged.

    The files come from the Hugging Face Hub, or from the server that HF_ENDPOINT names. A download that was
    interrupted is resumed. Nothing is visible under the name of the model before all files are there and checked.
    progress: called with the downloaded megabytes and their total.
    """
    model = find_in_catalog(name)
    folder, parts = models_folder() / name, models_folder() / f".{name}.download"
    make_folder(parts)
    with Lock(parts):
        if folder.exists() and not is_download(folder):
            raise InvalidInputError(f"{folder} was not downloaded; move it, or use it with --model {folder}")
        if not folder.exists() or damaged_files(folder):
            _fetch_all(model, parts, progress)
            _publish(model, parts, folder)
        shutil.rmtree(parts)
    return folder


def remove(name: str) -> int:
    """Remove a downloaded model, and what an interrupted download of it left; return the number of bytes."""
    find_in_catalog(name)
    folder, parts = models_folder() / name, models_folder() / f".{name}.download"
    there = [path for path in (folder, parts) if path.exists()]
    if not there or (folder.exists() and not is_download(folder)):
        raise InvalidInputError(f"the model {name!r} was not downloaded to {models_folder()}")
    size = sum(path.stat().st_size for path in there for path in path.rglob("*") if path.is_file())
    make_folder(parts)
    with Lock(parts):
        _take_away(folder, parts)
        shutil.rmtree(parts)
    return size


def find_in_catalog(name: str) -> CatalogModel:
    """Return the model of the catalog with this name."""
    if name not in CATALOG:
        raise InvalidInputError(f"there is no model {name!r} to download; choose from {', '.join(CATALOG)}")
    return CATALOG[name]


def is_download(folder: Path) -> bool:
    """Return whether a folder is a model that was downloaded."""
    return (folder / CHECKSUMS).is_file()


def damaged_files(folder: Path) -> list[str]:
    """Return the files of a downloaded model that are missing or differ from what was downloaded."""
    try:
        checksums = read_checksums(folder)
    except InvalidInputError:
        return [CHECKSUMS]
    return [name for name, sha256 in checksums.items() if _sha256(folder / name) != sha256]


def _fetch_all(model: CatalogModel, parts: Path, progress: Progress | None) -> None:
    before = 0
    for name, file in model.files.items():
        part = parts / name

        def report(done: int, before: int = before) -> None:
            if progress is not None:
                progress("MB downloaded", (before + done) // 10**6, model.bytes // 10**6)

        _fetch(model, file, part, report)
        found = part.stat().st_size, _sha256(part)
        if found != (file.bytes, file.sha256):
            part.unlink()
            raise InvalidInputError(
                f"{file.path} of {model.repository} is not the file that this version of logt knows: expected "
                f"{file.bytes:,} bytes with the SHA-256 {file.sha256}, got {found[0]:,} bytes with the SHA-256 "
                f"{found[1]}; it was removed"
            )
        report(file.bytes)
        before += file.bytes


def _fetch(model: CatalogModel, file: RemoteFile, part: Path, report: Callable[[int], None]) -> None:
    """Download a file, or the rest of it. `hf_hub_download` starts again, so its parts are called here."""
    with needs_extra("text", "downloads need huggingface_hub"):
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils.tqdm import tqdm

    class Reported(tqdm):
        """The bar of a download, which reports to `report` instead of the terminal."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "file": StringIO()})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            super().update(n)
            report(int(self.n))

    endpoint = os.environ.get("HF_ENDPOINT") or None
    url = hf_hub_url(model.repository, file.path, revision=model.revision, endpoint=endpoint)
    headers = {"Accept-Encoding": "identity"}  # and no token: the repositories are public
    with part.open("ab") as stream:
        if stream.tell() >= file.bytes:
            return
        try:
            http_get(url, stream, resume_size=stream.tell(), headers=headers, tqdm_class=Reported)
        except Exception as error:  # those of its HTTP library, which depends on the version
            raise ConnectionError(
                f"{file.path} of {model.repository} could not be downloaded: {error}; what has arrived is kept, "
                f"and logt models get {model.name} resumes"
            ) from error


def _publish(model: CatalogModel, parts: Path, folder: Path) -> None:
    """Make the folder of a model from its downloaded files; a damaged folder is replaced."""
    ready = parts / "ready"
    shutil.rmtree(ready, ignore_errors=True)
    ready.mkdir()
    for name in model.files:
        os.replace(parts / name, ready / name)
    about = {"name": model.name, "source": f"{model.repository}@{model.revision}", "license": model.license}
    encoders = {"text_model": TEXT, "tokenizer": TOKENIZER}
    replace_file(ready / SETTINGS, json.dumps({**about, **encoders, **model.settings}, indent=1).encode())
    sums = {name: _sha256(ready / name) for name in (*model.files, SETTINGS)}
    replace_file(ready / CHECKSUMS, json.dumps(sums, indent=1).encode())
    _take_away(folder, parts)
    os.replace(ready, folder)
    flush_folder(folder.parent)


def _take_away(folder: Path, parts: Path) -> None:
    """Remove the folder of a model as a whole: a part of it that a killed removal left would be no download."""
    old = parts / "old"
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.replace(folder, old)
        shutil.rmtree(old)


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None

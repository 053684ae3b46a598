"""The manifest of an index of photos: one small JSON file, replaced atomically, that refers to all other files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from logt.descriptors import Model
from logt.descriptors.model_files import BUILT_IN, find_model, name_of_included, read_settings
from logt.descriptors.onnx_files import fingerprint
from logt.descriptors.text import text_fingerprints
from logt.errors import CorruptIndexError, FormatVersionError, InvalidInputError
from logt.storage.files import checksum, read_bytes, replace_file

FORMAT = 3
"""The only format that is read."""

MANIFEST_FILE = "photos.json"
_MAX_BYTES = 1 << 20
_TEXT_FILES = ("text_model", "tokenizer")  # settings that name files of the text encoder


@dataclass(frozen=True)
class PhotoManifest:
    """The folder of the photos, the model of their descriptors, and the whitening of the vectors, if there are any.

    model, sha256, model_path: the name, the fingerprint and the file of the model; no path if it is included.
    text_sha256, tokenizer_sha256: the fingerprints of its text encoder and of the tokenizer, if it had them.
    settings: of the model, see `Model.settings`.
    more_folders: absolute paths of other folders of photos; the names of their photos are absolute paths.
    regions: whether each photo has a vector for each of its regions.
    The fields are the keys of the JSON file. `index_path` in the methods is the folder of the index.
    """

    folder: str
    model: str
    sha256: str
    model_path: str | None
    settings: Mapping[str, Any]
    whitening: str | None = None
    more_folders: Sequence[str] = ()
    regions: bool = False
    text_sha256: str | None = None
    tokenizer_sha256: str | None = None

    @classmethod
    def from_model(
        cls, photo_folder: Path, index_path: Path, model: Model, *, regions: bool = False
    ) -> PhotoManifest:
        """Create the manifest of a new index."""
        settings = _json_values(model.settings)
        _remember(model, settings)
        path = None if model.path in BUILT_IN.values() else str(model.path)
        folder = _stored_folder(photo_folder, index_path)
        text, tokenizer = text_fingerprints(model.text) or (None, None)
        values = folder, model.name, model.sha256, path, settings
        return cls(*values, regions=regions, text_sha256=text, tokenizer_sha256=tokenizer)

    @classmethod
    def read(cls, index_path: Path) -> PhotoManifest:
        """Read the manifest of an index."""
        try:
            text = read_bytes(index_path / MANIFEST_FILE, _MAX_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            reason = f"it contains no {MANIFEST_FILE}" if index_path.exists() else "this path does not exist"
            raise FileNotFoundError(
                f"{index_path} is not an index of photos: {reason}; create one with: logt images index FOLDER"
            ) from None
        return cls.from_json(text, index_path)

    @classmethod
    def from_json(cls, text: str | bytes, index_path: Path) -> PhotoManifest:
        """Parse the JSON text of a manifest."""
        try:
            values: dict[str, Any] = json.loads(text)
            version = values["format"]
            if version != FORMAT:
                raise FormatVersionError(
                    f"{index_path} has format {version}, this version of logt reads format {FORMAT}: "
                    "remove the index, and create it again with: logt images index FOLDER"
                )
            if values.pop("checksum") != _checksum(values):
                raise ValueError("its checksum does not match")
            del values["format"]
            manifest = cls(**values)
            manifest._check_values()
            return manifest
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptIndexError(f"{index_path / MANIFEST_FILE} is damaged: {error}") from error

    def _check_values(self) -> None:
        """Raise ValueError or TypeError for values that `from_model` does not produce."""
        fingerprints = (self.sha256, self.text_sha256 or "", self.tokenizer_sha256 or "")
        for text in (self.folder, self.model, self.model_path or "", *fingerprints, *self.more_folders):
            if "\0" in text:
                raise ValueError("a text contains a null character")
            text.encode()  # no surrogates: it may be a path
        if self.whitening is not None and not re.fullmatch("[0-9a-f]{16}", self.whitening):
            raise ValueError(f"{self.whitening!r} is not the checksum of a whitening")
        if not isinstance(self.more_folders, list | tuple) or not all(map(os.path.isabs, self.more_folders)):
            raise ValueError(f"more_folders must be absolute paths, got {self.more_folders!r}")
        if not isinstance(self.settings, dict) or not isinstance(self.regions, bool):
            raise TypeError("settings must be an object, and regions true or false")

    def to_json(self) -> str:
        """Return the JSON text of the manifest."""
        values = {"format": FORMAT, **asdict(self)}
        return json.dumps({**values, "checksum": _checksum(values)}, indent=1)

    def write(self, index_path: Path) -> None:
        """Replace the manifest of an index."""
        replace_file(index_path / MANIFEST_FILE, self.to_json().encode())

    def with_folder(self, photo_folder: Path, index_path: Path) -> PhotoManifest:
        """Return the same manifest for photos that were moved to another folder."""
        return replace(self, folder=_stored_folder(photo_folder, index_path))

    def photo_folder(self, index_path: Path) -> Path:
        """Return the folder of the photos."""
        return (index_path / self.folder).resolve()

    def photo_folders(self, index_path: Path) -> list[Path]:
        """Return all folders of photos; the first is the one that the index belongs to."""
        return [self.photo_folder(index_path), *map(Path, self.more_folders)]

    def load_model(self, model: str | Path | Model | None = None) -> Model:
        """Return the model that computed the descriptors; `model` is where it is now, if the file was moved.

        A model with other bytes or other settings is refused, and without `model` one that was never passed.
        """
        is_given = model is not None
        if not isinstance(model, Model):
            path = find_model(model or self.named_model)
            self._check_sha256(fingerprint(path), path)  # before its bytes are used, or take memory
            model = Model.load(path, settings=self._own_settings(path) if is_given else self.settings)
        self._check_sha256(model.sha256, model.path)
        for name, value in self._other_settings(model).items():
            raise InvalidInputError(
                f"the photos were indexed with {name} = {self.settings[name]}, not {value}; relearn to change it"
            )
        if is_given:
            _remember(model, self.settings)
        return model

    def is_of(self, model: Model) -> bool:
        """Return whether a model computes the descriptors of this index."""
        return model.sha256 == self.sha256 and not self._other_settings(model)

    def check_text(self, model: Model, sha256: tuple[str, str]) -> None:
        """Raise unless the text encoder of a model and its tokenizer are those that the photos were indexed with.

        sha256: the fingerprints of what was loaded.
        """
        indexed = ("text encoder", self.text_sha256), ("tokenizer", self.tokenizer_sha256)
        paths = model.text.model, model.text.tokenizer
        for (what, before), found, path in zip(indexed, sha256, paths, strict=True):
            if before is not None and before != found:
                raise InvalidInputError(
                    f"the photos were indexed with another {what} ({before[:12]}…) than {path}; put the original "
                    "files back, or relearn the index with these: logt images index FOLDER --relearn"
                )

    def _other_settings(self, model: Model) -> dict[str, Any]:
        given = _json_values(model.settings)
        return {name: given.get(name) for name, value in self.settings.items() if given.get(name) != value}

    def _check_sha256(self, sha256: str, path: str | Path) -> None:
        if sha256 != self.sha256:
            raise InvalidInputError(
                f"the photos were indexed with the model {name_of_included(self.model)} ({self.sha256[:12]}…), "
                f"but {path} is a different model; pass the original one, or relearn the index with this one"
            )

    @property
    def named_model(self) -> str | Path:
        """The model that the index names, if it is included, or the user has passed it before."""
        if self.model_path is None:
            included = name_of_included(self.model)
            if included in BUILT_IN:
                return BUILT_IN[included]
            raise InvalidInputError(
                f"the photos were indexed with the model {self.model}, which this version of logt does not include; "
                "pass its file, or relearn the index with another model"
            )
        if not _is_known(_model_key(self.model_path, self.sha256, self.settings)):
            raise InvalidInputError(
                f"the index names the model {self.model_path}, which you have not used on this computer yet; "
                f"a model is a program: if you trust it, pass it once, with --model {self.model_path}"
            )
        return self.model_path

    def _own_settings(self, path: Path) -> Mapping[str, Any]:
        """Return the settings for a model that is given: its own files name the text encoder, not the index."""
        if not any(name in self.settings for name in _TEXT_FILES):
            return self.settings
        _, own = read_settings(path)
        kept = {name: value for name, value in self.settings.items() if name not in _TEXT_FILES}
        return {**kept, **{name: own[name] for name in _TEXT_FILES if name in own}}


def _checksum(values: dict[str, Any]) -> str:
    return checksum(json.dumps(values, sort_keys=True).encode())


def _json_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as they are after writing and reading them."""
    return dict(json.loads(json.dumps(values)))


def _stored_folder(photo_folder: Path, index_path: Path) -> str:
    """Return the folder as it is stored: a relative path if the index is inside it, so that both can be moved."""
    if index_path.is_relative_to(photo_folder):
        return os.path.relpath(photo_folder, index_path)
    return str(photo_folder)


# ------------------------------------------------------------------------------- models that a user has passed

_of_this_process: set[str] = set()  # the file of them may not be writable


def _model_key(path: str | Path, sha256: str, settings: Mapping[str, Any]) -> str:
    """Return a line for a model: the SHA-256 and path of its file, and the text encoder that its settings name."""
    return json.dumps([sha256, str(path), settings.get("text_model"), settings.get("tokenizer")])


def _remember(model: Model, settings: Mapping[str, Any]) -> None:
    """Record that the user has passed a model, so that an index with these settings may name it."""
    key = _model_key(model.path, model.sha256, settings)
    if model.path in BUILT_IN.values() or _is_known(key):
        return
    _of_this_process.add(key)
    with suppress(OSError):
        file = _file_of_models()
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as stream:
            stream.write(f"{key}\n")


def _is_known(key: str) -> bool:
    if key in _of_this_process:
        return True
    try:
        return key in read_bytes(_file_of_models(), _MAX_BYTES).decode().split("\n")
    except (OSError, UnicodeDecodeError, CorruptIndexError):
        return False


def _file_of_models() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "logt" / "models"

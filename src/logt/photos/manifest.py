"""What an index of photos is made of and with: one small JSON file, replaced as a whole, that names all others."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from logt.descriptors import DescriptorExtractor, Model
from logt.descriptors.model import DEFAULT_MODEL
from logt.errors import CorruptIndexError, FormatVersionError, InvalidInputError
from logt.storage.files import replace_file

FORMAT = 1
ABOUT = "photos.json"


@dataclass(frozen=True)
class About:
    """The folder of the pictures, how they are described, and the whitening that the vectors have, if any yet."""

    folder: str
    model: str
    sha256: str
    model_path: str | None
    layout: str
    mean: Sequence[float]
    std: Sequence[float]
    side: int
    scales: Sequence[float]
    p: float
    whitening: str | None = None

    @classmethod
    def of(cls, folder: Path, path: Path, describer: DescriptorExtractor) -> About:
        model = describer.model
        return cls(
            folder=_kept(folder, path),
            model=model.name,
            sha256=model.sha256,
            model_path=None if model.path == DEFAULT_MODEL else str(model.path),
            layout=model.preprocessing.layout,
            mean=model.preprocessing.mean,
            std=model.preprocessing.std,
            side=model.preprocessing.side,
            scales=describer.scales,
            p=describer.p,
        )

    @classmethod
    def read(cls, path: Path) -> About:
        """What the index of photos at `path` says of itself."""
        try:
            text = (path / ABOUT).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(
                f"{path} holds no index of photos: there is no {ABOUT} in it; logt images index FOLDER makes one"
            ) from None
        return cls.parsed(text, path)

    @classmethod
    def parsed(cls, text: str | bytes, path: Path) -> About:
        try:
            values: dict[str, Any] = json.loads(text)
            version = values.pop("format")
            if version != FORMAT:
                raise FormatVersionError(
                    f"{path} has format {version}, this version of logt reads {FORMAT}: update logt"
                )
            return cls(**values)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptIndexError(f"{path / ABOUT} is damaged: {error}") from error

    @property
    def text(self) -> str:
        """As JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1)

    def write(self, path: Path) -> None:
        replace_file(path / ABOUT, self.text.encode())

    def moved(self, folder: Path, path: Path) -> About:
        """The same for a folder that lies elsewhere now."""
        return replace(self, folder=_kept(folder, path))

    def pictures(self, path: Path) -> Path:
        """The folder of the pictures of the index at `path`."""
        return (path / self.folder).resolve()

    def same_model(self) -> Model:
        """The model of the same path, or the one inside the package, as they are now, at the same size."""
        if self.model_path is None:
            return Model.load(side=self.side)
        return Model.load(self.model_path, layout=self.layout, mean=self.mean, std=self.std, side=self.side)

    def describer(self, model: str | Path | Model | None = None) -> DescriptorExtractor:
        """What described the pictures; a model that has moved is passed, and must be the same to the byte."""
        if not isinstance(model, Model):
            model = Model.load(
                model or self.model_path, layout=self.layout, mean=self.mean, std=self.std, side=self.side
            )
        if model.sha256 != self.sha256:
            raise InvalidInputError(
                f"the pictures were described with the model {self.model} ({self.sha256[:12]}…), "
                f"and {model.path} is another; pass that model, or relearn the index with this one"
            )
        for name in ("layout", "mean", "std", "side"):
            now, then = getattr(model.preprocessing, name), getattr(self, name)
            if now != (tuple(then) if isinstance(then, list) else then):
                raise InvalidInputError(
                    f"the pictures were described with {name} = {then}, not {now}; relearn to change it"
                )
        return DescriptorExtractor(model, tuple(self.scales), self.p)


def whitening_file(path: Path, name: str) -> Path:
    """Where an index of photos keeps a whitening."""
    return path / f"whitening-{name}.safetensors"


def vectors_folder(path: Path, name: str) -> Path:
    """Where it keeps the vectors that have this whitening: an ordinary index."""
    return path / f"vectors-{name}"


def _kept(folder: Path, path: Path) -> str:
    """An index inside of its folder moves with it."""
    return os.path.relpath(folder, path) if path.is_relative_to(folder) else str(folder)

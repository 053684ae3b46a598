"""Models that `logt models get` downloads: a name -> its repository, files, preprocessing, tokenizer and license.

Revision, bytes and SHA-256 are those that two or more public projects state for these files. A download that
differs from them is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from logt.descriptors.model_settings import PRESETS

IMAGE, TEXT, TOKENIZER = "vision_model.onnx", "text_model.onnx", "tokenizer.json"
"""The names of the files of a model on this machine."""


@dataclass(frozen=True)
class RemoteFile:
    """A file in a repository of the Hugging Face Hub."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class CatalogModel:
    """An image encoder with its text encoder, as ONNX files of 8-bit weights.

    repository, revision: on the Hugging Face Hub. origin: the model that was converted. license: of its weights.
    languages: of the texts it knows. files: by their names on this machine. settings: as in logt.json.
    """

    name: str
    repository: str
    revision: str
    origin: str
    license: str
    languages: str
    files: Mapping[str, RemoteFile]
    settings: Mapping[str, Any]

    @property
    def bytes(self) -> int:
        """The size of the download."""
        return sum(file.bytes for file in self.files.values())


_CLIP = CatalogModel(
    name="clip",
    repository="Xenova/clip-vit-base-patch32",
    revision="d15189d7028b43f1d3e65039190477f6af591c2a",
    origin="openai/clip-vit-base-patch32",
    license="MIT",
    languages="English",
    files={
        IMAGE: RemoteFile(
            "onnx/vision_model_quantized.onnx",
            89_117_001,
            "583fd1110a514667812fee7d684952aaf82a99b959760c8d7dca7e0ab9839299",
        ),
        TEXT: RemoteFile(
            "onnx/text_model_quantized.onnx",
            64_504_507,
            "73baab855d406190da9faa498cfedf65f15cf309f4cc7385b7b032e6d08e5c3a",
        ),
        TOKENIZER: RemoteFile(
            "tokenizer.json", 2_224_119, "f7f3b7af117d467b58374797691a6438d3e6b9e9cef800dfd5dced7f697a90cd"
        ),
    },
    settings=PRESETS["clip"],
)

_SIGLIP = CatalogModel(
    name="siglip",
    repository="Xenova/siglip-base-patch16-224",
    revision="4649052661e53c7000355844105f8a1792088239",
    origin="google/siglip-base-patch16-224",
    license="Apache-2.0",
    languages="English",
    files={
        IMAGE: RemoteFile(
            "onnx/vision_model_quantized.onnx",
            99_499_129,
            "ef14a954f3d57e1806666432bd9785004c1dc27100aa260eee0cb0f10a5de058",
        ),
        TEXT: RemoteFile(
            "onnx/text_model_quantized.onnx",
            111_475_220,
            "ad0329b1f35acc66d8953ff2559ce358da8eb0a7011794cf951523d63a4dbce2",
        ),
        TOKENIZER: RemoteFile(
            "tokenizer.json", 2_398_744, "4a17c975210be5ab4c36b47d8dae4eefb866dbfb1e676e394aad85dc30a3ae08"
        ),
    },
    settings={**PRESETS["siglip"], "text_padding": 1, "text_lowercase": True},
)

_SIGLIP2 = CatalogModel(
    name="siglip2",
    repository="onnx-community/siglip2-base-patch16-224-ONNX",
    revision="ba1f3b0843f24bc5417d38e19c37b287d719b2f4",
    origin="google/siglip2-base-patch16-224",
    license="Apache-2.0",
    languages="many",
    files={
        IMAGE: RemoteFile(
            "onnx/vision_model_quantized.onnx",
            94_553_333,
            "5f2b401c1a4fc095702a5d45348e17ad46c4f87064085365b43c6e8eaa5c0070",
        ),
        TEXT: RemoteFile(
            "onnx/text_model_int8.onnx",
            283_438_275,
            "3a0603d3a00c05a80a6ded4743c16aaac7b1e62cdcc7e362e7ce418659b96400",
        ),
        TOKENIZER: RemoteFile(
            "tokenizer.json", 34_363_039, "cb9140fae3ac5122c972d37adf83e1248471a38147ad76f8215c8872c6fd8322"
        ),
    },
    settings={**PRESETS["siglip"], "resample": "bilinear", "text_padding": 0, "text_lowercase": True},
)

CATALOG: dict[str, CatalogModel] = {model.name: model for model in (_CLIP, _SIGLIP, _SIGLIP2)}

"""Text encoders: a text -> the vector to compare with descriptors of the image encoder of the same model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from logt._internal.extras import needs_extra
from logt._internal.types import Array, Floats
from logt._internal.validation import check_choice, check_int
from logt.descriptors.model import Model
from logt.descriptors.model_checksums import check_unchanged
from logt.descriptors.model_files import TextFiles, parse_json
from logt.descriptors.onnx_files import fingerprint
from logt.descriptors.onnx_session import choose_output, load_session, run_session
from logt.descriptors.pooling import normalize
from logt.errors import InvalidInputError
from logt.storage.files import read_bytes

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_LENGTH = 4096
"""Characters of a text, at most."""

_MAX_TOKENIZER = 1 << 28
_OUTPUTS = ("text_embeds", "text_features", "pooler_output", "sentence_embedding", "embedding")
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_CONFIG = "tokenizer_config.json"  # it may define the padding and the length of texts
_CONTEXT = 77  # tokens of a text at most, if neither the file nor the settings define it


@dataclass(frozen=True)
class TextEncoder:
    """The text encoder of a model, created by `TextEncoder.load`; threads may share it.

    path: its ONNX file. sha256: the fingerprints of its files and of those of the tokenizer, see `text_fingerprints`.
    tokenizer: of the package tokenizers. output: the name of its output. length: the number of tokens that a text is
    padded to with the token `padding`; None does not pad. lowercase: of texts, before they are split into tokens.
    session: of onnxruntime.
    """

    path: Path
    sha256: tuple[str, str]
    tokenizer: Tokenizer = field(repr=False, compare=False)
    output: str
    length: int | None
    padding: int
    lowercase: bool
    session: Any = field(repr=False, compare=False)

    @classmethod
    def load(cls, model: Model) -> TextEncoder:
        """Load the text encoder that belongs to a model.

        model: an image encoder with a text encoder and a tokenizer.json next to it.
        """
        file, tokenizer_file = model.text.model, model.text.tokenizer
        if file is None or tokenizer_file is None:
            raise InvalidInputError(
                f"the model {model.name} has no text encoder, so photos cannot be searched by text. "
                "Download a model that has one, and index the photos with it: logt models get clip, "
                "then logt images index FOLDER --text clip. "
                "Or pass a model folder that contains text_model.onnx and tokenizer.json"
            )
        (session, sha256), settings = load_session(file), model.text.settings
        files = _read_tokenizer(tokenizer_file)
        tokenizer = _parse_tokenizer(files[tokenizer_file.name], tokenizer_file)
        config = parse_json(files.get(_CONFIG, b"{}"), tokenizer_file.with_name(_CONFIG))
        if not session.get_inputs():
            raise InvalidInputError(f"the text encoder {file} has no input")
        shape = session.get_inputs()[0].shape
        fixed = shape[1] if len(shape) == 2 and isinstance(shape[1], int) else None
        length = settings.get("text_length") or fixed or (tokenizer.padding or {}).get("length")
        longest = config.get("model_max_length")
        cut = length or (longest if isinstance(longest, int) and 0 < longest <= MAX_LENGTH else _CONTEXT)
        padding = check_int("text_padding", settings.get("text_padding", _padding_token(tokenizer, config)), 0)
        tokenizer.no_padding()
        tokenizer.enable_truncation(check_int("text_length", cut))
        output = choose_output(session, settings.get("text_output"), _OUTPUTS, file)
        lowercase = settings.get("text_lowercase", False)
        check_choice("text_lowercase", lowercase, (False, True))
        return cls(file, (sha256, _fingerprint(files)), tokenizer, output, length, padding, lowercase, session)

    def __call__(self, text: str) -> Floats:
        """Return the vector of a text, of norm 1."""
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_LENGTH:
            shown = text if not isinstance(text, str) or len(text) <= 100 else f"{len(text):,} characters"
            raise InvalidInputError(f"text must have 1 to {MAX_LENGTH:,} characters, not only spaces, got {shown!r}")
        known = text.encode("utf-8", "replace").decode()  # without surrogates
        try:
            ids = self.tokenizer.encode(known.lower() if self.lowercase else known).ids
        except Exception as error:  # tokenizers raises the plain Exception
            raise InvalidInputError(f"the tokenizer of {self.path} failed: {error}") from error
        output = np.asarray(run_session(self.session, self.output, self._inputs(ids), self.path))
        if output.ndim != 2 or not np.isfinite(output).all() or not output.any():
            raise InvalidInputError(
                f"the text encoder {self.path} has an output of shape {output.shape}, zeros, NaN or infinity; "
                "expected a vector (N, D): text_output of the model's settings selects another output"
            )
        return normalize(output[0])

    def _inputs(self, ids: list[int]) -> Mapping[str, Array]:
        """Return the inputs of the network: the tokens, padded, and what the network needs besides them."""
        length = max(self.length or 0, len(ids), 1)
        padded = np.full((1, length), self.padding, np.int64)
        padded[0, : len(ids)] = ids
        mask = (np.arange(length) < len(ids))[None]
        values = {
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(padded),
            "position_ids": np.arange(length)[None],
        }
        inputs = {}
        for number, wanted in enumerate(self.session.get_inputs()):
            if wanted.type not in _INTEGERS or (number and wanted.name not in values):
                raise InvalidInputError(
                    f"the text encoder {self.path} has an input {wanted.name!r} of type {wanted.type}; "
                    "expected tokens (N, T) as integers, and an attention_mask"
                )
            array = values.get(wanted.name, padded)
            inputs[wanted.name] = array.astype(_INTEGERS[wanted.type])
        return inputs


def text_fingerprints(text: TextFiles) -> tuple[str, str] | None:
    """Return the fingerprints of the files of a text encoder and of those of its tokenizer; None if there is none."""
    if text.model is None or text.tokenizer is None:
        return None
    return fingerprint(text.model), _fingerprint(_read_tokenizer(text.tokenizer))


def _read_tokenizer(file: Path) -> dict[str, bytes]:
    """Return the bytes of the files of a tokenizer by their names. file: its tokenizer.json."""
    config = file.with_name(_CONFIG)
    paths = [file, config] if config.is_file() else [file]
    try:
        return {path.name: read_bytes(path, _MAX_TOKENIZER) for path in paths}
    except OSError as error:
        raise InvalidInputError(f"the tokenizer {file} cannot be read: {error.strerror or error}") from error


def _fingerprint(files: Mapping[str, bytes]) -> str:
    """Return one fingerprint of the bytes of all files of a tokenizer."""
    digests = [hashlib.sha256(data).hexdigest() for data in files.values()]
    return digests[0] if len(digests) == 1 else hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def _parse_tokenizer(data: bytes, file: Path) -> Tokenizer:
    with needs_extra("text", "searching by text needs tokenizers"):
        from tokenizers import Tokenizer
    check_unchanged(file, hashlib.sha256(data).hexdigest())
    try:
        tokenizer = Tokenizer.from_buffer(data)
    except Exception as error:  # tokenizers raises the plain Exception
        raise InvalidInputError(f"{file} cannot be loaded as a tokenizer: {error}") from error
    return tokenizer


def _padding_token(tokenizer: Tokenizer, config: Mapping[str, Any]) -> int:
    """Return the token that texts are padded with: that of tokenizer.json, of tokenizer_config.json, or 0."""
    if tokenizer.padding:
        return int(tokenizer.padding["pad_id"])
    name = config.get("pad_token")
    name = name.get("content") if isinstance(name, dict) else name
    token = tokenizer.token_to_id(name) if isinstance(name, str) else None
    return token or 0

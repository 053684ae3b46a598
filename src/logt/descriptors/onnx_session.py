"""ONNX sessions: a file -> a session of onnxruntime, and the outputs of encoders by their usual names."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from logt._internal.extras import needs_extra
from logt._internal.types import Array
from logt.descriptors.model_checksums import check_unchanged
from logt.descriptors.onnx_files import external_files, fingerprint
from logt.errors import InvalidInputError, MissingExtraError
from logt.storage.files import read_bytes

_MAX_BYTES = 1 << 31  # of an ONNX file


DEVICE_VARIABLE = "LOGT_ONNX_DEVICE"
"""The environment variable with the device of sessions, "cpu" or "cuda"; processes inherit it."""


def load_session(file: Path) -> tuple[Any, str]:
    """Return a session of onnxruntime for an ONNX file, and the fingerprint of all files of the model."""
    with needs_extra("images", "computing descriptors needs onnxruntime"):
        import onnxruntime
    providers = _providers(onnxruntime)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # images are processed in parallel instead
    options.enable_mem_pattern = False  # it needs inputs of equal size
    options.log_severity_level = 4  # errors are raised as exceptions
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        data = read_bytes(file, _MAX_BYTES)
    except OSError as error:
        raise InvalidInputError(f"the model {file} cannot be read: {error.strerror or error}") from error
    try:
        files = external_files(file, BytesIO(data))
    except InvalidInputError:
        check_unchanged(file, hashlib.sha256(data).hexdigest())  # of a downloaded file, it names the way out
        raise
    before = fingerprint(file) if files else hashlib.sha256(data).hexdigest()
    check_unchanged(file, before)
    source = str(file) if files else data
    if not files:  # onnxruntime would read external data from the current folder; nothing is inside of a file
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(file.resolve()))
    try:
        session = onnxruntime.InferenceSession(source, options, providers=providers)
    except Exception as error:  # onnxruntime has no exception class of its own for invalid files
        raise InvalidInputError(f"{file} cannot be loaded as an ONNX model: {error}") from error
    if files and fingerprint(file) != before:
        raise InvalidInputError(f"the files of the model {file} were changed while it was loaded; load it again")
    return session, before


def _providers(onnxruntime: Any) -> list[Any]:
    """Return what computes: the processor, or a GPU that DEVICE_VARIABLE names."""
    kind, _, number = os.environ.get(DEVICE_VARIABLE, "cpu").partition(":")
    if kind == "cpu":
        return ["CPUExecutionProvider"]
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise MissingExtraError("models run on a GPU with another package: pip install onnxruntime-gpu")
    return [("CUDAExecutionProvider", {"device_id": int(number or 0)})]


def choose_output(session: Any, wanted: str | None, usual: Sequence[str], file: Path) -> str:
    """Return the name of the output to read: the one that is wanted, or the first usual one."""
    names = [output.name for output in session.get_outputs()]
    if not names:
        raise InvalidInputError(f"{file} has no output")
    if wanted is not None and wanted not in names:
        raise InvalidInputError(f"{file} has no output {wanted!r}; its outputs: {', '.join(names)}")
    return str(wanted or next((name for name in usual if name in names), names[0]))


def run_session(session: Any, output: str, inputs: Mapping[str, Array], file: Path) -> Any:
    """Return one output of a session."""
    try:
        return session.run([output], dict(inputs))[0]
    except Exception as error:  # onnxruntime has no exception class of its own for failed runs
        raise InvalidInputError(f"the model {file} failed: {error}") from error

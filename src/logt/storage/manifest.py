"""The manifest of an index: one small JSON file, replaced atomically, that names all others."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any

from logt.engine.protocols import Method
from logt.errors import CorruptIndexError, FormatVersionError, InvalidInputError
from logt.group_testing.method import STAGES, GroupTesting
from logt.lists.method import Sketched
from logt.storage.files import UNUSABLE, checksum

MANIFEST = "manifest.json"
UNFINISHED = ".unfinished"
"""The name of an empty file that a folder has until its first save is complete."""

FORMAT = 1
"""Of the files that this version writes and reads."""

_KINDS = "model|segment|refinement|removed|strings|items|graph|unlinked|sample|links"
ARRAY_FILE = rf"({_KINDS})-[0-9a-f]{{16}}\.safetensors"
"""The names of the files that a manifest names."""

# of a distributed build that has not ended
_BUILD = r"build-[0-9a-f]{16}-(plan|[0-9]{8}|links-[0-9]+-[0-9]{8})\.json"
_LOG = r"changes-[0-9a-f]{32}\.log"
INDEX_FILE = re.compile(
    rf"\.lock|\.unfinished|{ARRAY_FILE}|{_LOG}|{_BUILD}|\.(manifest\.json|{ARRAY_FILE}|{_BUILD})\.\d+\.tmp"
)
"""The names of all files of an index but the manifest."""

MAX_MANIFEST = 1 << 28
"""Bytes of a manifest, at most."""

_MAX_GENERATION = 1 << 62
_SETTINGS = {"dim", "metric", "seed", "segment_size", "next_id"}


@contextmanager
def misfit_is_corruption(name: object) -> Iterator[None]:
    """Raise CorruptIndexError where the manifest of an index and its files do not fit together."""
    try:
        yield
    except UNUSABLE as error:
        raise CorruptIndexError(f"{name}: the manifest and its files do not fit together: {error}") from error


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """Return the bytes of the file of a manifest."""
    text = json.dumps(manifest, indent=1, sort_keys=True)
    return json.dumps({"manifest": manifest, "checksum": checksum(text.encode())}, indent=1).encode()


def state_of(manifest: Mapping[str, Any]) -> str:
    """Return the key "state" of a manifest: it identifies what is stored, and its write-ahead log."""
    rest = {name: value for name, value in manifest.items() if name != "state"}
    return checksum(json.dumps(rest, sort_keys=True).encode())[:32]


def parse_manifest(text: bytes, path: object) -> Any:
    """Return the manifest that a file holds; `path` is its name in errors."""
    try:
        outer = json.loads(text)
        manifest, digest = outer["manifest"], outer["checksum"]
        version = manifest["format"]
        if type(manifest["generation"]) is not int:
            raise ValueError("the generation is not an integer")
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise CorruptIndexError(f"{path} is damaged: {error}") from error
    if checksum(json.dumps(manifest, indent=1, sort_keys=True).encode()) != digest:
        raise CorruptIndexError(f"{path} is damaged: its checksum does not match")
    if version != FORMAT:
        raise FormatVersionError(f"{path} has format {version}, this version of logt reads {FORMAT}: update logt")
    try:
        _check_fields(manifest)
    except UNUSABLE as error:
        raise CorruptIndexError(f"{path} is damaged: {error}") from error
    return manifest


def _check_fields(manifest: Mapping[str, Any]) -> None:
    """Raise ValueError and others unless a manifest is as logt writes it: it may come from elsewhere.

    Files are opened by their names and, in a cache, by their checksums.
    """
    if not 0 <= manifest["generation"] < _MAX_GENERATION:
        raise ValueError(f"the generation is {manifest['generation']}")
    if not re.fullmatch("[0-9a-f]{32}", manifest["state"]):
        raise ValueError(f"the state is {manifest['state']!r}")
    for name, kind in (("settings", dict), ("models", dict), ("segments", list), ("files", dict)):
        if type(manifest[name]) is not kind:
            raise ValueError(f"{name} is a {type(manifest[name]).__name__}")
    if wrong := manifest["settings"].keys() ^ _SETTINGS:  # others may be parameters of `Index`, too
        raise ValueError(f"the setting {min(wrong)!r} is missing or unknown")
    for name, about in manifest["files"].items():
        if not re.fullmatch(ARRAY_FILE, name):
            raise ValueError(f"{name!r} is not the name of a file of an index")
        size, digest = about["bytes"], about["checksum"]
        if type(size) is not int or size < 0 or not re.fullmatch("[0-9a-f]{64}", digest):
            raise ValueError(f"the length or the checksum of {name} is impossible")


def stage_to_json(stage: Any) -> Any:
    """Return a stage, or a method of stages, as {"stage": its class, **its parameters}."""
    if not is_dataclass(stage):
        return stage
    name = type(stage).__name__
    if _stage_types().get(name) is not type(stage):
        raise InvalidInputError(f"{_unknown(name)} before you save; nothing was written")
    parameters = {field.name: getattr(stage, field.name) for field in fields(stage)}
    for parameter, value in parameters.items():
        if not is_dataclass(value):
            _check_parameter(name, parameter, value)
    return {"stage": name, **{parameter: stage_to_json(value) for parameter, value in parameters.items()}}


def _check_parameter(stage: str, parameter: str, value: Any) -> None:
    """Raise InvalidInputError for a parameter that the manifest cannot hold; objects in it are stages."""
    try:
        json.dumps(value)
    except UNUSABLE:
        is_json = False
    else:
        is_json = not isinstance(value, dict)
    if not is_json:
        raise InvalidInputError(
            f"the parameter {parameter!r} of the stage {stage!r} is {value!r}, which cannot be saved; "
            "use a plain number, text, bool, None or a list of these; nothing was written"
        )


def stage_from_json(plain: Any) -> Any:
    """Return the stage that `stage_to_json` wrote."""
    if not isinstance(plain, dict):
        return plain
    stage = _stage_types().get(plain["stage"])
    if stage is None:
        raise ValueError(f"{_unknown(plain['stage'])} before you open the index")
    return stage(**{name: stage_from_json(value) for name, value in plain.items() if name != "stage"})


def _stage_types() -> dict[str, type[Any]]:
    return {stage.__name__: stage for stage in (*chain(*STAGES.values()), GroupTesting, Sketched)}


def _unknown(stage: object) -> str:
    return f"the stage {stage!r} is not registered: call logt.group_testing.method.register_stage"


def method_from_json(plain: Any) -> Method:
    """Return the method of a manifest; raise ValueError if it is something else."""
    method = stage_from_json(plain)
    if isinstance(method, Sketched):
        return method
    if not isinstance(method, GroupTesting):
        raise ValueError(f"the method is a {type(method).__name__}")
    for name, kinds in STAGES.items():
        if not isinstance(getattr(method, name), kinds):
            raise ValueError(f"the stage {name} is {getattr(method, name)!r}")
    return method

"""Fuzz the loader: python tests/fuzz_loader.py -max_total_time=60 -rss_limit_mb=2048 -len_control=0 -max_len=256.

The checksums are computed again after the damage, so that it reaches the code behind them. Opening must always end
in an index that can be searched or in a typed error.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(
    include=[
        "logt.storage.files",
        "logt.storage.locations",
        "logt.storage.reading",
        "logt.storage.store",
        "logt.storage.manifest",
        "logt.storage.changes",
        "logt.index",
        "logt.engine.string_ids",
    ]
):
    import numpy as np

    import logt
    from logt.storage.files import checksum

GOLDEN = sorted(path for path in (Path(__file__).parent / "golden").glob("format-*/*") if path.is_dir())
FOLDER = Path(tempfile.mkdtemp()) / "index"
FOLDER.mkdir()


def one_input(data: bytes) -> None:
    fuzzed = atheris.FuzzedDataProvider(data)
    source = GOLDEN[fuzzed.ConsumeIntInRange(0, len(GOLDEN) - 1)]
    files = {path.name: bytearray(path.read_bytes()) for path in sorted(source.iterdir()) if path.name != ".lock"}
    for _ in range(fuzzed.ConsumeIntInRange(1, 4)):
        name = fuzzed.PickValueInList(sorted(files))
        at = fuzzed.ConsumeIntInRange(0, len(files[name]))
        files[name][at : at + fuzzed.ConsumeIntInRange(0, 8)] = fuzzed.ConsumeBytes(fuzzed.ConsumeIntInRange(0, 8))
    signed(files)
    for path in FOLDER.iterdir():
        path.unlink()
    for name, content in files.items():
        (FOLDER / name).write_bytes(content)
    with contextlib.suppress(logt.CorruptIndexError, logt.FormatVersionError):
        logt.open(FOLDER).search(np.ones((2, 8)), 5)


def signed(files: dict[str, bytearray]) -> None:
    """Make all checksums right, if the manifest can be read at all."""
    try:
        manifest = json.loads(bytes(files["manifest.json"]))["manifest"]
        for name, content in files.items():
            if name in manifest["files"]:
                digest = checksum(bytes(content))
                manifest["files"][name] = {"bytes": len(content), "checksum": digest}
        body = json.dumps(manifest, indent=1, sort_keys=True)
        outer = {"manifest": manifest, "checksum": checksum(body.encode())}
        files["manifest.json"] = bytearray(json.dumps(outer).encode())
    except (ValueError, KeyError, TypeError):
        return


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()

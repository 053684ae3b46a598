"""The connection to a Ray cluster."""

from __future__ import annotations

import os
from typing import Any

from logt.errors import MissingExtraError


def connect(address: str | None = None) -> Any:
    """Connect this process to a Ray cluster, unless it is connected, and return the module `ray`.

    address: of a cluster ("auto" is the one that runs on this machine, or RAY_ADDRESS), or "local" to start one on
    this machine; None is "auto" if there is a cluster, otherwise "local".
    """
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(f'Ray is not installed: pip install "logt-search[ray]" ({error})') from error
    if not ray.is_initialized():
        if address is None and os.environ.get("RAY_ADDRESS"):
            address = "auto"
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if address == "local":
            options["include_dashboard"] = False
        try:
            ray.init(address, **options)
        except ConnectionError as error:
            raise ConnectionError(
                f"no Ray cluster at {address or 'auto'!r}; start one with `ray start --head`"
            ) from error
    return ray

"""A served index of vectors on a GPU: for reading; it follows what other processes save."""

from pathlib import Path
from typing import Any

import numpy as np

from logt.index import Index
from logt.results import Report, SearchResult
from logt.server.collection import BaseCollection, SearchOptions
from logt.server.gathering import GatheredSearches


class DeviceCollection(BaseCollection):
    """An index of vectors on a device. Searches of different clients are gathered into batches."""

    def __init__(self, folder: Path, device: str):
        super().__init__()
        self._there = Index.open(folder, device=device)
        self._title = folder.resolve().name
        self._gathered = GatheredSearches(self._there.search)

    @property
    def index(self) -> Any:
        return self._there

    @property
    def title(self) -> str:
        return self._title

    def find(self, Q: Any, k: int, options: SearchOptions) -> SearchResult:
        if options.wanted is not None or options.by == "item" or options.rerank == "function":
            return super().find(Q, k, options)
        limits = {"effort": options.effort, "recall": options.recall, "like": options.like, "rerank": options.rerank}
        return self._gathered.search(np.asarray(Q, np.float32), k, **limits)

    def refresh(self) -> None:
        self._there.refresh()

    def report(self) -> Report:
        return self._there.report()

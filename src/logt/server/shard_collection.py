"""An index in shards as a server works on it: searches go to a Ray cluster; changes are refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from logt.distributed.searching import DistributedIndex
from logt.errors import InvalidInputError
from logt.results import Report
from logt.server.collection import DEFAULT, BaseCollection, Hit, Id, SearchOptions


class ShardCollection(BaseCollection, Collector):
    """An index of vectors in shards. It follows what other processes save."""

    def __init__(self, index: DistributedIndex, title: str):
        super().__init__()
        self._index, self._title = index, title

    @property
    def index(self) -> Any:
        return self._index

    @property
    def has_graph(self) -> bool:
        return self._index.linked and self._index.metric == "cosine"

    @property
    def title(self) -> str:
        return Path(self._title).name

    def search(self, Q: Any, k: int, options: SearchOptions = DEFAULT, own: Any = None) -> list[list[Hit]]:
        if options.by == "item" and (options.unwanted or own is not None):
            raise InvalidInputError(
                "an index in shards is searched by item with vectors, and with wanted ids; its ids are in the shards"
            )
        return super().search(Q, k, options, own)

    def refresh(self) -> None:
        self._index.refresh()

    def close(self) -> None:
        self._index.close()

    def report(self) -> Report:
        """Return `DistributedIndex.info`, which counts calls and is not cached."""
        return Report({**self._index.info(), "linked": len(self._index) if self._index.linked else 0})

    def sample_ids(self) -> list[Id]:
        """Return the ids of no vectors: they are in the shards."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics of each shard."""
        parts = self._index.info()["shards"]
        for key, description in (
            ("vectors", "Vectors in the shard."),
            ("bytes", "Bytes of the files of the shard."),
            ("replicas", "Actors of the shard that are alive."),
            ("calls", "Calls of the shard by its present actors."),
            ("failures", "Calls that failed or were too late."),
            ("milliseconds", "Mean time of a call."),
        ):
            family = GaugeMetricFamily(f"logt_shard_{key}", description, labels=["shard"])
            for part in parts:
                family.add_metric([str(part["shard"])], float(part[key]))
            yield family

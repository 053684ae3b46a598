"""Beyond one machine: build an index with many workers, and search it in shards. See docs/how-to/cluster.md."""

from logt.distributed.build import BuildSummary, build
from logt.distributed.photos import RayExtractor
from logt.distributed.pools import ProcessPool, RayPool, connect
from logt.distributed.searching import DistributedIndex, ShardedResult, open  # noqa: A004

__all__ = [
    "BuildSummary",
    "DistributedIndex",
    "ProcessPool",
    "RayExtractor",
    "RayPool",
    "ShardedResult",
    "build",
    "connect",
    "open",
]

"""An index whose results are known: one unit per vector, in float32."""

from __future__ import annotations

from logt.group_testing.decoder import Sparse
from logt.group_testing.grouping import Random
from logt.group_testing.memory_vectors import Pinv
from logt.group_testing.method import GroupTesting
from logt.group_testing.quantize import Float32

EXACT = GroupTesting(Random(1, 1), Pinv(), Float32(), Sparse(64, "free", weights="float32"))
METRICS = ("cosine", "ip", "l2")

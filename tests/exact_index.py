"""An index whose results are known: one unit per vector, in float32."""

from __future__ import annotations

import logt
from logt.stages.decoder import Sparse
from logt.stages.grouping import Random
from logt.stages.memory_vectors import Pinv
from logt.stages.quantize import Float32

EXACT = logt.Method(Random(1, 1), Pinv(), Float32(), Sparse(64, "free", weights="float32"))
METRICS = ("cosine", "ip", "l2")

"""Claims of the paper, judged by what was measured: (figures) -> holds, holds in part, does not hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from logt.reproduce.trials import Mean

Verdict = Literal["holds", "holds in part", "does not hold", "not tested"]

MARGIN = 0.5
"""mAP points below which two figures are level, whatever their deviation: less than the paper makes anything of."""


@dataclass(frozen=True)
class Claim:
    """What the paper says, whether it holds on this data, and the figures that say so."""

    said: str
    verdict: Verdict
    found: str


def margin(a: Mean, b: Mean) -> float:
    """By how much two means must differ: two standard errors of their difference, and MARGIN at least."""
    return max(MARGIN, 2 * math.hypot(a.error, b.error))


def above(a: Mean, b: Mean) -> bool:
    return a.value - b.value > margin(a, b)


def level(a: Mean, b: Mean) -> bool:
    return abs(a.value - b.value) <= margin(a, b)


def reaches(a: Mean, b: Mean) -> bool:
    """Level or above."""
    return a.value - b.value >= -margin(a, b)


def judged(tests: Sequence[bool]) -> Verdict:
    """All, some or none of the tests passed."""
    if not tests:
        return "not tested"
    return "holds" if all(tests) else "holds in part" if any(tests) else "does not hold"


def differences(pairs: Sequence[tuple[str, Mean, Mean]]) -> str:
    """The first minus the second, for each place: "-0.3 at n=20, +1.2 at n=50"."""
    return ", ".join(f"{a.value - b.value:+.1f} at {place}" for place, a, b in pairs)

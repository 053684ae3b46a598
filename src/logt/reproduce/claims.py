"""Claims and their verdicts, computed from the values that were measured with several seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

Verdict = Literal["holds", "holds in part", "does not hold", "undecided", "not tested", "too few vectors"]
Outcome = bool | None
"""The outcome of one test; None if the difference is too small to decide with so few seeds."""

MARGIN = 0.5
"""Points of mAP up to which two values count as equal; the paper draws no conclusion from less."""

ENOUGH_VECTORS = 10_000
"""Vectors from which on claims are judged; the paper has 105,000."""

SINGLE_SEED_ERROR = 0.5
"""The standard error assumed for a difference that was measured with one seed."""


@dataclass(frozen=True)
class SeedMean:
    """A value measured with several seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds; 0 for a single seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    @property
    def standard_error(self) -> float:
        """The standard error of the mean; SINGLE_SEED_ERROR for a single seed."""
        return self.deviation / math.sqrt(len(self.values)) if len(self.values) > 1 else SINGLE_SEED_ERROR

    def __sub__(self, other: SeedMean) -> SeedMean:
        """Return the differences by seed, over the seeds that both have: the common effect of a seed cancels."""
        return SeedMean(tuple(a - b for a, b in zip(self.values, other.values, strict=False)))

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + (f" ± {self.deviation:.1f}" if self.deviation else "")


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, whether it holds on this data, and the values that show it."""

    statement: str
    verdict: Verdict
    evidence: str


def judge_if_enough(claim: Claim, vectors: int) -> Claim:
    """Return a claim as it was judged, or without a verdict if there are too few vectors for one."""
    if vectors >= ENOUGH_VECTORS or claim.verdict == "not tested":
        return claim
    return replace(claim, verdict="too few vectors")


class Pair(NamedTuple):
    """The mAP of two systems at the same setting, such as "n=20"."""

    setting: str
    first: SeedMean
    second: SeedMean


def above(a: SeedMean, b: SeedMean) -> bool:
    """Return whether a is larger than b by more than MARGIN and by more than two standard errors."""
    gap = a - b
    return gap.mean > max(MARGIN, 2 * gap.standard_error)


def equal(a: SeedMean, b: SeedMean) -> Outcome:
    """Return whether two values differ by at most MARGIN."""
    return reaches(a, b) if (a - b).mean < 0 else reaches(b, a)


def reaches(a: SeedMean, b: SeedMean) -> Outcome:
    """Return whether a is equal to b or larger; None if it is smaller, but by less than two standard errors."""
    gap = b - a
    if gap.mean <= MARGIN:
        return True
    return None if gap.mean - 2 * gap.standard_error <= MARGIN else False


def judge(outcomes: Sequence[Outcome]) -> Verdict:
    """Return the verdict on a claim from the outcomes of its tests."""
    if not outcomes:
        return "not tested"
    known = [outcome for outcome in outcomes if outcome is not None]
    if not known:
        return "undecided"
    if all(known) and len(known) == len(outcomes):
        return "holds"
    return "holds in part" if any(known) else "does not hold"


def judge_above(pairs: Sequence[Pair]) -> Verdict:
    """Return the verdict on the claim that the first value of each pair is above the second."""
    return judge([above(pair.first, pair.second) for pair in pairs])


def format_differences(pairs: Sequence[Pair]) -> str:
    """Return the first value minus the second for each setting: "-0.3 at n=20, +1.2 at n=50"."""
    return ", ".join(f"{(pair.first - pair.second).mean:+.1f} at {pair.setting}" for pair in pairs)

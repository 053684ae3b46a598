"""Inverted lists: the vectors of each unit next to each other, so that a search scans only those of a few units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logt._internal.recall_curve import RecallCurve
from logt._internal.types import Array, Floats, Ids
from logt._internal.validation import check_array, check_count, check_effort, check_fields, check_fraction, check_int

MARGINS = 17
"""Exponents p from 0 to 1 for which margins are known: where a query like the collection reads M**p of M lists."""

SURE = 0.95
"""Searches for this recall, or more, read a least number of lists: queries may be unlike the collection."""

MIN_SCANNED = 4096
"""Vectors whose codes are decoded at least, at effort 1; at less effort, times its square."""

_BEAM = 480  # more than results, at effort 1
_FEW = 0.25  # effort on the graph up to which the beam is no larger than the results
_USUAL_K = 10  # results
_UNKNOWN = 0.7  # effort without a curve
_SURE_LISTS = 0.25  # the least p of searches for the recall SURE
_LATE = 0.5  # without the graph, the effort for the recall SURE at which searches with it need no more lists
_MANY = 1 << 62  # as good as infinite


class ScanLimits(NamedTuple):
    """How much of the lists a search reads (lists.hpp, readers.hpp).

    lists: M**lists of M lists are decoded for a query like the collection. nprobe: or so many for each, if not 0.
    least: and further ones until so many vectors are. code_reach, sign_reach: deviations of the residual by which a
    vector may exceed the estimate of its code, or of its signs. walk_reach: as code_reach, for neighbors in the
    graph. candidates: kept until all is read, at least. beam: candidates whose neighbors in the graph are read too,
    if there is a graph. everything: read all bits of all vectors. further: as lists, for those that are decoded in
    further rounds because they are near enough to the worst of `results` results; there is one round if that is 0.
    """

    lists: float
    nprobe: int
    least: int
    code_reach: float
    sign_reach: float
    walk_reach: float
    candidates: int
    beam: int
    everything: bool
    further: float = 0.0
    results: int = 0


class CandidateDepths(NamedTuple):
    """How far down the ranking by codes the nearest vectors are, as measured with vectors of the collection.

    few: 99 % of the 10 nearest vectors, by their refinement, are among this many of the best by code. many: the same
    for the 100 nearest. Where hundreds of vectors are about equally near, the depths are large. reach: times as many
    deviations as usual by which estimates by code may be too low, as they are where neighbors have like residuals.
    """

    few: float = 30.0
    many: float = 150.0
    reach: float = 1.0

    @classmethod
    def from_array(cls, depths: Array) -> CandidateDepths:
        """Build from a stored array; raise ValueError if they are impossible."""
        depths = check_array(depths, np.float32, 1)
        if len(depths) != 3 or not (depths >= 1).all() or not (depths <= 1 << 20).all():
            raise ValueError("the depths of the nearest vectors are impossible")
        return cls(*depths.tolist())

    @classmethod
    def total(cls, depths: Iterable[CandidateDepths]) -> CandidateDepths:
        """Return the depths of several codecs that are searched together: the nearest may be in each."""
        few, many, reach = zip(*depths, strict=True)
        return cls(sum(few), sum(many), max(reach))

    def candidates(self, k: int, effort: float) -> int:
        """Return how many candidates a search for k results reads the refinement of.

        effort: at 0.23 they are those up to the rank of the k nearest, at more effort more, for a recall above 0.99.
        A full read has as many for any k up to 101, so that its first results do not depend on k.
        """
        low, high = RecallCurve.KS[:2]
        k = max(k, low if effort < 1 else high + 1)
        share = math.log(min(k, high) / low) / math.log(high / low)
        rank: float = self.few ** (1 - share) * self.many**share + max(k - high, 0)
        return max(k + k // 2, round(rank * (2 / 3 + effort + 2 * effort**2)))


@dataclass(frozen=True)
class Probe:
    """How much a search reads, by one number: effort, from 0 to 1.

    For a query like the collection, a search decodes the codes of about M**p of all M lists, where p = effort**(2/3):
    of one at effort 0. Which lists it decodes depends on the query: in the first round, those that score at most a
    margin less than the best one; in further rounds, those that score at most a margin less than the worst result so
    far (with a neighbor graph, of the best 10). The margins were measured for each p (Measured). So a query that is
    unlike the collection, whose results are far away, reads more lists. It keeps up to 4 times as many candidates,
    and reads more of each vector (readers.hpp). A search reads the residual of vectors that can still be among the
    results: whose estimate is too low by at most max(3.6, 6.1 · p − 0.85) · reach deviations (CandidateDepths); 1.6
    times as many in the first list and in further rounds, 0.85 times as many in the last list of the first round.
    With a neighbor graph, p is 0.8 · effort + 0.2 · effort⁸ in the first round. If the effort follows from a recall
    of at least 0.95, as by default, p is at least 0.25, and at least half that of a search without the graph where
    there is one. For such a recall, further rounds have the p of a search without the graph, up to that of effort 0.5
    for a recall of 0.95, and 1 for 1. With the graph, once the 10th result is as near as those of queries like the
    collection (Measured), they have that of the first round. After each round, a search goes on to the neighbors of
    the best candidates, and to theirs, until those of the `beam` best are known. With r = max(k, 10), the beam is r ·
    (0.4 + 2.4 · effort) up to effort 0.25, and r + 480 · e² from there, where e goes from 0 to 1; of more in
    proportion, where some vectors of the graph were removed. It reads the residual of a vector in a list whose
    estimate is too low by at most 3.5 − e + 0.8 · effort⁸ deviations, and of a neighbor by 4.6 − 2.4 · e + 1.8 ·
    effort⁸; for more results than 10, with a smaller e: the fewer candidates there are for each result, the nearer
    are results to the last candidate.

    effort: 1 reads everything. None uses the effort that finds the fraction `recall` of what a full read finds, by
    the measured curve of the collection. nprobe: the number of lists, the same for all queries. recall_at: `recall`
    is that of at most this many of the best results, so that by default the effort does not grow with k beyond that.
    beam: the number of candidates whose neighbors are compared too, instead of the one above; 0 leaves the graph out.
    like: the name of a kind of queries that the collection was tuned with.
    """

    effort: float | None = None
    nprobe: int | None = None
    recall: float = 0.95
    recall_at: int = 100
    beam: int | None = None
    like: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, effort=check_effort, nprobe=check_int, recall=check_fraction, beam=check_count)

    def effort_for(self, k: int, curves: Sequence[RecallCurve]) -> float:
        """Return the effort of a search for k results; `curves` are those of the codecs that it uses."""
        if self.effort is not None:
            return self.effort
        return max((curve.effort(self.recall, min(k, self.recall_at)) for curve in curves), default=_UNKNOWN)

    def limits(
        self,
        k: int,
        *,
        depths: CandidateDepths | None,
        curves: Sequence[RecallCurve] = (),
        graph: Sequence[RecallCurve] | None = None,
    ) -> ScanLimits:
        """Return how a search for k results reads the lists.

        depths: of the codecs that the search uses, None without a refinement. curves: theirs. graph: the curves of
        searches on the neighbor graph, None if there is none.
        """
        effort, linked = self.effort_for(k, graph or curves), graph is not None
        results = max(k, _USUAL_K)  # the curves do not know how hard fewer are to find
        above = max(0, (effort - _FEW) / (1 - _FEW))
        usual = round(results * min(1, 0.4 + 0.6 * effort / _FEW) + _BEAM * above**2)
        beam = usual if self.beam is None else self.beam
        more = max(0, beam / results - 1)  # candidates per result
        spare = min(above, math.sqrt(more * _USUAL_K / _BEAM))  # equal, for the usual k and beam
        last = effort**8  # what only the last results need
        wider = 1.0 if depths is None else depths.reach
        others = self.effort_for(k, curves)  # without the graph
        if linked:  # the graph finds most of what lists would find late; but not less than was measured with it
            above_sure = (self.recall - SURE) / (1 - SURE)
            most = _LATE + (1 - _LATE) * above_sure**2 if above_sure >= 0 else 0
            others = max(effort, min(others, most))
        lists, further = _exponent(effort, linked=linked), _exponent(others, linked=False)
        if self.effort is None and self.recall >= SURE:
            further = max(further, _SURE_LISTS)
            lists = max(lists, further / 2 if linked else further)
        return ScanLimits(
            lists=lists,
            nprobe=min(self.nprobe or 0, _MANY),
            least=0 if self.nprobe or linked else round(MIN_SCANNED * effort**2),
            code_reach=3.5 - spare + 0.8 * last if linked else wider * max(3.6, 6.1 * lists - 0.85),
            sign_reach=1.8 - 0.8 * spare + 0.8 * last if linked else 2.0,
            walk_reach=4.6 - 2.4 * spare + 1.8 * last,
            candidates=k + k // 2 if depths is None else depths.candidates(k, others),
            beam=min(beam, _MANY) if linked else 0,
            everything=effort == 1 and self.nprobe is None,
            further=further,
            results=0 if self.nprobe else _USUAL_K if linked else max(_USUAL_K, min(k, self.recall_at)),
        )


def _exponent(effort: Any, *, linked: bool) -> Any:
    """Return p: a query like the collection reads M**p of M lists at some effort, in the first round if linked."""
    return 0.8 * effort + 0.2 * effort**8 if linked else effort ** (2 / 3)


def efforts_of_lists(units: Sequence[int], *, linked: bool) -> Floats:
    """Return the effort at which a query like the collection reads 0, 1, ... of the lists of some codecs.

    units: those of each codec.
    """
    total = sum(units)
    if total <= len(units):  # what is not in lists is read at any effort
        return np.ones(total + 1, np.float32)
    each = np.maximum(np.arange(total + 1) / len(units), 1)
    grid = np.linspace(0, 1, 257)
    efforts: Array = np.interp(np.log(each) / np.log(total / len(units)), _exponent(grid, linked=linked), grid)
    return efforts.astype(np.float32)


def sort_into_lists(unit: Array, count: int) -> tuple[NDArray[np.uint32], Ids]:
    """Return (the row of each position, where the list of each of `count` units starts); unit: of each row."""
    row = np.argsort(unit, kind="stable").astype(np.uint32)
    starts = np.concatenate([[0], np.cumsum(np.bincount(unit, minlength=count))]).astype(np.int64)
    return row, starts

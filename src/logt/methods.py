"""The methods: the paper's and the default, one expression each; variants are derived from others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from inspect import signature
from typing import Any, Literal

from logt._internal.validation import check_choice
from logt.errors import InvalidInputError
from logt.group_testing.cascade import Cascade
from logt.group_testing.correction import Suppress
from logt.group_testing.decoder import GroupPinv, Local, Sparse, Transpose
from logt.group_testing.dictionary import DictionaryLearning
from logt.group_testing.grouping import Orthogonal, Random
from logt.group_testing.kmeans import KMeans
from logt.group_testing.llc import LocalityConstrained
from logt.group_testing.memory_vectors import Mean, Pinv, Sum
from logt.group_testing.method import Method
from logt.group_testing.quantize import Float32, Int4, Int8, ProductQuantizer
from logt.lists.inverted_lists import Probe
from logt.lists.residual import ResidualQuantizer

__all__ = [
    "cascaded",
    "compact",
    "dictionary",
    "gt",
    "llc",
    "lo_gt",
    "quantized",
    "rnd",
    "sketched",
    "starred",
    "with_random_units",
]


def gt(*, n: int = 50, m: int = 4, inverse: bool = False) -> Method:
    """GT of Shi et al. (2014): random units, sums, U = Gᵀ, or U = G⁺ with `inverse` (table 1, "GT pinv").

    n: vectors per unit. m: units per vector.
    """
    return Method(
        group=Random(n, m),
        memory=Sum(),
        quantize=Float32(),
        decode=GroupPinv() if inverse else Transpose(),
    )


def rnd(*, n: int = 50, m: int = 4, L: int | None = 300, order: Literal[0, 1] = 1) -> Method:
    """RND: random units, pinv memory vectors, a local decoder.

    n: vectors per unit. m: units per vector. L: entries of U per vector; None keeps all of S₀ or S₁. order: 0 decodes
    from the units of a vector (S₀), 1 also from the units of their members (S₁).
    """
    check_choice("order", order, (0, 1))
    decode = Local(order, weights="float32") if L is None else Sparse(L, "S1" if order else "S0", weights="float32")
    return Method(group=Random(n, m), memory=Pinv(), quantize=Float32(), decode=decode)


def with_random_units(method: Method) -> Method:
    """The control experiment of a sparse 1-order decoder: S₀ and random units instead of S₁, as many in total.

    method: with a sparse decoder over S₁.
    """
    if not isinstance(method.decode, Sparse) or method.decode.support != "S1":
        raise InvalidInputError(f"this control needs a sparse decoder over S₁, got {method.decode!r}")
    return replace(method, decode=replace(method.decode, support="S0+random"))


def lo_gt(*, n: int = 50, m: int = 4, L: int | None = 300, order: Literal[0, 1] = 1, k: int = 20) -> Method:
    """LO-GT of table 1: like RND, with orthogonal units.

    n, m, L, order: as in `rnd`. k: units that are grown together.
    """
    return replace(rnd(n=n, m=m, L=L, order=order), group=Orthogonal(n, m, k))


def sketched(
    *,
    bits: int | None = None,
    L: int = 4,
    units: int | None = None,
    refine: bool = True,
    recall: float = 0.95,
    effort: float | None = None,
) -> Method:
    """The default: units of similar vectors, L entries per vector, and a few bits per dimension of the residual.

    bits: per dimension of the residual, 2 by default (4 up to 256 dimensions). L: entries of U per vector. units: the
    number of units (inverted lists), 4·√N by default. refine: keep one more byte per dimension, mapped from disk and
    read for the best candidates only. recall, effort: defaults of the searches, see `logt.SearchParams`; without an
    effort, a search finds this fraction of what a full read finds.
    """
    return Method(
        group=KMeans(units),
        memory=Mean(),
        quantize=Int4(),
        decode=Sparse(L, "near", candidates=max(32, 4 * L), weights="int8"),
        residual=ResidualQuantizer(bits, refine),
        probe=Probe(effort, recall=recall),
    )


def dictionary(
    *, n: float = 12.5, L: int = 50, epochs: int = 4, coreset: Literal["sensitivity", "uniform"] | None = None
) -> Method:
    """DL of Iscen et al. (2016): N/n atoms trained with codes of L entries, on all vectors or on a coreset.

    n: vectors per atom. L: entries of U per vector. epochs: rounds of training. coreset: train on a fifth of the
    vectors, drawn by sensitivity or uniformly; None uses all.
    """
    return Method(
        group=KMeans(n=n, rounds=2, sample=4),
        memory=DictionaryLearning(L, epochs, coreset=coreset),
        quantize=Float32(),
        decode=Sparse(L, "free", weights="float32"),
    )


def llc(*, n: float = 12.5, L: int = 10) -> Method:
    """Locality-constrained linear coding with L entries per vector over N/n k-means centroids.

    n: vectors per centroid. L: entries of U per vector.
    """
    return Method(group=KMeans(n=n), memory=Mean(), quantize=Float32(), decode=LocalityConstrained(L))


def starred(method: Method, *, depth: int = 500) -> Method:
    """RND -> RND*, LO-GT -> LO-GT*: add the correction to a method.

    method: without correction. depth: the number of results that the correction looks at.
    """
    return replace(method, correct=Suppress(depth))


def cascaded(method: Method, *, p: float = 0.7, R: int = 1000) -> Method:
    """Decode in two steps: U⁰ for all vectors, all of U for a shortlist.

    method: without inverted lists. p: the fraction of the energy of each code that U⁰ has. R: the length of the
    shortlist.
    """
    return replace(method, cascade=Cascade(p, R))


def quantized(method: Method, *, c: int, fit: Literal["stored", "exact"] = "stored") -> Method:
    """Memory vectors of c bytes by product quantization (section 3.2, table 2); needs `logt-search[pq]`.

    method: any of the paper's. c: bytes per memory vector. fit: "exact" fits U to Y, as in the table's first row.
    """
    return replace(method, quantize=ProductQuantizer(c), fit=fit)


def compact(method: Method) -> Method:
    """One byte per component of Y and per weight of U: a quarter of the bytes, in practice the same results.

    method: any of the paper's.
    """
    decode = method.decode
    if isinstance(decode, Local | Sparse):
        decode = replace(decode, weights="int8")
    return replace(method, quantize=Int8(), decode=decode)


def _check_method(method: object) -> Method:
    """Return the method of an index, `sketched()` for None; otherwise raise an error that shows how to pass it."""
    if method is None:
        return sketched()
    if isinstance(method, Method):
        return method
    raise InvalidInputError(f"method must be a Method, such as logt.methods.{_example(method)}, got {method!r}")


def _example(given: object) -> str:
    """Return a call of the method that was probably meant, `sketched` unless a name is like that of another."""
    if isinstance(given, int) and not isinstance(given, bool):
        return f"sketched(bits={given})"
    if isinstance(given, dict) and given.keys() <= signature(sketched).parameters.keys():
        return f"sketched({', '.join(f'{name}={value!r}' for name, value in given.items())})"
    name = given if isinstance(given, str) else getattr(given, "__name__", "")
    close = get_close_matches(name.replace("-", "_").lower(), __all__, 1)
    return f"{close[0] if close else 'sketched'}()"


def _describe_method(method: Method) -> str:
    """Return a method in a few words: the call of `sketched` that makes it, or else the names of its stages."""
    residual, probe = method.residual, method.probe
    if isinstance(method.group, KMeans) and isinstance(method.decode, Sparse) and residual and probe:
        given: dict[str, Any] = {"bits": residual.bits, "L": method.decode.L, "units": method.group.units}
        given |= {"refine": residual.refine, "recall": probe.recall, "effort": probe.effort}
        if sketched(**given) == method:
            defaults = signature(sketched).parameters
            changed = [f"{name}={value!r}" for name, value in given.items() if value != defaults[name].default]
            return f"sketched({', '.join(changed)})"
    stages = (getattr(method, field.name) for field in fields(method))
    return ", ".join(type(stage).__name__ for stage in stages if is_dataclass(stage))


def _refuse_unknown(names: Iterable[str]) -> None:
    """Raise if an index is given parameters that it does not have; point at the method for those of a method."""
    for name in names:
        for function in (sketched, lo_gt):
            if name in signature(function).parameters:
                raise TypeError(
                    f"Index has no parameter {name!r}; it is one of the method: "
                    f"Index(dim, method=logt.methods.{function.__name__}({name}=...))"
                )
        raise TypeError(f"Index has no parameter {name!r}")

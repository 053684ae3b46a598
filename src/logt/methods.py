"""The default method and the methods of the paper, one expression each; variants are derived from others."""

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from inspect import signature
from typing import Literal

from logt._internal.validation import check_choice
from logt.engine.protocols import Method
from logt.errors import InvalidInputError
from logt.group_testing.cascade import Cascade
from logt.group_testing.correction import Suppress
from logt.group_testing.decoder import GroupPinv, Sparse, Transpose
from logt.group_testing.dictionary import DictionaryLearning
from logt.group_testing.grouping import KMeans, Orthogonal, Random
from logt.group_testing.memory_vectors import Pinv, Sum
from logt.group_testing.method import GroupTesting
from logt.group_testing.quantize import Float32, Int8, ProductQuantizer
from logt.lists.method import Sketched

__all__ = [
    "cascaded",
    "compact",
    "dictionary",
    "gt",
    "lo_gt",
    "quantized",
    "rnd",
    "sketched",
    "starred",
]


def gt(*, n: int = 50, m: int = 4, inverse: bool = False) -> GroupTesting:
    """GT of Shi et al. (2014): random units, sums, U = Gᵀ, or U = G⁺ with `inverse` (table 1, "GT pinv").

    n: vectors per unit. m: units per vector.
    """
    return GroupTesting(
        group=Random(n, m),
        memory=Sum(),
        quantize=Float32(),
        decode=GroupPinv() if inverse else Transpose(),
    )


def rnd(*, n: int = 50, m: int = 4, L: int | None = 300, order: Literal[0, 1] = 1) -> GroupTesting:
    """RND: random units, pinv memory vectors, a local decoder.

    n: vectors per unit. m: units per vector. L: entries of U per vector; None keeps all of S₀ or S₁. order: 0 decodes
    from the units of a vector (S₀), 1 also from the units of their members (S₁).
    """
    check_choice("order", order, (0, 1))
    decode = Sparse(L, "S1" if order else "S0", weights="float32")
    return GroupTesting(group=Random(n, m), memory=Pinv(), quantize=Float32(), decode=decode)


def lo_gt(*, n: int = 50, m: int = 4, L: int | None = 300, order: Literal[0, 1] = 1, k: int = 20) -> GroupTesting:
    """LO-GT of table 1: like RND, with orthogonal units.

    n, m, L, order: as in `rnd`. k: the number of units that grow together.
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
) -> Sketched:
    """The default: units of similar vectors, L entries per vector, and a few bits per dimension of the residual.

    bits: per dimension of the residual, 1 to 8; 2 by default (4 up to 256 dimensions). L: entries of U per vector.
    units: the number of units (inverted lists), 4·√N by default. refine: keep one more byte per dimension, mapped
    from disk and read for the best candidates only. recall, effort: defaults of the searches, see
    `logt.SearchParams`; without an effort, a search finds this fraction of the results of a full scan.
    """
    return Sketched(bits, L, units, refine, recall, effort)


def dictionary(
    *, n: float = 12.5, L: int = 50, epochs: int = 4, coreset: Literal["sensitivity"] | None = None
) -> GroupTesting:
    """DL of Iscen et al. (2016): N/n atoms trained with codes of L entries, on all vectors or on a coreset.

    n: vectors per atom. L: entries of U per vector. epochs: rounds of training. coreset: train on a fifth of the
    vectors, drawn by sensitivity; None uses all.
    """
    return GroupTesting(
        group=KMeans(n, rounds=2, sample=4),
        memory=DictionaryLearning(L, epochs, coreset=coreset),
        quantize=Float32(),
        decode=Sparse(L, "free", weights="float32"),
    )


def starred(method: Method, *, depth: int = 500) -> GroupTesting:
    """RND -> RND*, LO-GT -> LO-GT*: add the correction to a method.

    method: a method of the paper. depth: the number of results that the correction looks at.
    """
    return replace(_of_the_paper(method), correct=Suppress(depth))


def cascaded(method: Method, *, p: float = 0.7, R: int = 1000) -> GroupTesting:
    """Decode in two steps: U⁰ for all vectors, and then all of U for a shortlist.

    method: a method of the paper. p: the fraction of the energy of each code that is in U⁰. R: the length of the
    shortlist.
    """
    return replace(_of_the_paper(method), cascade=Cascade(p, R))


def quantized(method: Method, *, c: int, fit: Literal["stored", "exact"] = "stored") -> GroupTesting:
    """Memory vectors of c bytes by product quantization (section 3.2, table 2); needs `logt-search[pq]`.

    method: a method of the paper. c: bytes per memory vector. fit: "exact" fits U to Y, as in its first row.
    """
    return replace(_of_the_paper(method), quantize=ProductQuantizer(c), fit=fit)


def compact(method: Method) -> GroupTesting:
    """One byte per component of Y and per weight of U: a quarter of the bytes, with nearly the same results.

    method: a method of the paper.
    """
    plain = _of_the_paper(method)
    decode = replace(plain.decode, weights="int8") if isinstance(plain.decode, Sparse) else plain.decode
    return replace(plain, quantize=Int8(), decode=decode)


def _of_the_paper(method: Method) -> GroupTesting:
    """Return a method of the paper; raise InvalidInputError for another, which has no stages."""
    if not isinstance(method, GroupTesting):
        raise InvalidInputError(f"this is for methods of the paper, such as lo_gt(), got {method!r}")
    return method


def _check_method(method: object) -> Method:
    """Return the method of an index, `sketched()` for None; otherwise raise an error that shows how to pass it."""
    if method is None:
        return sketched()
    if isinstance(method, Sketched | GroupTesting):
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

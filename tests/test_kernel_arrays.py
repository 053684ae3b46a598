"""Kernels take arrays as they are: they refuse those of another type, order or number of dimensions.

They write neither to a copy nor to an array that is read-only.
"""

import numpy as np
import pytest

from logt import _kernels
from logt.lists.codec import Codec, CodecSettings
from logt.lists.segment import ListSegment
from logt.lists.visible import VisibleRows

NONE = 0xFFFFFFFF


def zeros(kind, *shape):
    return np.zeros(shape, kind)


def f4(*shape):
    return np.ones(shape, np.float32)


UNITS = zeros("u2", 40), zeros("i1", 40)  # 20 vectors with two entries each
GRAPH = zeros("u2", 4, 10), zeros("u1", 4, 10), zeros("u1", 4, 10)
EDGES = zeros("u1", 4, 2), f4(4), zeros("f8", 256)
BYTES = zeros("i1", 6, 4), f4(6)
LIMITS = _kernels.ScanLimits(1, 0, 0, 9, 9, 9, 3, 0, True)

CALLS = {
    "grow_units": (f4(6, 6), np.array([3, 3], "i4"), False, zeros("i4", 6)),
    "first_order": (
        np.tile(np.array([0, 1], "i4"), (4, 1)),
        *(np.array([0, 4, 8]), np.tile(np.arange(4, dtype="i4"), 2), 0, zeros("i4", 4, 8), zeros("i4", 4)),
    ),
    "correlate": (f4(2, 3), f4(5, 3), zeros("i4", 2, 4), np.array([4, 4], "i4"), f4(2, 4)),
    "omp_path": (
        *(np.eye(5, dtype="f4"), f4(2, 4), np.tile(np.arange(4, dtype="i4"), (2, 1)), np.array([4, 4], "i4")),
        *(zeros("i4", 2), f4(5), np.array([1, 2], "i4"), zeros("u4", 2, 3), f4(2, 3)),
    ),
    "normal_rows": (np.tile(np.arange(2, dtype="u4"), (3, 1)), f4(3, 2), f4(3, 4), 0, f4(2, 5), f4(2, 4)),
    "decode_one": (*UNITS, f4(20), f4(20), np.ones(20, "u2"), f4(5), f4(3), zeros("i4", 3)),
    "decode_prefix": (
        *(np.arange(32, dtype="u4") % 20, np.array([0, 1, 2]), zeros("u2", 32), zeros("i1", 32)),
        *(f4(20), f4(20), f4(5), f4(3), zeros("i4", 3)),
    ),
    "decode_tile": (*UNITS, f4(20), f4(20), np.ones(20, "u2"), f4(5, 16), f4(2, 3), zeros("i4", 2, 3)),
    "refine": (*UNITS, f4(20), np.ones(20, "u2"), f4(2, 5), zeros("i4", 2, 3), f4(2, 3)),
    "reconstruct": (*UNITS, f4(5, 4), f4(20, 4)),
    "to_int8": (f4(3, 4), zeros("i1", 3, 4), f4(3)),
    "rotate": (f4(3, 8), f4(2, 8), 0, 8, False),
    "rank": (f4(2, 5), zeros("i8", 2, 5), zeros("i8", 2, 3)),
    "byte_products": (zeros("i1", 3, 4), zeros("i1", 5, 4), zeros("i4", 3, 5)),
    "nearest_units": (
        *(*BYTES, zeros("i1", 5, 4), f4(5), f4(5), np.array([0, 2, 5]), np.arange(5, dtype="u4"), zeros("u4", 6, 2)),
        *(zeros("u4", 6), f4(6), zeros("u4", 6, 3), f4(6, 3), zeros("i4", 6)),
    ),
    "group_rows": (np.tile(np.arange(2, dtype="u4"), (3, 1)), zeros("i8", 3), zeros("u4", 6)),
    "compare_lists": (
        *(*BYTES, np.array([0, 3, 6]), np.array([0, 2, 4]), np.array([0, 1, 0, 1], "u4"), 0, 0),
        *(np.full((6, 3), NONE, "u4"), np.full((6, 3), -np.inf, "f4"), zeros("u1", 6)),
    ),
    "adjacent_rows": (np.tile(np.array([[4, 5]], "u4"), (6, 1)), 2, zeros("u4", 6, 3)),
    "join_rows": (*BYTES, np.full((6, 3), NONE, "u4"), 0, np.full((6, 2), NONE, "u4")),
    "similarities": (*BYTES, 0, zeros("u4", 6, 2), f4(6, 2)),
    "is_permutation": (np.arange(5, dtype=np.uint32),),
    "divide_by_norms": (f4(3, 4), True, 1e-15, 1e18, zeros("f8", 3)),
    "suppress": (zeros("i8", 2, 3, 2), 2, zeros("i8", 2, 3), zeros("i8", 2)),
    "find_mutual": (*GRAPH, 9, zeros("f8", 256), 0.1, *EDGES[:2]),
    "spread": (
        *(*GRAPH, *EDGES, np.arange(2), np.ones(2), np.ones(4, bool)),
        *(0.5, 1, 4, 5, 1e-6, zeros("i8", 4), zeros("f8", 4)),
    ),
}


class Recorder:
    """Stands for a ListSearcher, and keeps the arguments of the last call."""

    def __getattr__(self, name):
        def record(*arguments):
            self.arguments = arguments

        return record


@pytest.fixture(scope="module")
def searcher_calls():
    """Valid calls of a ListSearcher: {name: (function, arguments)}."""
    X = np.random.default_rng(0).standard_normal((1100, 8), np.float32)
    codec = Codec.train(X, CodecSettings(4, 3, 2, True), np.random.default_rng(0), normalized=False)
    segment = ListSegment.build(codec, X, np.arange(1100), distances=True)
    recorder, searcher = Recorder(), _kernels.ListSearcher()
    codec.add_to(recorder, codec.measured, distances=True)
    codec_arguments = recorder.arguments
    searcher.add_codec(*codec_arguments)
    VisibleRows.of(segment, None).add_to(searcher, 0)
    names = ("starts", "unit", "weight", "scale", "factor", "bias", "sign_bits", "low_bits", "refinement")
    names = (*names, "refinement_scale", "row", "ids")
    arrays = segment.compiled

    def add(*given):
        other = _kernels.ListSearcher()
        other.add_codec(*codec_arguments)
        given_arrays = _kernels.SegmentArrays(**dict(zip(names, given, strict=True)))
        other.add_segment(0, given_arrays, np.ones(1100, bool), 1100, zeros("u4", 0))

    def add_visible(*given):
        _kernels.ListSearcher().add_segment(0, arrays, given[0], 1100, given[1])

    nodes = np.full(1100, NONE, "u4")
    part = _kernels.SegmentNodes(arrays, nodes, zeros("u4", 0))

    def set_graph(*given):
        searcher.set_graph(*given, _kernels.GraphNodes(4), [part])

    out = f4(2, 3), zeros("i8", 2, 3)
    return {
        "add_codec": (lambda *given: _kernels.ListSearcher().add_codec(*given), codec_arguments),
        "SegmentArrays": (add, [getattr(segment, name) for name in names]),
        "add_segment": (add_visible, (np.ones(1100, bool), np.arange(1100, dtype="u4"))),
        "add_totals": (_kernels.ListSearcher().add_totals, (np.arange(4), np.arange(4), 0)),
        "SegmentNodes": (lambda *given: _kernels.SegmentNodes(arrays, *given), (nodes, np.arange(9, dtype="u4"))),
        "set_graph": (set_graph, (*GRAPH, np.zeros(4, bool))),
        "search": (searcher.search, (X[:2], True, LIMITS, *out, f4(2, 3), zeros("i8", 2, 5))),
        "search_one": (searcher.search_one, (X[0], False, 1e-15, 1e18, True, LIMITS, out[0][0], out[1][0])),
        "scores": (searcher.scores, (0, X[0], True, 0, f4(9))),
    }


def wrong_arrays(array, *, any_shape=False):
    """Return the array as another type, with the other order of bytes, other dimensions, gaps, and as in Fortran."""
    gaps = np.repeat(array, 2, axis=-1)[..., ::2], np.repeat(array, 2, axis=0)[::2], np.asfortranarray(array)
    other = array.astype(np.float32 if array.dtype == np.float64 else np.float64)
    swapped = [array.astype(array.dtype.newbyteorder())] if array.dtype.itemsize > 1 else []
    shapes = [] if any_shape else [array[None], array[..., None]]
    return [other, *swapped, *shapes, *(copy for copy in gaps if not copy.flags.c_contiguous)]


def check_refusals(call, arguments, **shapes):
    first = [np.copy(a) for a in arguments]
    call(*arguments)
    written = [place for place, a in enumerate(arguments) if not np.array_equal(a, first[place])]
    for place in written:
        locked = first[place].copy()
        locked.flags.writeable = False
        with pytest.raises(TypeError):
            call(*arguments[:place], locked, *arguments[place + 1 :])
        np.testing.assert_array_equal(locked, first[place])
    arrays = {place: a for place, a in enumerate(arguments) if isinstance(a, np.ndarray)}
    before = {place: a.copy() for place, a in arrays.items()}
    for place, array in arrays.items():
        for wrong in wrong_arrays(array, **shapes):
            with pytest.raises(TypeError):
                call(*arguments[:place], wrong, *arguments[place + 1 :])
            np.testing.assert_array_equal(wrong.reshape(array.shape), before[place])
            for other, a in arrays.items():
                np.testing.assert_array_equal(a, before[other])


@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_refuses_an_array_of_another_type_or_shape(name):
    check_refusals(getattr(_kernels, name), [np.copy(a) if isinstance(a, np.ndarray) else a for a in CALLS[name]])


def test_a_searcher_refuses_an_array_of_another_type_or_shape(searcher_calls):
    for name, (call, arguments) in searcher_calls.items():
        check_refusals(call, list(arguments), any_shape=name == "search_one")  # q may be a vector or a row


def test_every_kernel_is_called_here(searcher_calls):
    functions = {name for name in dir(_kernels) if not name.startswith("_") and "instruction_set" not in name}
    assert functions - {"ScanLimits", "SegmentArrays", "SegmentNodes", "GraphNodes", "ListSearcher"} == set(CALLS)
    methods = {name for name in dir(_kernels.ListSearcher) if not name.startswith("_")}
    assert methods | {"SegmentArrays", "SegmentNodes"} == set(searcher_calls)

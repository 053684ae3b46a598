"""Types of the compiled module; each function is described next to its code in src/kernels/."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]

def instruction_sets() -> list[str]: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str) -> None: ...
def grow_units(A: Array, sizes: Array, sum: bool, out: Array) -> None: ...
def first_order(units: Array, offsets: Array, members: Array, first: int, out: Array, counts: Array) -> None: ...
def correlate(X: Array, A: Array, support: Array, counts: Array, out: Array) -> None: ...
def omp_path(
    gram: Array,
    corr: Array,
    support: Array,
    counts: Array,
    first: Array,
    rescale: Array,
    lengths: Array,
    unit: Array,
    weight: Array,
) -> None: ...
def normal_rows(unit: Array, weight: Array, X: Array, first: int, A: Array, B: Array) -> None: ...
def decode_one(
    unit: Array,
    weight: Array,
    scale: Array,
    bias: Array,
    length: Array,
    c: Array,
    scores: Array,
    rows: Array,
) -> None: ...
def decode_prefix(
    row: Array,
    starts: Array,
    unit: Array,
    weight: Array,
    scale: Array,
    bias: Array,
    c: Array,
    scores: Array,
    rows: Array,
) -> None: ...
def decode_tile(
    unit: Array,
    weight: Array,
    scale: Array,
    bias: Array,
    length: Array,
    C: Array,
    scores: Array,
    rows: Array,
) -> None: ...
def refine(
    unit: Array,
    weight: Array,
    scale: Array,
    length: Array,
    C: Array,
    rows: Array,
    scores: Array,
) -> None: ...
def reconstruct(unit: Array, weight: Array, Y: Array, out: Array) -> None: ...
def to_int8(V: Array, codes: Array, scale: Array) -> None: ...
def rotate(X: Array, signs: Array, start: int, size: int, back: bool) -> None: ...

class ScanLimits:
    def __init__(
        self,
        lists: float,
        nprobe: int,
        least: int,
        code_reach: float,
        sign_reach: float,
        walk_reach: float,
        candidates: int,
        beam: int,
        everything: bool,
        further: float = 0.0,
        results: int = 0,
    ) -> None: ...

class SegmentArrays:
    def __init__(
        self,
        *,
        starts: Array,
        unit: Array,
        weight: Array,
        scale: Array,
        factor: Array,
        bias: Array,
        sign_bits: Array,
        low_bits: Array,
        refinement: Array,
        refinement_scale: Array,
        row: Array,
        ids: Array,
    ) -> None: ...

class SegmentNodes:
    def __init__(self, arrays: SegmentArrays, node: Array, unlinked: Array) -> None: ...

class GraphNodes:
    def __init__(self, count: int) -> None: ...
    def copy(self) -> GraphNodes: ...
    def place(self, arrays: SegmentArrays, part: SegmentNodes, first: int) -> None: ...
    def clear(self, part: SegmentNodes) -> None: ...

class ListSearcher:
    def __init__(self) -> None: ...
    def add_codec(
        self,
        mean: Array,
        order: Array,
        signs: Array,
        bands: Array,
        book: Array,
        book_scale: Array,
        list_weight: Array,
        list_bias: Array,
        group_starts: Array,
        compared: int,
        margins: Array,
        near: float,
        sign_bytes: int,
        low_bytes: int,
    ) -> int: ...
    def add_segment(
        self, codec: int, arrays: SegmentArrays, visible: Array, count: int, chosen: Array | None
    ) -> None: ...
    def add_totals(self, rows: Array, visible: Array, scanned: int) -> None: ...
    def set_graph(
        self,
        low: Array,
        high: Array,
        level: Array,
        removed: Array,
        nodes: GraphNodes,
        parts: Sequence[SegmentNodes],
    ) -> int: ...
    def search(
        self, Q: Array, l2: bool, limits: ScanLimits, scores: Array, ids: Array, keys: Array, counts: Array
    ) -> None: ...
    def search_one(
        self,
        q: Array,
        cosine: bool,
        least: float,
        most: float,
        l2: bool,
        limits: ScanLimits,
        scores: Array,
        ids: Array,
    ) -> int | None: ...
    def scores(self, segment: int, q: Array, l2: bool, begin: int, out: Array) -> None: ...

def rank(scores: Array, id: Array, order: Array) -> None: ...
def byte_products(X: Array, Y: Array, out: Array) -> None: ...
def nearest_units(
    X: Array,
    X_scale: Array,
    Y: Array,
    Y_scale: Array,
    norm: Array,
    starts: Array,
    members: Array,
    lists: Array,
    nearest: Array,
    value: Array,
    unit: Array,
    product: Array,
    counts: Array,
) -> None: ...
def group_rows(lists: Array, starts: Array, rows: Array) -> None: ...
def compare_lists(
    codes: Array,
    scale: Array,
    lists: Array,
    starts: Array,
    rows: Array,
    offset: int,
    begin: int,
    found: Array,
    value: Array,
    lock: Array,
) -> None: ...
def adjacent_rows(found: Array, forward: int, adjacent: Array) -> None: ...
def join_rows(codes: Array, scale: Array, adjacent: Array, first: int, found: Array) -> int: ...
def similarities(codes: Array, scale: Array, first: int, found: Array, out: Array) -> None: ...
def divide_by_norms(X: Array, normalize: bool, least: float, most: float, norms: Array) -> bool: ...
def is_permutation(numbers: Array) -> bool: ...
def suppress(units: Array, depth: int, order: Array, counts: Array) -> None: ...
def find_mutual(
    low: Array, high: Array, level: Array, first: int, above: Array, least: float, mutual: Array, gain: Array
) -> None: ...
def spread(
    low: Array,
    high: Array,
    level: Array,
    mutual: Array,
    gain: Array,
    cube: Array,
    rows: Array,
    y: Array,
    visible: Array,
    alpha: float,
    hops: int,
    limit: int,
    steps: int,
    precision: float,
    nodes: Array,
    f: Array,
) -> int: ...

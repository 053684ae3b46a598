"""cuVS, as `make gpu-bench` runs it beside logt: inverted lists with product quantization, and CAGRA.

Install cuVS for the CUDA of the driver (cuvs-cu13). Without it, its rows are left out, and the benchmark says so.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from logt._internal.types import Floats
from logt.gpu.device import Device

Search = Callable[[Floats], Any]
"""Queries in host memory -> ids there."""

CANDIDATES = 40  # that are compared again by the vectors themselves, for 10 results
METRIC = "inner_product"  # the vectors have a norm of 1
LISTS = 16_384  # for 10^7 vectors, and fewer for fewer
PROBES = (2, 4, 8, 16, 32, 64, 128, 256)
WIDTHS = (64, 128, 256, 512)  # of the candidates of CAGRA
STARTS = 32  # random vectors times so many, where walks of CAGRA start: with the default it finds less in clusters


def searches(X: Any, k: int, device: Device) -> Iterator[tuple[str, float, Iterator[tuple[str, Search]]]]:
    """Yield (system, seconds of its build, (setting, search)) of each system of cuVS for X, float16 on the device."""
    try:
        from cuvs.neighbors import cagra, ivf_pq
    except ImportError as error:
        print(f"cuVS is left out ({error}): install cuvs-cu13", flush=True)
        return
    lists = min(LISTS, max(1, len(X) // 600))
    params = ivf_pq.IndexParams(
        n_lists=lists, metric=METRIC, pq_dim=X.shape[1] // 2, pq_bits=4, kmeans_trainset_fraction=0.1
    )
    index, seconds = _built(lambda: ivf_pq.build(params, X), device)
    yield f"cuVS IVF-PQ, {lists} lists, refined", seconds, _ivf_pq(index, X, k, device)
    del index
    device.release()
    index, seconds = _built(lambda: cagra.build(cagra.IndexParams(metric=METRIC), X), device)
    yield "cuVS CAGRA", seconds, _cagra(index, k, device)


def _ivf_pq(index: Any, X: Any, k: int, device: Device) -> Iterator[tuple[str, Search]]:
    from cuvs.neighbors import ivf_pq, refine

    half = device.xp.float16
    for probes in PROBES:
        params = ivf_pq.SearchParams(n_probes=probes, lut_dtype=half, internal_distance_dtype=half)

        def search(Q: Floats, params: Any = params) -> Any:
            q = device.put(Q).astype(half)
            _, candidates = ivf_pq.search(params, index, q, CANDIDATES)
            _, ids = refine(X, q, candidates, k=k, metric=METRIC)
            return device.get(device.xp.asarray(ids))

        yield f"{probes} lists", search


def _cagra(index: Any, k: int, device: Device) -> Iterator[tuple[str, Search]]:
    from cuvs.neighbors import cagra

    for width in WIDTHS:
        params = cagra.SearchParams(itopk_size=width, num_random_samplings=STARTS)

        def search(Q: Floats, params: Any = params) -> Any:
            q = device.put(Q).astype(device.xp.float16)
            _, ids = cagra.search(params, index, q, k)
            return device.get(device.xp.asarray(ids)).astype("int64")

        yield f"itopk {width}", search


def _built(build: Callable[[], Any], device: Device) -> tuple[Any, float]:
    start = time.perf_counter()
    index = build()
    device.synchronize()
    return index, round(time.perf_counter() - start, 2)

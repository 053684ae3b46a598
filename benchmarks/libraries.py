"""Other libraries (the extra "baselines"), each called as its own documentation shows, on one thread to search."""

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.interface import Built, Collection, Settings, System, UnsupportedError, grid, saved_sizes
from logt.baselines.external import omp_threads

_LISTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_WIDTHS = (10, 20, 40, 80, 160, 320, 640, 1280)


_PACKAGES = {  # the package, its module, and the machines that it is published for
    "rabitqlib": ("rabitqlib", "rabitqlib", ""),
    "SVS": ("scalable-vs", "svs", "Linux on x86-64 only"),
    "usearch": ("usearch", "usearch", ""),
    "ScaNN": ("scann", "scann", "Linux on x86-64, up to Python 3.13"),
    "turbovec": ("turbovec", "turbovec", ""),
    "faiss": ("faiss-cpu", "faiss", ""),
}


def library_systems() -> list[System]:
    """Return the systems of all other libraries."""
    lists, graph = grid("{} lists", nprobe=_LISTS), grid("ef {}", ef=_WIDTHS)
    windows, widths = grid("window {}", window=_WIDTHS), grid("ef {}", ef=(16, 32, 64, 128, 256, 512))
    leaves = grid("{} leaves, reorder {}", leaves=_LISTS[2:], reorder=(50, 200))
    refined = grid("{} lists, k_factor {}", nprobe=_LISTS[1:], k_factor=(4, 16))
    faiss = {
        "IVF,SQ8": ("IVF{lists},SQ8", lists),
        "IVF,SQ4": ("IVF{lists},SQ4", lists),
        "IVF,PQfs": ("IVF{lists},PQ{half}x4fs", lists),
        "IVF,PQfs,Refine(SQ8)": ("IVF{lists},PQ{half}x4fs,Refine(SQ8)", refined),
        "IVF,RaBitQ": ("IVF{lists},RaBitQ", lists),
        "HNSW32": ("HNSW32,Flat", graph),
        "HNSW32,SQ8": ("HNSW32,SQ8", graph),
    }
    return [
        *(_system(f"rabitqlib IVF {bits} bit", partial(_rabitq_ivf, bits=bits), lists) for bits in (2, 4, 8)),
        *(_system(f"rabitqlib HNSW {bits} bit", partial(_rabitq_hnsw, bits=bits), graph) for bits in (4, 8)),
        _system("rabitqlib SymQG 8 bit", partial(_symqg, bits=8), graph),
        _system("SVS Vamana LVQ4x4", partial(_vamana, primary=4, residual=4), windows),
        _system("SVS Vamana LVQ4x8", partial(_vamana, primary=4, residual=8), windows),
        _system("SVS Vamana LVQ8", partial(_vamana, primary=8, residual=0), windows),
        *(_system(f"usearch {dtype}", partial(_usearch, dtype=dtype), widths) for dtype in ("i8", "f16")),
        _system("ScaNN", _scann, leaves),
        *(_system(f"turbovec {bits} bit", partial(_turbovec, bits=bits), {"": {}}) for bits in (2, 4)),
        *(
            _system(f"faiss {name}", partial(_faiss, description=description), settings)
            for name, (description, settings) in faiss.items()
        ),
    ]


def _system(name: str, build: Callable[[Collection], Built], settings: Settings) -> System:
    library = name.split()[0]
    # the pool of threads of turbovec is as large as this variable states, for builds too
    environment = {"RAYON_NUM_THREADS": "1"} if library == "turbovec" else {}
    return System(name, build, settings, *_PACKAGES[library], environment=environment)


def _by_metric(data: Collection, product: Any, distance: Any) -> Any:
    """Return a library's own name of the metric. Vectors are of unit norm under cosine."""
    return distance if data.metric == "l2" else product


def list_count(N: int) -> int:
    """Return the number of inverted lists of all libraries but ScaNN: 4·√N, as rabitqlib advises."""
    return max(1, round(4 * math.sqrt(N)))


def centroids(data: Collection, count: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return (k-means centroids, the centroid of each vector, seconds that an earlier build spent on them)."""
    path = data.folder / f"centroids-{count}.npz"
    if path.exists():
        stored = np.load(path)
        return stored["C"], stored["assigned"], float(stored["seconds"])
    import faiss

    start = time.perf_counter()
    kmeans = faiss.Kmeans(data.dim, count, niter=10, seed=1, max_points_per_centroid=80, min_points_per_centroid=1)
    with omp_threads(data.threads):
        kmeans.train(data.X)
        assigned = kmeans.index.search(data.X, 1)[1].ravel().astype(np.uint32)
    np.savez(path, C=kmeans.centroids, assigned=assigned, seconds=time.perf_counter() - start)
    return kmeans.centroids, assigned, 0.0


def _rabitq_ivf(data: Collection, bits: int) -> Built:
    import rabitqlib

    count = list_count(data.N)
    C, assigned, seconds = centroids(data, count)
    index = rabitqlib.IvfIndex(
        dim=data.dim, max_elements=data.N, num_clusters=count, nbits=bits, metric=_by_metric(data, "ip", "l2")
    )
    index.build(data.X, C, assigned, num_threads=data.threads)

    def search(Q: np.ndarray, k: int, nprobe: int) -> np.ndarray:
        return index.search(Q, k=k, nprobe=min(nprobe, count))[0]

    return Built(search, lambda: saved_sizes(index.save), seconds)


def _rabitq_hnsw(data: Collection, bits: int) -> Built:
    import rabitqlib

    C, assigned, seconds = centroids(data, 16)
    index = rabitqlib.HnswIndex(
        dim=data.dim, max_elements=data.N, M=16, ef_construction=200, nbits=bits, metric=_by_metric(data, "ip", "l2")
    )
    index.build(data.X, C, assigned, num_threads=data.threads)
    return _rabitq_graph(index, seconds)


def _symqg(data: Collection, bits: int) -> Built:
    import rabitqlib

    index = rabitqlib.SymqgIndex(
        dim=data.dim, max_degree=32, metric=_by_metric(data, "ip", "l2"), quantization_bits=bits
    )
    index.build(data.X, 200, num_threads=data.threads)
    return _rabitq_graph(index)


def _rabitq_graph(index: Any, seconds: float = 0.0) -> Built:
    def search(Q: np.ndarray, k: int, ef: int) -> np.ndarray:
        return index.search(Q, k=k, ef=max(ef, k))[0]

    return Built(search, lambda: saved_sizes(index.save), seconds)


def _vamana(data: Collection, primary: int, residual: int) -> Built:
    import svs

    vectors = data.folder / "vectors.svs"
    if not vectors.exists():
        svs.write_vecs(data.X, str(data.folder / "vectors.fvecs"))
        svs.convert_vecs_to_svs(str(data.folder / "vectors.fvecs"), str(vectors))
        (data.folder / "vectors.fvecs").unlink()
    parameters = svs.VamanaBuildParameters(
        alpha=_by_metric(data, 0.95, 1.2),
        graph_max_degree=32,
        window_size=100,
        prune_to=30,
        max_candidate_pool_size=200,
    )
    uncompressed = svs.VectorDataLoader(str(vectors), svs.DataType.float32, dims=data.dim)
    loader = svs.LVQLoader(uncompressed, primary=primary, residual=residual, padding=32)
    distance = _by_metric(data, svs.DistanceType.MIP, svs.DistanceType.L2)
    index = svs.Vamana.build(parameters, loader, distance, num_threads=data.threads)
    index.num_threads = 1

    def search(Q: np.ndarray, k: int, window: int) -> np.ndarray:
        index.search_window_size = max(window, k)
        return index.search(Q, k)[0]

    def save(path: str) -> None:
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        index.save(*(str(folder / part) for part in ("config", "graph", "data")))

    return Built(search, lambda: saved_sizes(save))


def _scann(data: Collection) -> Built:
    import scann

    leaves_total = max(1, min(data.N // 10, round(3.1 * math.sqrt(data.N))))
    distance = _by_metric(data, "dot_product", "squared_l2")
    builder = scann.scann_ops_pybind.builder(data.X, 10, distance).set_n_training_threads(data.threads)
    tree = builder.tree(
        num_leaves=leaves_total, num_leaves_to_search=min(50, leaves_total), training_sample_size=data.N
    )
    threshold = {"anisotropic_quantization_threshold": 0.2} if distance == "dot_product" else {}
    searcher = tree.score_ah(2, **threshold).reorder(100).build()

    def search(Q: np.ndarray, k: int, leaves: int, reorder: int) -> np.ndarray:
        ids, _ = searcher.search_batched(
            Q,
            final_num_neighbors=k,
            pre_reorder_num_neighbors=max(reorder, k),
            leaves_to_search=min(leaves, leaves_total),
        )
        return ids

    def save(path: str) -> None:
        Path(path).mkdir()
        searcher.serialize(path)

    return Built(search, lambda: saved_sizes(save))


def _turbovec(data: Collection, bits: int) -> Built:
    if data.metric == "l2":
        raise UnsupportedError("turbovec compares by inner product only")
    if data.dim % 8:
        raise UnsupportedError(f"turbovec needs a dimension that is a multiple of 8, got {data.dim}")
    import turbovec

    index = turbovec.TurboQuantIndex(data.dim, bits)
    index.calibrate(data.X[np.random.default_rng(0).choice(data.N, min(1024, data.N), replace=False)])
    index.add(data.X)
    index.prepare()
    return Built(lambda Q, k: np.asarray(index.search(Q, k)[1]), lambda: 2 * (len(index.to_bytes()),))


def _usearch(data: Collection, dtype: str) -> Built:
    from usearch.index import Index

    # from floats, usearch makes int8 of unit vectors, whose components use few of the 256 values: scale them here
    scale = np.float32(127 / max(float(np.abs(data.X).max()), 1e-30))

    def converted(V: np.ndarray) -> np.ndarray:
        return np.clip(np.rint(V * scale), -127, 127).astype(np.int8) if dtype == "i8" else V

    index = Index(
        ndim=data.dim, metric=_by_metric(data, "ip", "l2sq"), dtype=dtype, connectivity=16, expansion_add=128
    )
    index.add(np.arange(data.N), converted(data.X), threads=data.threads)

    def search(Q: np.ndarray, k: int, ef: int) -> np.ndarray:
        index.expansion_search = max(ef, k)
        found = index.search(converted(Q), k, threads=1)
        return np.atleast_2d(found.keys).astype(np.int64)

    return Built(search, lambda: saved_sizes(index.save))


def _faiss(data: Collection, description: str) -> Built:
    import faiss

    if "PQ" in description and data.dim % 2:
        raise UnsupportedError(f"this product quantizer needs an even dimension, got {data.dim}")
    count, seconds = list_count(data.N), 0.0
    metric = _by_metric(data, faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2)
    index = faiss.index_factory(data.dim, description.format(lists=count, half=data.dim // 2), metric)
    refined, graph = "Refine" in description, getattr(index, "hnsw", None)
    lists = faiss.try_extract_index_ivf(index.base_index if refined else index)
    if graph is not None:
        graph.efConstruction = 200
    if lists is not None:
        C, _, seconds = centroids(data, count)
        lists.quantizer.add(C)  # training then leaves the lists alone
    faiss.omp_set_num_threads(data.threads)
    index.train(data.X)
    index.add(data.X)
    faiss.omp_set_num_threads(1)

    def search(Q: np.ndarray, k: int, *, nprobe: int = 1, ef: int = 1, k_factor: int = 1) -> np.ndarray:
        if lists is not None:
            lists.nprobe = nprobe
        if graph is not None:
            graph.efSearch = max(ef, k)
        if refined:
            index.k_factor = k_factor
        return index.search(Q, k)[1]

    return Built(search, lambda: 2 * (len(faiss.serialize_index(index)),), seconds)

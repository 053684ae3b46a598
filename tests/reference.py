"""Reference implementations of the paper's equations and of each kernel, as naive loops."""

from dataclasses import replace

import numpy as np

STEPS = (0, 1.596, 0.9957, 0.586, 0.3352, 0.1881, 0.1041, 0.0568, 0.0308)


def grow_units(A, sizes, combine):
    """Return the unit of each vector (section 3.1).

    Unit u starts with vector u; the units take turns to add the free vector with the lowest cost.
    """
    units = [[u] for u in range(len(sizes))]
    free = set(range(len(sizes), len(A)))
    for turn in range(1, max(sizes)):
        for u in range(len(sizes)):
            if sizes[u] > turn:
                pick = min(free, key=lambda i: (combine(A[i, units[u]]), i))
                units[u].append(pick)
                free.remove(pick)
    out = np.empty(len(A), int)
    for u, members in enumerate(units):
        out[members] = u
    return out


def first_order(assignment, i):
    """Return S₁(i), the units of all vectors that share a unit with vector i."""
    sharing = [j for j in range(len(assignment)) if set(assignment[j]) & set(assignment[i])]
    return sorted({int(unit) for j in sharing for unit in assignment[j]})


def omp(atoms, x, L):
    """Return {atom: weight} of orthogonal matching pursuit of x in `atoms`, rows of norm 1."""
    chosen, residual, weights = [], x, np.empty(0)
    for _ in range(min(L, len(atoms))):
        corr = np.abs(atoms @ residual)
        corr[chosen] = -1
        chosen.append(int(corr.argmax()))
        weights = np.linalg.lstsq(atoms[chosen].T, x, rcond=None)[0]
        residual = x - weights @ atoms[chosen]
    return dict(zip(chosen, weights, strict=True))


def nearest_units(x, Y, norm, k):
    """Return (the unit nearest to x, its x·y − ‖y‖²/2, the k units with the highest products): units are norm · Y."""
    products = Y @ x
    values = products * norm - norm**2 / 2
    nearest = int(values.argmax())
    best = sorted(range(len(Y)), key=lambda j: -products[j])[:k]
    if k and nearest not in best:
        best[-1] = nearest
    return nearest, values[nearest], best


def normal_equations(unit, weight, X, units):
    """Return (UᵀU, UᵀX); row i of U has the entries weight[i] at unit[i]."""
    U = np.zeros((len(X), units))
    for i in range(len(X)):
        for j, w in zip(unit[i], weight[i], strict=True):
            U[i, j] += w
    return U.T @ U, U.T @ X


def estimates(unit, weight, scale, bias, lengths, c):
    """Return ŝ_i = scale_i · Σ_{t < length_i} weight[i, t] · c[unit[i, t]] + bias_i."""
    out = np.empty(len(unit))
    for i in range(len(unit)):
        out[i] = scale[i] * sum(weight[i, t] * c[unit[i, t]] for t in range(lengths[i])) + bias[i]
    return out


def rotate(x, signs):
    """Multiply by signs and apply a Hadamard transform to the first 2^k values, in the next round to the last 2^k."""
    n = 2 ** (len(x).bit_length() - 1)
    H = np.ones((1, 1))
    while len(H) < n:
        H = np.block([[H, H], [H, -H]]) / np.sqrt(2)
    x = x.astype(float)
    for turn, sign in enumerate(signs):
        x = x * sign
        window = slice(len(x) - n, None) if turn % 2 else slice(0, n)
        x[window] = H @ x[window]
    return x


def unpack(sign_bits, low_bits, bits):
    """The integers of residual codes (n, bytes); bit i is bit (i % 128) // 16 of byte 16 * (i // 128) + i % 16."""

    def bit(codes, i):
        return codes[:, 16 * (i // 128) + i % 16].astype(int) >> (i % 128 // 16) & 1

    fields = np.empty((len(sign_bits), len(bits)), int)
    for j in range(len(bits)):
        fields[:, j] = bit(sign_bits, j) << (bits[j] - 1)
    at = 0
    for plane in range(1, max(bits, default=0)):
        for j in range(len(bits)):
            if bits[j] > plane:
                fields[:, j] |= bit(low_bits, at) << (bits[j] - 1 - plane)
                at += 1
    return fields


def list_vectors(segment):
    """The vectors of a segment of the default index by row, rotated, each decoded from what is stored."""
    codec, bands = segment.codec, segment.codec.bands
    Y = codec.memory_vectors.astype(float)
    bits = np.repeat(bands.bits, bands.size)[: bands.coded]
    unit = np.repeat(bands.deviation, bands.size)[: bands.coded] * np.array(STEPS)[bits]
    V = np.empty((len(segment.row), codec.dim))
    fields = unpack(segment.sign_bits, segment.low_bits, bits)
    lists = [j for j, length in enumerate(np.diff(segment.starts)) for _ in range(length)]
    for p, row in enumerate(segment.row.tolist()):
        units = [*lists[p : p + 1], *segment.unit[:, p].tolist()]
        v = sum(segment.scale[p] * float(w) * Y[u] for w, u in zip(segment.weight[:, p], units, strict=True))
        v[: bands.coded] += segment.factor[p] * unit * (fields[p] - ((1 << bits) - 1) / 2)
        if codec.refine:
            v = v + segment.refinement_scale[row] * segment.refinement[row].astype(float)
        V[row] = v
    return V


def list_scores(segment, V, q):
    """q·x, or −‖q − x‖², of each row of a segment of the default index; V: as of `list_vectors`."""
    codec = segment.codec
    if not len(segment.bias):
        return V @ codec.bands.rotate(q[None])[0].astype(float) + q.astype(float) @ codec.mean
    centred = q.astype(float) - codec.mean
    bias = np.empty(len(V))
    bias[segment.row] = segment.bias
    return 2 * V @ codec.bands.rotate((q - codec.mean)[None])[0].astype(float) + bias - centred @ centred


def best(scores, R, ids=None):
    """Return the positions of the R best scores, equal scores by id."""
    ids = range(len(scores)) if ids is None else ids
    return sorted(range(len(scores)), key=lambda i: (-scores[i], ids[i]))[:R]


def suppress(units, depth):
    """Return the corrected order of results, given as sets of units: suppressed ones come last (section 3.3)."""
    kept = []
    for rank, own in enumerate(units[:depth]):
        if not any(own & units[other] for other in kept):
            kept.append(rank)
    suppressed = [
        rank for rank, own in enumerate(units) if rank not in kept and any(own & units[other] for other in kept)
    ]
    return [rank for rank in range(len(units)) if rank not in suppressed] + suppressed


def average_precision(ranking, positives, junk):
    """Return the average precision as the evaluation program of the Oxford buildings benchmark computes it."""
    old_recall, old_precision, area, found, seen = 0.0, 1.0, 0.0, 0, 0
    for i in ranking:
        if i in junk:
            continue
        if i in positives:
            found += 1
        recall, precision = found / len(positives), found / (seen + 1)
        area += (recall - old_recall) * (old_precision + precision) / 2
        old_recall, old_precision = recall, precision
        seen += 1
    return area


def revisited_measures(ranking, positives, junk, ks):
    """Return (AP, P@k for each k) as the evaluation program of revisited Oxford and Paris computes them."""
    ranks, skipped = [], 0
    for rank, i in enumerate(ranking):
        if i in junk:
            skipped += 1
        elif i in positives:
            ranks.append(rank - skipped)
    area = 0.0
    for found, rank in enumerate(ranks):
        before = 1.0 if rank == 0 else found / rank
        area += (before + (found + 1) / (rank + 1)) / (2 * len(positives))
    precision = []
    for k in ks:
        cut = min(max(rank + 1 for rank in ranks), k) if ranks else k
        precision.append(sum(rank + 1 <= cut for rank in ranks) / cut)
    return area, precision


def back_propagation(X, assignment, q, batches):
    """Return the ranking of Shi et al.: verify the best vectors and subtract their similarities from other scores."""
    M = assignment.max() + 1
    true = X @ q
    c = [sum(true[i] for i in range(len(X)) if j in assignment[i]) for j in range(M)]
    score = {i: sum(c[j] for j in assignment[i]) for i in range(len(X))}
    verified = {}
    for size in batches:
        picked = sorted((i for i in score if i not in verified), key=lambda i: -score[i])[:size]
        for i in picked:
            verified[i] = true[i]
            for j in assignment[i]:
                for k in range(len(X)):
                    if j in assignment[k]:
                        score[k] -= true[i]
    others = [i for i in score if i not in verified]
    return sorted(verified, key=lambda i: -verified[i]) + sorted(others, key=lambda i: -score[i])


def near_units(codec, wanted):
    """Return how many units of the best groups are compared with a query that reads `wanted` lists; 0 means all."""
    if not codec.groups:
        return 0
    near = codec.compared + 16 * wanted
    size = codec.book.shape[1]
    return near if 2 * (codec.groups + near + 200) * (size + 256) < codec.units * size else 0


def list_order(codec, q, wanted):
    """Return the units in the order in which a search under l2 that wants some lists reads them."""
    rows = replace(codec, group_starts=np.zeros(1, np.int64)).memory_vectors  # also those of groups
    score = codec.list_weight * (2 * rows @ codec.bands.rotate((q - codec.mean)[None])[0]) + codec.list_bias
    near, units = near_units(codec, wanted), np.arange(codec.units)
    if not near:
        return np.argsort(-score[: codec.units])
    first = []
    for g in np.argsort(-score[codec.units :]):
        if len(first) < near:
            first += range(codec.group_starts[g], codec.group_starts[g + 1])
    rest = np.setdiff1d(units, first)
    return np.concatenate([part[np.argsort(-score[part])] for part in (np.array(first), rest)])


def first_lists(segment, q, count):
    """Return the rows of the lists that a search reads first, by their expected scores under l2."""
    best = list_order(segment.codec, q, count)[:count]
    return np.concatenate([segment.row[segment.starts[j] : segment.starts[j + 1]] for j in best])

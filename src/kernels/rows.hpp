// Norms of rows, summed in float64.
#pragma once
#include <cmath>
#include <cstddef>

namespace logt {

// Writes the norm of each row of X, and divides the row by it if `normalize`. Rows whose norm is 0, or above `most`, or not
// a number stay as they are. Returns whether there are none, and, unless `normalize`, no norm is below `least` but 0.
inline bool divide_by_norms(float* X, size_t rows, size_t dim, bool normalize, double least, double most, double* norms) {
    constexpr size_t SUMS = 8;
    bool all = true;
    for (float* x = X; x < X + rows * dim; x += dim, ++norms) {
        double sum[SUMS] = {};
        size_t i = 0;
        for (; i + SUMS <= dim; i += SUMS)
            for (size_t s = 0; s < SUMS; ++s) sum[s] += static_cast<double>(x[i + s]) * x[i + s];
        double total = 0;
        for (; i < dim; ++i) total += static_cast<double>(x[i]) * x[i];
        for (const double s : sum) total += s;
        *norms = std::sqrt(total);
        const bool valid = *norms <= most && (normalize ? *norms > 0 : *norms >= least || *norms == 0);
        all &= valid;
        if (!normalize || !valid) continue;
        const double inverse = 1 / *norms;
        for (i = 0; i < dim; ++i) x[i] = static_cast<float>(x[i] * inverse);
    }
    return all;
}

}  // namespace logt

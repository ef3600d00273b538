// The searches, compiled once for each instruction set: PELLUCID_ISA names the namespace. Sums have
// eight lanes whatever the set, so that all give the same bits.

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/half.h"
#include "quant/search.h"

namespace pellucid::quant::PELLUCID_ISA {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kTiny = 1e-37f;  // sums of squares below this are those of zeros
constexpr int kBlockRounds = 3;  // of refitting a block
constexpr int kHalfRounds = 2;   // of trying the halves beside a block's
constexpr int kGroupRounds = 2;  // of refitting a group alone
constexpr int kSuperRounds = 2;  // of trying neighbours and refitting a super-block

float over(float a, float b) { return std::fabs(b) < kTiny ? 0.0f : a / b; }

float as_half(float f) { return from_half(to_half(f)); }

// The half that is `steps` above `half` in the order of their values.
float beside(float half, int steps) {
  const int bits = to_half(half), magnitude = bits & 0x7fff;
  const int place = std::min(std::max((bits & 0x8000 ? -magnitude : magnitude) + steps, -0x7bff), 0x7bff);
  return from_half(static_cast<Half>(place < 0 ? 0x8000 | -place : place));
}

// To the nearest whole number, ties to even, for magnitudes below 2^22: it has no fraction left once
// it was added to 1.5 * 2^23.
float nearest(float f) {
  constexpr float kMagic = 12582912.0f;
  return (f + kMagic) - kMagic;
}

float within(float f, float low, float high) { return std::min(std::max(f, low), high); }

// The sum of f(0) to f(K - 1), in eight lanes that a compiler makes vectors of.
template <int K, class F>
float sum(F&& f) {
  float lanes[8] = {};
  for (int i = 0; i < K; i += 8)
    for (int lane = 0; lane < 8; ++lane) lanes[lane] += f(i + lane);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// q[i] = (x[i] - offset) * inverse, on the grid.
template <int K>
void on_grid(const float* x, float offset, float inverse, float low, float high, float* q) {
  for (int i = 0; i < K; ++i) q[i] = nearest(within((x[i] - offset) * inverse, low, high));
}

template <int K>
float squared_error(const float* x, const float* w, const float* q, float scale, float offset) {
  return sum<K>([&](int i) {
    const float lost = x[i] - (q[i] * scale + offset);
    return lost * lost * w[i];
  });
}

template <int K>
float largest(const float* x) {
  float found = x[0];
  for (int i = 1; i < K; ++i)
    if (std::fabs(x[i]) > std::fabs(found)) found = x[i];
  return found;
}

// x = scale * q

template <int K>
float fit_symmetric(const float* x, const float* w, float low, float high, Steps steps) {
  const float unit = over(-1.0f, largest<K>(x));
  float best = 0.0f, scale = 0.0f, q[K];
  for (const float step : steps) {
    on_grid<K>(x, 0.0f, unit * step, low, high, q);
    const float xq = sum<K>([&](int i) { return x[i] * q[i] * w[i]; });
    const float qq = sum<K>([&](int i) { return q[i] * q[i] * w[i]; });
    const float gain = over(xq * xq, qq);  // what the scale of these q takes from the error
    if (gain > best) best = gain, scale = over(xq, qq);
  }
  return scale;
}

template <int K>
float refit_symmetric(const float* x, const float* w, float scale, float low, float high) {
  float q[K];
  on_grid<K>(x, 0.0f, over(1.0f, scale), low, high, q);
  const float xq = sum<K>([&](int i) { return x[i] * q[i] * w[i]; });
  return over(xq, sum<K>([&](int i) { return q[i] * q[i] * w[i]; }));
}

// x = scale * q + offset

struct Line {
  float scale = 0.0f, offset = 0.0f, error = 0.0f;
};

// The line through (q, y) with its offset at most `ceiling`.
template <int K>
Line fit_line(const float* y, const float* w, const float* q, float ceiling) {
  const float sw = sum<K>([&](int i) { return w[i]; });
  const float sq = sum<K>([&](int i) { return q[i] * w[i]; });
  const float sqq = sum<K>([&](int i) { return q[i] * q[i] * w[i]; });
  const float sy = sum<K>([&](int i) { return y[i] * w[i]; });
  const float sqy = sum<K>([&](int i) { return q[i] * y[i] * w[i]; });
  const float determinant = sw * sqq - sq * sq;
  Line line;
  if (determinant <= 1e-5f * sw * sqq) {  // all q alike, but for rounding
    line.scale = over(sqy, sqq);
  } else {
    line.scale = (sw * sqy - sy * sq) / determinant;
    line.offset = (sqq * sy - sq * sqy) / determinant;
  }
  if (line.offset > ceiling) {
    line.offset = ceiling;
    line.scale = over(sqy - ceiling * sq, sqq);
  }
  line.error = squared_error<K>(y, w, q, line.scale, line.offset);
  return line;
}

template <int K>
Line fit_affine(const float* x, const float* w, float levels, Steps steps, bool below_zero) {
  float lowest = *std::min_element(x, x + K);
  if (below_zero) lowest = std::min(lowest, 0.0f);
  float y[K], q[K];
  for (int i = 0; i < K; ++i) y[i] = x[i] - lowest;
  const float unit = over(1.0f, *std::max_element(y, y + K));
  Line best;
  best.error = sum<K>([&](int i) { return y[i] * y[i] * w[i]; });
  for (const float step : steps) {
    on_grid<K>(y, 0.0f, unit * step, 0.0f, levels, q);
    const Line line = fit_line<K>(y, w, q, below_zero ? -lowest : kInfinite);
    if (line.error < best.error) best = line;
  }
  best.offset += lowest;
  return best;
}

template <int K>
Line refit_affine(const float* x, const float* w, Line line, float levels, bool below_zero) {
  float y[K], q[K];
  for (int i = 0; i < K; ++i) y[i] = x[i] - line.offset;
  on_grid<K>(y, 0.0f, over(1.0f, line.scale), 0.0f, levels, q);
  Line found = fit_line<K>(y, w, q, below_zero ? -line.offset : kInfinite);
  found.offset += line.offset;
  return found;
}

template <class T>
void store(const float* q, int n, T* out) {
  for (int i = 0; i < n; ++i) out[i] = static_cast<T>(q[i]);
}

void symmetric_block(const float* x, const float* w, float low, float high, float plain, Steps steps, float& d,
                     int8_t* out) {
  constexpr int K = 32;
  float tried[2 + kBlockRounds] = {largest<K>(x) / -plain, fit_symmetric<K>(x, w, low, high, steps)};
  for (int i = 2; i < 2 + kBlockRounds; ++i) tried[i] = refit_symmetric<K>(x, w, tried[i - 1], low, high);
  float best = kInfinite, q[K];
  d = kInfinite;
  for (const float scale : tried) {
    const float half = as_half(scale);
    on_grid<K>(x, 0.0f, over(1.0f, half), low, high, q);
    const float error = squared_error<K>(x, w, q, half, 0.0f);
    if (error < best) best = error, d = half;
  }
  // What was rounded to a half is not always best at the nearest; a grid that the block was on before
  // is found again so.
  for (int round = 0; round < kHalfRounds && std::isfinite(d); ++round)
    for (const int up : {-1, 1}) {
      const float half = beside(d, up);
      on_grid<K>(x, 0.0f, over(1.0f, half), low, high, q);
      const float error = squared_error<K>(x, w, q, half, 0.0f);
      if (error < best) best = error, d = half;
    }
  on_grid<K>(x, 0.0f, over(1.0f, d), low, high, q);
  store(q, K, out);
}

void affine_block(const float* x, const float* w, float levels, Steps steps, float& d, float& m, uint8_t* out) {
  constexpr int K = 32;
  const auto [lowest, highest] = std::minmax_element(x, x + K);
  Line tried[2 + kBlockRounds] = {{(*highest - *lowest) / levels, *lowest, 0.0f},
                                  fit_affine<K>(x, w, levels, steps, false)};
  for (int i = 2; i < 2 + kBlockRounds; ++i) tried[i] = refit_affine<K>(x, w, tried[i - 1], levels, false);
  float best = kInfinite, q[K];
  d = kInfinite, m = 0.0f;
  for (const Line& line : tried) {
    const float half = as_half(line.scale), half_m = as_half(line.offset);
    on_grid<K>(x, half_m, over(1.0f, half), 0.0f, levels, q);
    const float error = squared_error<K>(x, w, q, half, half_m);
    if (error < best) best = error, d = half, m = half_m;
  }
  for (int round = 0; round < kHalfRounds && std::isfinite(best); ++round)
    for (const int up : {-1, 0, 1})
      for (const int up_m : {-1, 0, 1}) {
        if (up == 0 && up_m == 0) continue;
        const float half = beside(d, up), half_m = beside(m, up_m);
        on_grid<K>(x, half_m, over(1.0f, half), 0.0f, levels, q);
        const float error = squared_error<K>(x, w, q, half, half_m);
        if (error < best) best = error, d = half, m = half_m;
      }
  // The offset of tiny values can be worse than none, where the scale is below a half; by whatever
  // weights.
  on_grid<K>(x, m, over(1.0f, d), 0.0f, levels, q);
  const float zeros = sum<K>([&](int i) { return x[i] * x[i] * w[i]; });
  const float plain = sum<K>([&](int i) {
    const float lost = x[i] - (q[i] * d + m);
    return lost * lost - x[i] * x[i];
  });
  if (std::isfinite(best) && (zeros < best || plain > 0.0f)) {
    d = 0.0f, m = 0.0f;
    std::fill(q, q + K, 0.0f);
  }
  store(q, K, out);
}

// One super-block of G groups of K values, x = d * scale * q - dmin * minimum; `dmin` stays 0 where
// the type has no minima. Errors are kept by group.
template <int G, int K>
struct Super {
  const float* x;
  const float* w;
  float low, high;
  float d = 0.0f, dmin = 0.0f;
  float scales[G] = {}, minima[G] = {}, errors[G] = {};

  void grid(int g, float unit, float lift, float* q) const {
    on_grid<K>(x + g * K, -lift, over(1.0f, unit), low, high, q);
  }

  float error(int g, float d_tried, float dmin_tried, float scale, float minimum) const {
    float q[K];
    const float unit = d_tried * scale, lift = dmin_tried * minimum;
    grid(g, unit, lift, q);
    return squared_error<K>(x + g * K, w + g * K, q, unit, -lift);
  }

  void measure() {
    for (int g = 0; g < G; ++g) errors[g] = error(g, d, dmin, scales[g], minima[g]);
  }

  float total() const {
    float sum_of_errors = 0.0f;
    for (const float e : errors) sum_of_errors += e;
    return sum_of_errors;
  }

  // Every combination of one less and one more, within the type's bounds.
  void try_neighbours(float lowest, float highest, bool with_minima) {
    for (int g = 0; g < G; ++g) {
      const float scale = scales[g], minimum = minima[g];
      for (float up = -1; up <= 1; ++up)
        for (float down = with_minima ? -1.0f : 0.0f; down <= (with_minima ? 1.0f : 0.0f); ++down) {
          if (up == 0 && down == 0) continue;
          const float tried = within(scale + up, lowest, highest);
          const float tried_minimum = with_minima ? within(minimum + down, 0.0f, 63.0f) : 0.0f;
          const float e = error(g, d, dmin, tried, tried_minimum);
          if (e < errors[g]) errors[g] = e, scales[g] = tried, minima[g] = tried_minimum;
        }
    }
  }

  // The d and dmin that fit all groups together, kept where they are better.
  void refit() {
    float qq = 0, qm = 0, mm = 0, xq = 0, xm = 0, q[K];
    for (int g = 0; g < G; ++g) {
      grid(g, d * scales[g], dmin * minima[g], q);
      const float *xs = x + g * K, *ws = w + g * K, m = -minima[g];
      for (float& one : q) one *= scales[g];
      qq += sum<K>([&](int i) { return q[i] * q[i] * ws[i]; });
      qm += sum<K>([&](int i) { return q[i] * m * ws[i]; });
      mm += sum<K>([&](int i) { return m * m * ws[i]; });
      xq += sum<K>([&](int i) { return xs[i] * q[i] * ws[i]; });
      xm += sum<K>([&](int i) { return xs[i] * m * ws[i]; });
    }
    const float determinant = qq * mm - qm * qm;
    float tried = over(xq, qq), tried_min = dmin;
    if (std::fabs(determinant) > 1e-6f * qq * mm) {
      tried = over(xq * mm - xm * qm, determinant);
      tried_min = over(xm * qq - xq * qm, determinant);
    }
    tried = as_half(tried), tried_min = as_half(tried_min);
    float found[G], sum_found = 0.0f;
    for (int g = 0; g < G; ++g) sum_found += found[g] = error(g, tried, tried_min, scales[g], minima[g]);
    if (sum_found < total()) {
      d = tried, dmin = tried_min;
      std::copy(found, found + G, errors);
    }
  }

  template <class T>
  void finish(T* out) const {
    float q[K];
    for (int g = 0; g < G; ++g) {
      grid(g, d * scales[g], dmin * minima[g], q);
      store(q, K, out + g * K);
    }
  }
};

void symmetric_super(const float* x, const float* w, Steps steps, float& d, int8_t* scales, int8_t* q) {
  constexpr int G = 16, K = 16;
  Super<G, K> super{x, w, -32.0f, 31.0f};
  float found[G];
  for (int g = 0; g < G; ++g) {
    found[g] = fit_symmetric<K>(x + g * K, w + g * K, super.low, super.high, steps);
    for (int i = 0; i < kGroupRounds; ++i)
      found[g] = refit_symmetric<K>(x + g * K, w + g * K, found[g], super.low, super.high);
  }
  super.d = as_half(largest<G>(found) / -128.0f);
  for (int g = 0; g < G; ++g) super.scales[g] = nearest(within(over(found[g], super.d), -128.0f, 127.0f));
  super.measure();
  for (int i = 0; i < kSuperRounds; ++i) {
    super.try_neighbours(-128.0f, 127.0f, false);
    super.refit();
  }
  d = super.d;
  store(super.scales, G, scales);
  super.finish(q);
}

// Values that are not negative as whole numbers from 0 to 63 of a half.
template <int G>
float six_bits(const float* values, float* whole) {
  const float unit = as_half(*std::max_element(values, values + G) / 63.0f);
  for (int g = 0; g < G; ++g) whole[g] = nearest(within(over(values[g], unit), 0.0f, 63.0f));
  return unit;
}

void affine_super(const float* x, const float* w, float levels, Steps steps, float& d, float& dmin,
                  uint8_t* scales, uint8_t* minima, uint8_t* q) {
  constexpr int G = 8, K = 32;
  Super<G, K> super{x, w, 0.0f, levels};
  float found[G], lift[G];
  for (int g = 0; g < G; ++g) {
    Line line = fit_affine<K>(x + g * K, w + g * K, levels, steps, true);
    for (int i = 0; i < kGroupRounds; ++i) line = refit_affine<K>(x + g * K, w + g * K, line, levels, true);
    found[g] = std::max(line.scale, 0.0f), lift[g] = std::max(-line.offset, 0.0f);
  }
  super.d = six_bits<G>(found, super.scales);
  super.dmin = six_bits<G>(lift, super.minima);
  super.measure();
  for (int i = 0; i < kSuperRounds; ++i) {
    super.try_neighbours(0.0f, 63.0f, true);
    super.refit();
  }
  if (sum<G * K>([&](int i) { return x[i] * x[i] * w[i]; }) < super.total()) super.d = super.dmin = 0.0f;
  d = super.d, dmin = super.dmin;
  store(super.scales, G, scales);
  store(super.minima, G, minima);
  super.finish(q);
}

void symmetric_blocks(int64_t n, const float* x, const float* w, int low, int high, int plain, Steps steps,
                      float* d, int8_t* q) {
  const float bounds[] = {static_cast<float>(low), static_cast<float>(high), static_cast<float>(plain)};
  for (int64_t i = 0; i < n; ++i)
    symmetric_block(x + 32 * i, w + 32 * i, bounds[0], bounds[1], bounds[2], steps, d[i], q + 32 * i);
}

void affine_blocks(int64_t n, const float* x, const float* w, int levels, Steps steps, float* d, float* m,
                   uint8_t* q) {
  for (int64_t i = 0; i < n; ++i)
    affine_block(x + 32 * i, w + 32 * i, static_cast<float>(levels), steps, d[i], m[i], q + 32 * i);
}

void symmetric_supers(int64_t n, const float* x, const float* w, Steps steps, float* d, int8_t* scales,
                      int8_t* q) {
  for (int64_t i = 0; i < n; ++i)
    symmetric_super(x + 256 * i, w + 256 * i, steps, d[i], scales + 16 * i, q + 256 * i);
}

void affine_supers(int64_t n, const float* x, const float* w, int levels, Steps steps, float* d, float* dmin,
                   uint8_t* scales, uint8_t* minima, uint8_t* q) {
  for (int64_t i = 0; i < n; ++i)
    affine_super(x + 256 * i, w + 256 * i, static_cast<float>(levels), steps, d[i], dmin[i], scales + 8 * i,
                 minima + 8 * i, q + 256 * i);
}

constexpr Searches kSearches = {symmetric_blocks, affine_blocks, symmetric_supers, affine_supers};

}  // namespace
}  // namespace pellucid::quant::PELLUCID_ISA

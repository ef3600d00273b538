// Transcendental functions of sixteen floats. Coefficients are our own least-maximum fits; errors
// were measured over every float of the range against double precision (tests/native/test_ops.py
// samples them again).
#pragma once

namespace pellucid::PELLUCID_ISA {

// c[0] + c[1] x + ... + c[N-1] x^(N-1), by Horner's rule.
template <int N>
PELLUCID_INLINE F32x16 polynomial(const float (&c)[N], F32x16 x) {
  F32x16 y = splat(c[N - 1]);
  for (int i = N - 2; i >= 0; --i) y = fma(y, x, splat(c[i]));
  return y;
}

constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
constexpr float kLog2E = 1.44269504f;

// e^x within 1.1 units in the last place; exactly 0 below -87.33, at most e^88.37.
PELLUCID_INLINE F32x16 exp(F32x16 x) {
  constexpr float kPolynomial[] = {0.5f, 0.166665181517601f, 0.04166620597243309f,
                                   0.008368954062461853f, 0.0013950599823147058f};
  constexpr float kLow = -87.33f, kHigh = 88.37f;
  const F32x16 held = max(splat(kLow), min(splat(kHigh), x));
  const F32x16 shifted = fma(held, splat(kLog2E), splat(kRound));
  const F32x16 n = shifted - splat(kRound);
  // ln 2 in two parts, the first with trailing zeros, so that n times it is exact.
  F32x16 r = fma(n, splat(-0.693359375f), held);
  r = fma(n, splat(2.12194440e-4f), r);
  const F32x16 tail = fma(polynomial(kPolynomial, r), r * r, r);
  const F32x16 y = (tail + splat(1.0f)) * add_to_exponent(splat(1.0f), shifted);
  return select(less(x, splat(kLow)), zero(), y);
}

// 2^x for x <= 0, within 2.1 units in the last place and exactly 1 at 0; 2^-64 from there down. Less
// would change no sum that also holds a 1, and products with less fall below the smallest normal
// number, where each costs a hundred cycles (attention after 1,024 tokens took four times as long).
PELLUCID_INLINE F32x16 exp2_down(F32x16 x) {
  constexpr float kPolynomial[] = {1.0f,
                                   0.6931470036506653f,
                                   0.24022242426872253f,
                                   0.05550733581185341f,
                                   0.009671512991189957f,
                                   0.001326472731307149f};
  const F32x16 held = max(splat(-64.0f), x);
  const F32x16 shifted = held + splat(kRound);
  return add_to_exponent(polynomial(kPolynomial, held - (shifted - splat(kRound))), shifted);
}

// Within 2e-7 of tanh x, relatively.
PELLUCID_INLINE F32x16 tanh(F32x16 x) {
  constexpr float kPolynomial[] = {-0.3333328366279602f, 0.13331490755081177f,
                                   -0.05374349653720856f, 0.020650578662753105f,
                                   -0.005717036779969931f};
  const F32x16 size = abs(x), square = x * x;
  const F32x16 small = fma(polynomial(kPolynomial, square), square * size, size);
  const F32x16 large = splat(1.0f) - splat(2.0f) / (exp(size + size) + splat(1.0f));
  return copysign(select(less(size, splat(0.625f)), small, large), x);
}

// x / (1 + e^-x)
PELLUCID_INLINE F32x16 silu(F32x16 x) { return x / (splat(1.0f) + exp(zero() - x)); }

// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
PELLUCID_INLINE F32x16 gelu_tanh(F32x16 x) {
  const F32x16 cube = x * x * x;
  const F32x16 inner = splat(0.7978845608f) * fma(splat(0.044715f), cube, x);
  return splat(0.5f) * x * (splat(1.0f) + tanh(inner));
}

// x Phi(x), within 1.2e-7 |x|. The tail of the normal distribution is exp(-z p(z)), z = |x| / sqrt 2.
PELLUCID_INLINE F32x16 gelu(F32x16 x) {
  constexpr float kPolynomial[] = {1.1283807754516602f,      0.6365904808044434f,
                                   0.10295109450817108f,     -0.01963241957128048f,
                                   0.000541643996257335f,    0.001092159072868526f,
                                   -0.00037005371996201575f, 5.5268672440433875e-05f,
                                   -3.2857271889952244e-06f};
  constexpr float kFitted = 4.2f;  // erfc is 3e-9 there
  const F32x16 z = abs(x) * splat(0.70710678f);
  const F32x16 tail = exp(zero() - z * polynomial(kPolynomial, min(splat(kFitted), z)));
  const F32x16 half = splat(0.5f) * select(less(splat(kFitted), z), zero(), tail);
  return x * select(less(x, zero()), half, splat(1.0f) - half);
}

}  // namespace pellucid::PELLUCID_ISA

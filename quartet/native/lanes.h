// SIMD types of the kernels: LANES floats per vector, as many as one register of this processor holds. With more, the
// compiler keeps vectors in memory, and a kernel takes ten times as long.

#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Bits __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));

#if ELEMENT_BYTES == 2
typedef uint16_t Element;
#else
typedef float Element;
#endif

static inline Floats load(const float *from) {
    Floats x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

static inline void store(float *to, Floats x) { std::memcpy(to, &x, sizeof x); }

// Round so that the upper half is the nearest bfloat16, ties to even; callers discard the lower half.
static inline Bits rounded(Floats x) { return (Bits)x + 0x7fff + (((Bits)x >> 16) & 1); }

static inline float sum(Floats x) {
    float result = 0;
    for (int i = 0; i < LANES; i++) result += x[i];
    return result;
}

// e^x for x <= 0, relative error below 1e-6: 2^n e^r with r between -ln 2 / 2 and ln 2 / 2, by the Taylor series of e^r.
static inline Floats exp_of(Floats x) {
    x = x < -87.0f ? Floats{} - 87.0f : x;
    Ints n = __builtin_convertvector(x * 1.44269504f - 0.5f, Ints);  // truncates towards 0, so x < 0 rounds to nearest
    Floats whole = __builtin_convertvector(n, Floats);
    Floats r = x - whole * 0.693359375f + whole * 2.12194440e-4f;  // both constants together are ln 2
    Floats series = Floats{} + 1.0f;
    for (int i = 7; i > 0; i--) series = series * r * (1.0f / i) + 1.0f;
    return series * (Floats)((n + 127) << 23);
}

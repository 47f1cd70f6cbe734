// Attention of new tokens to the keys and values of their row. `attend_rows` computes one new token per row and reads
// each row up to its own length (limited by memory bandwidth); `attend_chunks` computes many new tokens per row (limited
// by arithmetic).
//
// Compiled for one shape of heads: HEAD_DIM numbers per head, GROUP query heads per key head, ELEMENT_BYTES per number
// (2: bfloat16, 4: float32). All arithmetic is float32. The softmax takes one pass over the row (online softmax, Milakov
// and Gimelshein 2018): running sums are scaled down whenever a larger score appears.

#include "lanes.h"

constexpr int VECTORS = HEAD_DIM / LANES, BLOCK = 512, BYTES_AHEAD = 4096, LINE_BYTES = 64;

// One head of one token in float32. Its numbers are in a permuted order, the same for queries, keys and values.
struct Head {
    Floats part[VECTORS];
};

#if ELEMENT_BYTES == 2
// A bfloat16 is the upper half of a float32. Of 32 neighbours, the even positions come first, then the odd ones.
static inline Head load_head(const Element *from) {
    Head head;
    for (int i = 0; i < VECTORS; i += 2) {
        Bits pairs;
        std::memcpy(&pairs, from + i * LANES, sizeof pairs);
        head.part[i] = (Floats)(pairs << 16);
        head.part[i + 1] = (Floats)(pairs & 0xffff0000u);
    }
    return head;
}

static inline void store_head(Element *to, const Head &head) {
    for (int i = 0; i < VECTORS; i += 2) {
        Bits pairs = rounded(head.part[i]) >> 16 | (rounded(head.part[i + 1]) & 0xffff0000u);
        std::memcpy(to + i * LANES, &pairs, sizeof pairs);
    }
}
#else
static inline Head load_head(const Element *from) {
    Head head;
    std::memcpy(&head, from, sizeof head);
    return head;
}

static inline void store_head(Element *to, const Head &head) { std::memcpy(to, &head, sizeof head); }
#endif

// Prefetch the data of later tokens, because the hardware prefetcher alone is too late.
static inline void ask_ahead(const Element *from) {
    for (int offset = 0; offset < HEAD_DIM * ELEMENT_BYTES; offset += LINE_BYTES)
        __builtin_prefetch((const char *)from + BYTES_AHEAD + offset);
}

// Lane t of the result is the sum of `rows[t]`.
static inline Floats sums(Floats rows[LANES]) {
    Ints lower;  // 0, LANES, 1, LANES + 1, ...
    for (int lane = 0; lane < LANES; lane++) lower[lane] = lane / 2 + lane % 2 * LANES;
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) {
            Floats a = rows[i], b = rows[i + half];
            rows[i] = __builtin_shuffle(a, b, lower) + __builtin_shuffle(a, b, lower + LANES / 2);
        }
    return rows[0];
}

static inline float largest(Floats x) {
    float result = x[0];
    for (int i = 1; i < LANES; i++) result = x[i] > result ? x[i] : result;
    return result;
}

// Queries that share one key head, and their running sums.
struct Group {
    Head query[GROUP], summed[GROUP] = {};
    float highest[GROUP], total[GROUP] = {};
    alignas(64) float weights[GROUP][BLOCK];

    explicit Group(const Element *q) {
        for (int g = 0; g < GROUP; g++) {
            highest[g] = -__builtin_inff();
            query[g] = load_head(q + g * HEAD_DIM);
            for (Floats &part : query[g].part) part *= SCALE;
        }
    }

    void see(const Element *keys, const Element *values, int64_t count) {
        for (int64_t first = 0; first < count; first += LANES) score(keys, first, count);
        for (int g = 0; g < GROUP; g++) weigh(g, count);
        Head partial[GROUP];  // a copy, so that the compiler keeps it in registers
        std::memcpy(partial, summed, sizeof partial);
        for (int64_t t = 0; t < count; t++) {
            ask_ahead(values + t * HEAD_DIM);
            Head value = load_head(values + t * HEAD_DIM);
            for (int g = 0; g < GROUP; g++)
                for (int i = 0; i < VECTORS; i++) partial[g].part[i] += weights[g][t] * value.part[i];
        }
        std::memcpy(summed, partial, sizeof summed);
    }

    void write(Element *out) {
        for (int g = 0; g < GROUP; g++) {
            for (Floats &part : summed[g].part) part *= 1 / total[g];
            store_head(out + g * HEAD_DIM, summed[g]);
        }
    }

private:
    // Compute the scores of tokens `first` to `first + LANES - 1`; tokens from `count` on are masked.
    void score(const Element *keys, int64_t first, int64_t count) {
        Floats products[GROUP][LANES];
        for (int t = 0; t < LANES; t++) {
            ask_ahead(keys + (first + t) * HEAD_DIM);
            Head key = load_head(keys + (first + t < count ? first + t : first) * HEAD_DIM);
            for (int g = 0; g < GROUP; g++) {
                products[g][t] = query[g].part[0] * key.part[0];
                for (int i = 1; i < VECTORS; i++) products[g][t] += query[g].part[i] * key.part[i];
            }
        }
        for (int g = 0; g < GROUP; g++) {
            Floats scores = sums(products[g]);
            std::memcpy(weights[g] + first, &scores, sizeof scores);
            for (int64_t t = count; t < first + LANES; t++) weights[g][t] = -__builtin_inff();
        }
    }

    // Convert scores of `count` tokens to weights relative to the highest score so far.
    void weigh(int g, int64_t count) {
        Floats *scores = (Floats *)weights[g], top = Floats{} + highest[g], added = {};
        for (int64_t i = 0; i * LANES < count; i++) top = scores[i] > top ? scores[i] : top;
        float before = highest[g];
        highest[g] = largest(top);
        float kept = before == highest[g] ? 1 : exp_of(Floats{} + (before - highest[g]))[0];
        for (int64_t i = 0; i * LANES < count; i++) added += scores[i] = exp_of(scores[i] - highest[g]);
        total[g] = total[g] * kept + sum(added);
        for (Floats &part : summed[g].part) part *= kept;
    }
};

// `query_stride` is the distance, in elements, between the queries of two rows. Rows `[kv_heads, capacity, HEAD_DIM]`
// are contiguous, `out` is `[rows, heads, HEAD_DIM]`. Row i attends to its tokens 0 .. positions[i].
extern "C" void attend_rows(const Element *q, int64_t query_stride, const Element *keys, const Element *values,
                            const int64_t *positions, int64_t rows, int64_t kv_heads, int64_t capacity, Element *out,
                            int64_t threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t head = 0; head < rows * kv_heads; head++) {
        int64_t row = head / kv_heads;
        Group group(q + row * query_stride + head % kv_heads * GROUP * HEAD_DIM);
        for (int64_t start = 0; start <= positions[row]; start += BLOCK) {
            int64_t left = positions[row] + 1 - start, first = (head * capacity + start) * HEAD_DIM;
            group.see(keys + first, values + first, left < BLOCK ? left : BLOCK);
        }
        group.write(out + head * GROUP * HEAD_DIM);
    }
}

// SIMD lanes hold neighbouring new tokens; TILE tokens are computed at once.
// A block of SCORED or SUMMED x WIDE vectors and its operands fit into the registers: 32 of 16 lanes, else 16.
constexpr int WIDE = 2, TILE = WIDE * LANES, KEYS = 64, SCORED = LANES == 16 ? 8 : 4, SUMMED = SCORED;

static inline float to_float(Element x) {
    if (ELEMENT_BYTES == 4) return x;
    uint32_t bits = (uint32_t)x << 16;
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

static inline Element to_element(float x) {
    if (ELEMENT_BYTES == 4) return x;
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;  // to nearest, ties to even
}

// One head of up to TILE new tokens, transposed, and their running sums.
struct Tile {
    Floats query[HEAD_DIM][WIDE], summed[HEAD_DIM][WIDE] = {}, highest[WIDE], total[WIDE] = {}, weights[KEYS][WIDE];
    alignas(64) float keys[KEYS * HEAD_DIM], values[KEYS * HEAD_DIM];
    int64_t first, count;

    // `count` tokens from position `first` on.
    Tile(const Element *q, int64_t stride, int64_t first, int64_t count) : first(first), count(count) {
        float *lanes = (float *)query;
        for (int token = 0; token < TILE; token++)
            for (int d = 0; d < HEAD_DIM; d++)
                lanes[d * TILE + token] = token < count ? to_float(q[token * stride + d]) * SCALE : 0;
        for (Floats &part : highest) part = Floats{} - __builtin_inff();
    }

    // Process tokens `start` to `start + seen - 1` of the row, given their keys and values.
    void see(const Element *new_keys, const Element *new_values, int64_t start, int seen) {
        for (int i = 0; i < seen * HEAD_DIM; i++) {
            keys[i] = to_float(new_keys[i]);
            values[i] = to_float(new_values[i]);
        }
        for (int t = 0; t < seen; t += SCORED) score(t, seen);
        if (start + seen > first + 1) hide(start, seen);
        weigh(seen);
        for (int d = 0; d < HEAD_DIM; d += SUMMED) add(d, seen);
    }

    void write(Element *out, int64_t stride) {
        const float *sums = (const float *)summed, *totals = (const float *)total;
        for (int token = 0; token < count; token++)
            for (int d = 0; d < HEAD_DIM; d++)
                out[token * stride + d] = to_element(sums[d * TILE + token] / totals[token]);
    }

private:
    void score(int first_key, int seen) {
        Floats scores[SCORED][WIDE] = {};
        const float *from[SCORED];
        for (int t = 0; t < SCORED; t++) from[t] = keys + (first_key + t < seen ? first_key + t : first_key) * HEAD_DIM;
        for (int d = 0; d < HEAD_DIM; d++)
            for (int t = 0; t < SCORED; t++)
                for (int w = 0; w < WIDE; w++) scores[t][w] += from[t][d] * query[d][w];
        std::memcpy(weights[first_key], scores, sizeof scores);  // KEYS is a multiple of SCORED
    }

    // Causal mask: a token attends to itself and to earlier tokens.
    void hide(int64_t start, int seen) {
        float *scores = (float *)weights;
        for (int t = 0; t < seen; t++)
            for (int token = 0; token < TILE; token++)
                if (first + token < start + t) scores[t * TILE + token] = -__builtin_inff();
    }

    void weigh(int seen) {
        for (int w = 0; w < WIDE; w++) {
            Floats top = highest[w], added = {};
            for (int t = 0; t < seen; t++) top = weights[t][w] > top ? weights[t][w] : top;
            Floats kept = exp_of(highest[w] - top);
            for (int t = 0; t < seen; t++) added += weights[t][w] = exp_of(weights[t][w] - top);
            highest[w] = top;
            total[w] = total[w] * kept + added;
            for (int d = 0; d < HEAD_DIM; d++) summed[d][w] *= kept;
        }
    }

    void add(int first_d, int seen) {
        Floats partial[SUMMED][WIDE];  // a copy, so that the compiler keeps it in registers
        std::memcpy(partial, summed[first_d], sizeof partial);
        for (int t = 0; t < seen; t++)
            for (int d = 0; d < SUMMED; d++)
                for (int w = 0; w < WIDE; w++) partial[d][w] += values[t * HEAD_DIM + first_d + d] * weights[t][w];
        std::memcpy(summed[first_d], partial, sizeof partial);
    }
};

// Like `attend_rows`, but for `fresh` new tokens per row from position `start` on. `q` and `out` have `rows * fresh`
// tokens.
extern "C" void attend_chunks(const Element *q, int64_t query_stride, const Element *keys, const Element *values,
                              int64_t start, int64_t fresh, int64_t rows, int64_t kv_heads, int64_t capacity,
                              Element *out, int64_t threads) {
    int64_t heads = kv_heads * GROUP, tiles = (fresh + TILE - 1) / TILE;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t item = 0; item < rows * heads * tiles; item++) {
        int64_t begin = item % tiles * TILE, head = item / tiles % heads, row = item / tiles / heads;
        int64_t count = fresh - begin < TILE ? fresh - begin : TILE, token = row * fresh + begin;
        int64_t end = start + begin + count, room = (row * kv_heads + head / GROUP) * capacity;
        Tile tile(q + token * query_stride + head * HEAD_DIM, query_stride, start + begin, count);
        for (int64_t t = 0; t < end; t += KEYS) {
            int64_t from = (room + t) * HEAD_DIM;
            tile.see(keys + from, values + from, t, end - t < KEYS ? end - t : KEYS);
        }
        tile.write(out + (token * heads + head) * HEAD_DIM, heads * HEAD_DIM);
    }
}

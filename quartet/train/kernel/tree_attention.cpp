// Attention over a packed row of branches that share prefixes, forward and backward, in float32.
//
// A span is the tail of a branch: `count` neighbouring columns of the row. It attends causally to itself, and to all of
// its context, which is given as ranges of columns. Keys and values of context and tail are gathered once per span and
// key head ("path"). SIMD lanes hold neighbouring queries, so that a score needs no sum over lanes.
//
// All matrix products are `multiply`, which keeps a block of the result in registers. The forward pass keeps no scores;
// the backward pass recomputes them from the logarithm of their sum (FlashAttention, Dao et al. 2022).

#include <omp.h>

#include <cmath>

#include "lanes.h"

// A block of ROWS x 2 vectors and its operands fit into the processor's registers: 32 of 16 lanes, else 16.
constexpr int VECTORS = HEAD_DIM / LANES, ROWS = LANES == 16 ? 8 : 4;

struct Span {
    int64_t first, count, first_range, ranges;
};
struct Range {
    int64_t first, count;
};

// Strided view `[heads, columns, HEAD_DIM]`, in numbers; a head of a column is contiguous.
struct View {
    float *numbers;
    int64_t head_stride, column_stride;
    float *at(int64_t head, int64_t column) const { return numbers + head * head_stride + column * column_stride; }
};

struct Shape {
    int64_t kv_heads, group, columns, spans;
    const Span *span;
    const Range *range;
    float *scratch;  // `[threads, paths, path_tokens, HEAD_DIM]`
    int64_t path_tokens;
    float scale;
};

// e^x for x <= 0; exactly 0 for masked scores.
static inline Floats weight_of(Floats x) { return x < -87.0f ? Floats{} : exp_of(x); }

// `to[r][v] += sum over i < length of a[r * row + i * step] * b[i][v]`, for a block of ROWS rows and V vectors.
template <int V>
static inline void multiply(const float *a, int64_t row, int64_t step, const float *b, int64_t b_row, int length,
                            float *to, int64_t to_row) {
    Floats total[ROWS][V];
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < V; v++) total[r][v] = load(to + r * to_row + v * LANES);
    for (int i = 0; i < length; i++) {
        Floats right[V];
        for (int v = 0; v < V; v++) right[v] = load(b + i * b_row + v * LANES);
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < V; v++) total[r][v] += a[r * row + i * step] * right[v];
    }
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < V; v++) store(to + r * to_row + v * LANES, total[r][v]);
}

// The same for all columns of one head: `to` and `b` have rows of HEAD_DIM numbers.
static inline void multiply_head(const float *a, int64_t row, int64_t step, const float *b, int length, float *to) {
    constexpr int V = VECTORS % 2 ? 1 : 2;
    for (int d = 0; d < HEAD_DIM; d += V * LANES) multiply<V>(a, row, step, b + d, HEAD_DIM, length, to + d, HEAD_DIM);
}

// Keys or values of a span's context and tail, `[tokens, HEAD_DIM]`, with zeros up to a multiple of KEYS. The memory is
// the caller's, since an allocation that fails would end the process.
struct Path {
    float *numbers;
    float *token(int64_t index) { return numbers + index * HEAD_DIM; }

    // One of the `paths` of this thread.
    static Path of_thread(const Shape &shape, int64_t paths, int64_t path) {
        return {shape.scratch + (omp_get_thread_num() * paths + path) * shape.path_tokens * HEAD_DIM};
    }

    void gather(const View &from, int64_t head, const Shape &shape, const Span &span) {
        clear(tokens(shape, span));
        each_column(shape, span, [&](int64_t index, int64_t column) {
            std::memcpy(token(index), from.at(head, column), HEAD_DIM * sizeof(float));
        });
    }

    void clear(int64_t count) {
        std::memset(numbers, 0, (count + KEYS - 1) / KEYS * KEYS * HEAD_DIM * sizeof(float));
    }

    void add_to(const View &to, int64_t head, const Shape &shape, const Span &span) {
        each_column(shape, span, [&](int64_t index, int64_t column) {
            float *sum = to.at(head, column), *more = token(index);
            for (int d = 0; d < HEAD_DIM; d++) sum[d] += more[d];
        });
    }

    static int64_t tokens(const Shape &shape, const Span &span) {
        int64_t total = span.count;
        for (int64_t r = 0; r < span.ranges; r++) total += shape.range[span.first_range + r].count;
        return total;
    }

private:
    template <class Do>
    static void each_column(const Shape &shape, const Span &span, Do use) {
        int64_t index = 0;
        for (int64_t r = 0; r < span.ranges; r++) {
            const Range &range = shape.range[span.first_range + r];
            for (int64_t i = 0; i < range.count; i++) use(index++, range.first + i);
        }
        for (int64_t i = 0; i < span.count; i++) use(index++, span.first + i);
    }
};

// Up to WIDE * LANES neighbouring queries of one head; missing ones are 0.
template <int WIDE>
struct Tile {
    static constexpr int SIZE = WIDE * LANES;
    int64_t place;  // of the first query in its path
    int count;
    alignas(64) float lanes[HEAD_DIM][SIZE];  // numbers, transposed
    alignas(64) float weights[KEYS][SIZE];

    // Transpose up to `count` heads, times `factor`.
    void transpose(const float *from, int64_t stride, float factor) {
        for (int q = 0; q < SIZE; q++)
            for (int d = 0; d < HEAD_DIM; d++) lanes[d][q] = q < count ? from[q * stride + d] * factor : 0;
    }

    // Scores of the KEYS tokens of the path from `start` on; -infinity for tokens behind a query.
    void score(const float *keys, int64_t start) {
        products(keys, &weights[0][0]);
        if (start + KEYS <= place + 1) return;
        for (int w = 0; w < WIDE; w++) {
            Ints last;  // token, counted from `start`, that the query in each lane sees last
            for (int lane = 0; lane < LANES; lane++) last[lane] = place - start + w * LANES + lane;
            for (int t = 0; t < KEYS; t++) {
                float *of = &weights[t][w * LANES];
                store(of, last < t ? Floats{} - __builtin_inff() : load(of));
            }
        }
    }

    // Products of KEYS tokens with all queries.
    void products(const float *tokens, float *to) {
        std::memset(to, 0, sizeof weights);
        for (int t = 0; t < KEYS; t += ROWS)
            multiply<WIDE>(tokens + t * HEAD_DIM, HEAD_DIM, 1, &lanes[0][0], SIZE, HEAD_DIM, to + t * SIZE, SIZE);
    }

    // Add the tokens, weighted, to the sum of each query: `sums[q] += sum over t of weights[t][q] * tokens[t]`.
    static void add(const float *by, const float *tokens, float *sums) {
        for (int q = 0; q < SIZE; q += ROWS) multiply_head(by + q, 1, SIZE, tokens, KEYS, sums + q * HEAD_DIM);
    }

    // Add the queries, weighted, to the sum of each token: `sums[t] += sum over q of weights[t][q] * queries[q]`.
    static void add_queries(const float *by, const float *queries, float *sums) {
        for (int t = 0; t < KEYS; t += ROWS) multiply_head(by + t * SIZE, SIZE, 1, queries, SIZE, sums + t * HEAD_DIM);
    }
};

template <int WIDE>
struct Forward : Tile<WIDE> {
    using Base = Tile<WIDE>;
    using Base::SIZE, Base::weights, Base::place, Base::count;
    alignas(64) float sums[Base::SIZE][HEAD_DIM] = {};
    alignas(64) float highest[Base::SIZE], total[Base::SIZE] = {};

    Forward(const View &queries, int64_t head, int64_t column, int64_t place_, int count_, float scale) {
        place = place_, count = count_;
        this->transpose(queries.at(head, column), queries.column_stride, scale);
        for (float &one : highest) one = -__builtin_inff();
    }

    void see(const float *keys, const float *values, int64_t start) {
        this->score(keys, start);
        weigh();
        Base::add(&weights[0][0], values, &sums[0][0]);
    }

    void write(float *out, int64_t stride, float *log_sums) {
        for (int q = 0; q < count; q++) {
            for (int d = 0; d < HEAD_DIM; d++) out[q * stride + d] = sums[q][d] / total[q];
            log_sums[q] = highest[q] + std::log(total[q]);
        }
    }

private:
    // Turn scores into weights relative to the highest score so far, and scale the sums down if it rose.
    void weigh() {
        alignas(64) float kept[SIZE];
        for (int w = 0; w < WIDE; w++) {
            Floats *of = (Floats *)&weights[0][w * LANES], before = load(highest + w * LANES);
            Floats top = before, added = {};
            for (int t = 0; t < KEYS; t++) top = of[t * WIDE] > top ? of[t * WIDE] : top;
            Floats share = weight_of(before - top);
            for (int t = 0; t < KEYS; t++) added += of[t * WIDE] = weight_of(of[t * WIDE] - top);
            store(highest + w * LANES, top);
            store(total + w * LANES, load(total + w * LANES) * share + added);
            store(kept + w * LANES, share);
        }
        for (int q = 0; q < SIZE; q++)
            if (kept[q] != 1)
                for (int d = 0; d < HEAD_DIM; d++) sums[q][d] *= kept[q];
    }
};

template <int WIDE>
struct Backward : Tile<WIDE> {
    using Base = Tile<WIDE>;
    using Base::SIZE, Base::weights, Base::place, Base::count;
    Tile<WIDE> slope;  // of the outputs
    alignas(64) float queries[Base::SIZE][HEAD_DIM] = {}, slopes[Base::SIZE][HEAD_DIM] = {};
    alignas(64) float query_slopes[Base::SIZE][HEAD_DIM] = {};
    alignas(64) float log_sums[Base::SIZE] = {}, common[Base::SIZE] = {};

    Backward(const View &q, const View &out, const View &out_slope, const float *log_sum, int64_t head, int64_t column,
             int64_t place_, int count_, float scale) {
        place = place_, slope.count = count = count_;
        this->transpose(q.at(head, column), q.column_stride, scale);
        slope.transpose(out_slope.at(head, column), out_slope.column_stride, 1);
        for (int i = 0; i < count; i++) {
            const float *query = q.at(head, column + i), *given = out_slope.at(head, column + i);
            const float *output = out.at(head, column + i);
            log_sums[i] = log_sum[i];
            for (int d = 0; d < HEAD_DIM; d++) {
                queries[i][d] = query[d] * scale;
                slopes[i][d] = given[d];
                common[i] += given[d] * output[d];
            }
        }
    }

    void see(const float *keys, const float *values, int64_t start, float *key_slopes, float *value_slopes) {
        this->score(keys, start);
        slope.products(values, &slope.weights[0][0]);
        for (int t = 0; t < KEYS; t++)
            for (int w = 0; w < WIDE; w++) {
                float *weight = &weights[t][w * LANES], *gradient = &slope.weights[t][w * LANES];
                Floats share = weight_of(load(weight) - load(log_sums + w * LANES));
                store(weight, share);
                store(gradient, share * (load(gradient) - load(common + w * LANES)));
            }
        Base::add_queries(&weights[0][0], &slopes[0][0], value_slopes);
        Base::add_queries(&slope.weights[0][0], &queries[0][0], key_slopes);
        Base::add(&slope.weights[0][0], keys, &query_slopes[0][0]);
    }

    void write(const View &to, int64_t head, int64_t column, float scale) {
        for (int i = 0; i < count; i++) {
            float *given = to.at(head, column + i);
            for (int d = 0; d < HEAD_DIM; d++) given[d] = query_slopes[i][d] * scale;
        }
    }
};

// Call `use` for each tile of a span; a last tile of few queries is narrow.
template <class Wide, class Narrow>
static inline void each_tile(const Span &span, Wide wide, Narrow narrow) {
    for (int64_t begin = 0; begin < span.count;) {
        int64_t left = span.count - begin;
        if (left > LANES) wide(begin, left < 2 * LANES ? left : 2 * LANES);
        else narrow(begin, left);
        begin += left > LANES ? 2 * LANES : LANES;
    }
}

template <int WIDE>
static void attend_tile(const View &q, Path &keys, Path &values, int64_t head, int64_t column, int64_t place, int count,
                        const Shape &shape, const View &out, float *log_sums) {
    Forward<WIDE> tile(q, head, column, place, count, shape.scale);
    for (int64_t t = 0; t < place + count; t += KEYS) tile.see(keys.token(t), values.token(t), t);
    tile.write(out.at(head, column), out.column_stride, log_sums + head * shape.columns + column);
}

// Outputs of all queries, and the logarithm of the sum of each query's weights, `[heads, columns]`.
extern "C" void attend(const Shape *shape, const View *q, const View *k, const View *v, const View *out,
                       float *log_sums, int64_t threads) {
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t item = 0; item < shape->kv_heads * shape->spans; item++) {
        int64_t kv_head = item % shape->kv_heads;
        const Span &span = shape->span[item / shape->kv_heads];
        Path keys = Path::of_thread(*shape, 2, 0), values = Path::of_thread(*shape, 2, 1);
        keys.gather(*k, kv_head, *shape, span);
        values.gather(*v, kv_head, *shape, span);
        int64_t context = Path::tokens(*shape, span) - span.count;
        for (int64_t head = kv_head * shape->group; head < (kv_head + 1) * shape->group; head++) {
            auto run = [&](auto tile, int64_t begin, int64_t count) {
                tile(*q, keys, values, head, span.first + begin, context + begin, count, *shape, *out, log_sums);
            };
            each_tile(
                span, [&](int64_t begin, int64_t count) { run(attend_tile<2>, begin, count); },
                [&](int64_t begin, int64_t count) { run(attend_tile<1>, begin, count); });
        }
    }
}

struct Slopes {
    View q, k, v;
};

template <int WIDE>
static void backward_tile(const View &q, const View &out, const View &out_slope, const float *log_sums, Path &keys,
                          Path &values, Path &key_slopes, Path &value_slopes, int64_t head, int64_t column,
                          int64_t place, int count, const Shape &shape, const View &to) {
    Backward<WIDE> tile(q, out, out_slope, log_sums + head * shape.columns + column, head, column, place, count,
                        shape.scale);
    for (int64_t t = 0; t < place + count; t += KEYS)
        tile.see(keys.token(t), values.token(t), t, key_slopes.token(t), value_slopes.token(t));
    tile.write(to, head, column, shape.scale);
}

// Gradients of queries, keys and values; those of keys and values are added to what `slopes` holds. A key head is
// computed by one thread, so that the order of the sums, and with it the result, does not depend on `threads`.
extern "C" void attend_backward(const Shape *shape, const View *q, const View *k, const View *v, const View *out,
                                const float *log_sums, const View *out_slope, const Slopes *slopes, int64_t threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t kv_head = 0; kv_head < shape->kv_heads; kv_head++) {
        Path keys = Path::of_thread(*shape, 4, 0), values = Path::of_thread(*shape, 4, 1);
        Path key_slopes = Path::of_thread(*shape, 4, 2), value_slopes = Path::of_thread(*shape, 4, 3);
        for (int64_t s = 0; s < shape->spans; s++) {
            const Span &span = shape->span[s];
            int64_t context = Path::tokens(*shape, span) - span.count;
            keys.gather(*k, kv_head, *shape, span);
            values.gather(*v, kv_head, *shape, span);
            key_slopes.clear(context + span.count);
            value_slopes.clear(context + span.count);
            for (int64_t head = kv_head * shape->group; head < (kv_head + 1) * shape->group; head++) {
                auto run = [&](auto tile, int64_t begin, int64_t count) {
                    tile(*q, *out, *out_slope, log_sums, keys, values, key_slopes, value_slopes, head,
                         span.first + begin, context + begin, count, *shape, slopes->q);
                };
                each_tile(
                    span, [&](int64_t begin, int64_t count) { run(backward_tile<2>, begin, count); },
                    [&](int64_t begin, int64_t count) { run(backward_tile<1>, begin, count); });
            }
            key_slopes.add_to(slopes->k, kv_head, *shape, span);
            value_slopes.add_to(slopes->v, kv_head, *shape, span);
        }
    }
}

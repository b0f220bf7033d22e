/* Products of few rows (`maps.py`), and whole steps of a model (`recording.py`).

   It is written in vectors of eight floats, which GCC and Clang lower to what there is; on x86-64
   it is compiled for AVX2 with FMA (`compiling.py`), and `suits` asks the processor. A number that
   is computed for a row depends on that row alone: every sum has one order, whatever the rows
   beside it. Nothing here allocates memory or keeps a state. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16")
/* Loops whose output is an input, or apart from it. */
#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

typedef float floats __attribute__((vector_size(32)));
typedef float anywhere __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t integers __attribute__((vector_size(32)));

enum { LANES = 8, PANEL = 16, ROWS_AT_ONCE = 96, INT8_ROWS = 4, GROUP = 4 };

INLINE floats load(const float *at) { return *(const anywhere *)at; }
INLINE void store(float *at, floats x) { *(anywhere *)at = x; }
INLINE floats all(float x) { return (floats){x, x, x, x, x, x, x, x}; }
INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

INLINE float sum_of(floats x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

/* ---- Functions of one number, without branches, so that loops of them become vectors ---- */

/* exp(n log 2 + r) = 2^n exp(r), |r| <= log(2) / 2, by a polynomial. */
INLINE float exponential(float x) {
    float low = x > -87.336f ? x : -87.336f, y = low < 88.72f ? low : 88.72f;
    float shifted = y * 1.44269504f + 12582912.0f; /* rounds to a whole number in the low bits */
    float n = shifted - 12582912.0f;
    float r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 0.00139465f;
    p = p * r + 0.00836916f;
    p = p * r + 0.04166626f;
    p = p * r + 0.16666516f;
    p = p * r + 0.50000001f;
    p = p * r * r + r + 1.0f;
    int32_t half = (int32_t)n / 2, rest = (int32_t)n - half;
    uint32_t bits = (uint32_t)(half + 127) << 23, more = (uint32_t)(rest + 127) << 23;
    float power, other; /* 2^n in two, for 2^128 alone is too large */
    memcpy(&power, &bits, sizeof bits);
    memcpy(&other, &more, sizeof more);
    float result = p * power * other;
    result = x < -87.336f ? 0.0f : result;
    result = x > 88.72f ? INFINITY : result;
    return x != x ? x : result;
}

INLINE float hyperbolic_tangent(float x) {
    float size = fabsf(x), z = x * x;
    float p = -0.00569199f;
    p = p * z + 0.02062629f;
    p = p * z - 0.05373532f;
    p = p * z + 0.13331381f;
    p = p * z - 0.33333279f;
    float large = copysignf(1.0f - 2.0f / (exponential(2.0f * size) + 1.0f), x);
    return size < 0.625f ? x + x * z * p : large;
}

/* ---- Maps W x + b ---- */

/* W (O, I) lies in panels of 16 outputs, or of 8 in int8: for each input, or four of them, those
   of the panel's outputs. The last panel is filled up with zeros, and so are bias and scales. */
typedef struct {
    int64_t outputs, inputs;
    const void *packed;
    const float *bias, *scales; /* scales (O): int8; else null */
} map;

INLINE void put(float *y, floats x, int64_t room) {
    if (room >= LANES) {
        store(y, x);
    } else if (room > 0) {
        memcpy(y, &x, (size_t)room * sizeof(float));
    }
}

INLINE void float_tile(const int panels, const int rows, const map *m, int64_t first,
                       const float *x, int64_t x_step, float *y, int64_t y_step) {
    const int64_t inputs = m->inputs;
    const float *w = (const float *)m->packed + first * PANEL * inputs;
    floats sums[panels][rows][2];
    UNROLLED for (int p = 0; p < panels; p++) {
        UNROLLED for (int r = 0; r < rows; r++) {
            sums[p][r][0] = load(m->bias + (first + p) * PANEL);
            sums[p][r][1] = load(m->bias + (first + p) * PANEL + LANES);
        }
    }
    for (int64_t i = 0; i < inputs; i++) {
        UNROLLED for (int p = 0; p < panels; p++) {
            const float *at = w + (p * inputs + i) * PANEL;
            floats low = load(at), high = load(at + LANES);
            UNROLLED for (int r = 0; r < rows; r++) {
                floats value = all(x[r * x_step + i]);
                sums[p][r][0] += low * value;
                sums[p][r][1] += high * value;
            }
        }
    }
    UNROLLED for (int p = 0; p < panels; p++) {
        int64_t begin = (first + p) * PANEL, room = m->outputs - begin;
        UNROLLED for (int r = 0; r < rows; r++) {
            put(y + r * y_step + begin, sums[p][r][0], room);
            put(y + r * y_step + begin + LANES, sums[p][r][1], room - LANES);
        }
    }
}

INLINE void float_product(const map *m, int64_t rows, const float *x, int64_t x_step, float *y,
                          int64_t y_step) {
    int64_t panels = (m->outputs + PANEL - 1) / PANEL;
    for (int64_t from = 0; from < rows; from += ROWS_AT_ONCE) {
        int64_t to = least(rows, from + ROWS_AT_ONCE);
        int64_t at_once = to - from == 1 ? 4 : to - from <= 3 ? 2 : 1;
        for (int64_t p = 0; p < panels; p += at_once) {
            if (p + at_once > panels) at_once = 1;
            for (int64_t r = from, left; (left = to - r) > 0;) {
                const float *in = x + r * x_step;
                float *out = y + r * y_step;
#define TILE(P, R) float_tile(P, R, m, p, in, x_step, out, y_step), r += R
                if (at_once == 4) {
                    TILE(4, 1);
                } else if (at_once == 2) {
                    if (left == 1) TILE(2, 1);
                    else if (left == 2) TILE(2, 2);
                    else TILE(2, 3);
                } else if (left == 1) {
                    TILE(1, 1);
                } else if (left == 2) {
                    TILE(1, 2);
                } else if (left == 3) {
                    TILE(1, 3);
                } else if (left == 4 || left == 8) {
                    TILE(1, 4);
                } else if (left == 5 || left == 10) {
                    TILE(1, 5);
                } else {
                    TILE(1, 6);
                }
#undef TILE
            }
        }
    }
}

/* Rounds x (I) to int8 with its own scale, which is returned; fills up the last group of four. */
INLINE float rounded(const float *x, int64_t inputs, int8_t *whole) {
    float most = 0;
    INDEPENDENT for (int64_t i = 0; i < inputs; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    float scale = (most > 1e-30f ? most : 1e-30f) * (1.0f / 127);
    for (int64_t i = 0; i < inputs; i++) {
        whole[i] = (int8_t)(int32_t)((x[i] / scale + 12582912.0f) - 12582912.0f);
    }
    memset(whole + inputs, 0, (size_t)(-inputs & (GROUP - 1)));
    return scale;
}

INLINE integers four_products(integers sums, const int8_t *w, const int8_t *x) {
#ifdef __AVX2__ /* |x| times w with x's sign: two of them are at most 2 * 127^2 < 2^15 */
    int32_t four;
    memcpy(&four, x, sizeof four);
    __m256i values = _mm256_set1_epi32(four);
    __m256i signs = _mm256_sign_epi8(_mm256_loadu_si256((const __m256i *)w), values);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(values), signs);
    return sums + (integers)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#else
    for (int k = 0; k < GROUP; k++) {
        integers column;
        for (int o = 0; o < LANES; o++) column[o] = w[GROUP * o + k];
        sums += column * x[k];
    }
    return sums;
#endif
}

INLINE void int8_tile(const int panels, const int rows, const map *m, int64_t first,
                      const int8_t *x, const float *scales, float *y, int64_t y_step) {
    const int64_t groups = (m->inputs + GROUP - 1) / GROUP;
    const int8_t *w = (const int8_t *)m->packed + first * groups * GROUP * LANES;
    integers sums[panels][rows];
    UNROLLED for (int p = 0; p < panels; p++) {
        UNROLLED for (int r = 0; r < rows; r++) sums[p][r] = (integers){0};
    }
    for (int64_t g = 0; g < groups; g++) {
        UNROLLED for (int p = 0; p < panels; p++) {
            const int8_t *at = w + (p * groups + g) * GROUP * LANES;
            UNROLLED for (int r = 0; r < rows; r++) {
                sums[p][r] = four_products(sums[p][r], at, x + (r * groups + g) * GROUP);
            }
        }
    }
    UNROLLED for (int p = 0; p < panels; p++) {
        int64_t begin = (first + p) * LANES;
        UNROLLED for (int r = 0; r < rows; r++) {
            floats out = __builtin_convertvector(sums[p][r], floats) * load(m->scales + begin);
            out = out * all(scales[r]) + load(m->bias + begin);
            put(y + r * y_step + begin, out, m->outputs - begin);
        }
    }
}

/* `whole` has room for INT8_ROWS rows of inputs, filled up to groups. */
INLINE void int8_product(const map *m, int64_t rows, const float *x, int64_t x_step, float *y,
                         int64_t y_step, int8_t *whole) {
    const int64_t panels = (m->outputs + LANES - 1) / LANES;
    const int64_t width = (m->inputs + GROUP - 1) / GROUP * GROUP;
    for (int64_t from = 0; from < rows; from += INT8_ROWS) {
        int64_t count = least(INT8_ROWS, rows - from);
        float scales[INT8_ROWS];
        for (int64_t r = 0; r < count; r++) {
            scales[r] = rounded(x + (from + r) * x_step, m->inputs, whole + r * width);
        }
        float *out = y + from * y_step;
        int64_t p = 0;
#define TILE(P, R) int8_tile(P, R, m, p, whole, scales, out, y_step)
        if (count == 1) {
            for (; p + 4 <= panels; p += 4) TILE(4, 1);
            for (; p < panels; p++) TILE(1, 1);
        } else if (count == 2) {
            for (; p + 4 <= panels; p += 4) TILE(4, 2);
            for (; p < panels; p++) TILE(1, 2);
        } else if (count == 3) {
            for (; p + 2 <= panels; p += 2) TILE(2, 3);
            for (; p < panels; p++) TILE(1, 3);
        } else {
            for (; p + 2 <= panels; p += 2) TILE(2, 4);
            for (; p < panels; p++) TILE(1, 4);
        }
#undef TILE
    }
}

void product(const map *m, int64_t rows, const float *x, int64_t x_step, float *y, int64_t y_step,
             void *scratch) {
    if (m->scales) {
        int8_product(m, rows, x, x_step, y, y_step, scratch);
    } else {
        float_product(m, rows, x, x_step, y, y_step);
    }
}

/* ---- Programs: what `recording.py` has seen an equation do ---- */

/* Row r of a buffer begins at `at + r * width`; a constant has width 0. */
typedef struct {
    float *at;
    int64_t width;
} buffer;

/* Element (i, j, k) of a row lies `offset` + strides * (i, j, k) floats after the row's begin. */
typedef struct {
    int64_t buffer, offset, strides[3];
} operand;

typedef struct {
    int64_t code, shape[3];
    operand out, in[3];
    int64_t about[2]; /* PRODUCT: the map; ATTEND: the layer, and heads of keys */
} instruction;

/* Keys and values of each layer, (B, heads, slots, D): what every row has read before, from its
   own start on; a step takes slot `end - 1`. */
typedef struct {
    float *const *keys, *const *values;
    const int64_t *starts;
    int64_t end, slots;
    float *weights; /* room for as many floats as there are slots */
} past;

enum { COPY, TANH, EXP, SQRT, NEGATIVE, EXPM1, LOG, ERF, ABSOLUTE,
       ADD, SUBTRACT, MULTIPLY, DIVIDE, MAXIMUM, MINIMUM, SUM, MOST, PRODUCT, ATTEND };

/* Vectors where all lie side by side, or one number meets them. */
#define UNARY(X) do { \
    if (step == 1 && a_step == 1) { \
        INDEPENDENT for (int64_t k = 0; k < n; k++) { float x = a[k]; out[k] = X; } \
    } else { \
        for (int64_t k = 0; k < n; k++) { float x = a[k * a_step]; out[k * step] = X; } \
    } } while (0)
#define BINARY(X) do { \
    if (step == 1 && a_step == 1 && b_step == 1) { \
        INDEPENDENT for (int64_t k = 0; k < n; k++) { float x = a[k], y = b[k]; out[k] = X; } \
    } else if (step == 1 && a_step == 1 && b_step == 0) { \
        float y = *b; \
        INDEPENDENT for (int64_t k = 0; k < n; k++) { float x = a[k]; out[k] = X; } \
    } else { \
        for (int64_t k = 0; k < n; k++) { \
            float x = a[k * a_step], y = b[k * b_step]; \
            out[k * step] = X; \
        } \
    } } while (0)

static void line(int64_t code, int64_t n, float *out, int64_t step, const float *a,
                 int64_t a_step, const float *b, int64_t b_step) {
    switch (code) {
    case COPY: UNARY(x); break;
    case TANH: UNARY(hyperbolic_tangent(x)); break;
    case EXP: UNARY(exponential(x)); break;
    case SQRT: UNARY(sqrtf(x)); break;
    case NEGATIVE: UNARY(-x); break;
    case EXPM1: UNARY(expm1f(x)); break;
    case LOG: UNARY(logf(x)); break;
    case ERF: UNARY(erff(x)); break;
    case ABSOLUTE: UNARY(fabsf(x)); break;
    case ADD: BINARY(x + y); break;
    case SUBTRACT: BINARY(x - y); break;
    case MULTIPLY: BINARY(x * y); break;
    case DIVIDE: BINARY(x / y); break;
    case MAXIMUM: BINARY(x > y || x != x ? x : y); break;
    case MINIMUM: BINARY(x < y || x != x ? x : y); break;
    }
}

INLINE float total(int64_t n, const float *a, int64_t step) {
    floats sums = all(0);
    int64_t k = 0;
    if (step == 1) {
        for (; k + LANES <= n; k += LANES) sums += load(a + k);
    }
    float rest = 0;
    for (; k < n; k++) rest += a[k * step];
    return sum_of(sums) + rest;
}

INLINE float largest(int64_t n, const float *a, int64_t step) {
    float most = a[0];
    for (int64_t k = 1; k < n; k++) most = a[k * step] > most ? a[k * step] : most;
    return most;
}

INLINE float dot(int64_t n, const float *a, const float *b) {
    floats sums = all(0);
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES) sums += load(a + k) * load(b + k);
    float rest = 0;
    for (; k < n; k++) rest += a[k] * b[k];
    return sum_of(sums) + rest;
}

/* out (D) = softmax(q K^T / sqrt(D)) V over n slots of one head. */
static void attend_one(int64_t n, int64_t width, const float *q, const float *keys,
                       const float *values, float *weights, float *out) {
    const float scale = 1.0f / sqrtf((float)width);
    for (int64_t k = 0; k < n; k++) weights[k] = dot(width, q, keys + k * width) * scale;
    float most = largest(n, weights, 1);
    INDEPENDENT for (int64_t k = 0; k < n; k++) weights[k] = exponential(weights[k] - most);
    const float share = 1.0f / total(n, weights, 1);
    int64_t d = 0;
    for (; d + 8 * LANES <= width; d += 8 * LANES) {
        floats sums[8] = {0};
        for (int64_t k = 0; k < n; k++) {
            floats weight = all(weights[k]);
            UNROLLED for (int j = 0; j < 8; j++) {
                sums[j] += weight * load(values + k * width + d + LANES * j);
            }
        }
        UNROLLED for (int j = 0; j < 8; j++) store(out + d + LANES * j, sums[j] * all(share));
    }
    for (; d + LANES <= width; d += LANES) {
        floats sums = all(0);
        for (int64_t k = 0; k < n; k++) sums += all(weights[k]) * load(values + k * width + d);
        store(out + d, sums * all(share));
    }
    for (; d < width; d++) {
        float sum = 0;
        for (int64_t k = 0; k < n; k++) sum += weights[k] * values[k * width + d];
        out[d] = sum * share;
    }
}

INLINE void attend(const instruction *o, int64_t row, const past *state, float *out,
                   const float *q, const float *k, const float *v) {
    const int64_t heads = o->shape[0], width = o->shape[2], of_keys = o->about[1];
    const int64_t start = state->starts[row], head = state->slots * width;
    float *keys = state->keys[o->about[0]] + row * of_keys * head;
    float *values = state->values[o->about[0]] + row * of_keys * head;
    for (int64_t h = 0; h < of_keys; h++) {
        int64_t newest = h * head + (state->end - 1) * width;
        memcpy(keys + newest, k + h * o->in[1].strides[0], (size_t)width * sizeof(float));
        memcpy(values + newest, v + h * o->in[2].strides[0], (size_t)width * sizeof(float));
    }
    for (int64_t h = 0; h < heads; h++) {
        int64_t first = h / (heads / of_keys) * head + start * width;
        attend_one(state->end - start, width, q + h * o->in[0].strides[0], keys + first,
                   values + first, state->weights, out + h * o->out.strides[0]);
    }
}

INLINE float *place(const buffer *buffers, const operand *x, int64_t row) {
    const buffer *at = buffers + x->buffer;
    return at->at + row * at->width + x->offset;
}

void run(const instruction *program, int64_t count, int64_t rows, const buffer *buffers,
         const past *state, void *scratch) {
    for (const instruction *o = program; o < program + count; o++) {
        if (o->code == PRODUCT) {
            product((const map *)(intptr_t)o->about[0], rows, place(buffers, o->in, 0),
                         buffers[o->in[0].buffer].width, place(buffers, &o->out, 0),
                         buffers[o->out.buffer].width, scratch);
            continue;
        }
        const int64_t n = o->shape[2];
        for (int64_t row = 0; row < rows; row++) {
            float *out = place(buffers, &o->out, row);
            const float *a = place(buffers, o->in, row), *b = place(buffers, o->in + 1, row);
            if (o->code == ATTEND) {
                attend(o, row, state, out, a, b, place(buffers, o->in + 2, row));
                continue;
            }
            for (int64_t i = 0; i < o->shape[0]; i++) {
                for (int64_t j = 0; j < o->shape[1]; j++) {
#define AT(P, X) ((P) + i * (X).strides[0] + j * (X).strides[1])
                    float *y = AT(out, o->out);
                    const float *x = AT(a, o->in[0]);
                    if (o->code == SUM) {
                        *y = total(n, x, o->in[0].strides[2]);
                    } else if (o->code == MOST) {
                        *y = largest(n, x, o->in[0].strides[2]);
                    } else {
                        line(o->code, n, y, o->out.strides[2], x, o->in[0].strides[2],
                             AT(b, o->in[1]), o->in[1].strides[2]);
                    }
#undef AT
                }
            }
        }
    }
}

/* Which source this was compiled from; see `compiling.py`. */
uint32_t mark(void) { return MARK; }

/* Whether this processor can do what this file was compiled for. */
int suits(void) {
#ifdef __AVX2__
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 1;
#endif
}

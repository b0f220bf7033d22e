/* Products of few rows (`maps.py`), whole steps of a model (`recording.py`), look-ups in the tables
   of n-grams (`ngram/native.py`), and word2vec's gradients (`words/native.py`).

   It is written in vectors of floats, which GCC and Clang lower to what there is; on x86-64 it is
   compiled for AVX-512 with VNNI, and once more for AVX2 with FMA (`compiling.py`), and `suits`
   asks the processor. A number that is computed for a row depends on that row alone: every sum has
   one order, whatever the rows beside it, and whichever thread computes it. Nothing here allocates
   memory, or keeps a state but for the threads that `use_threads` asks for. */

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

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

#ifdef __AVX512VNNI__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
typedef float floats __attribute__((vector_size(4 * LANES)));
typedef float anywhere __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t integers __attribute__((vector_size(4 * LANES)));

enum { PANEL = 2 * LANES, GROUP = 4 };
/* Rows of the largest tile that there is, of those that are taken in float32, and in int8. */
enum { MOST_ROWS = 8, TILE_ROWS = LANES == 16 ? 8 : 6, INT8_ROWS = 6 };

INLINE floats load(const float *at) { return *(const anywhere *)at; }
INLINE void store(float *at, floats x) { *(anywhere *)at = x; }
INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#ifdef __clang__
#define SHUFFLED(A, B, ...) __builtin_shufflevector(A, B, __VA_ARGS__)
#else
#define SHUFFLED(A, B, ...) __builtin_shuffle(A, B, (integers){__VA_ARGS__})
#endif

/* The sums of four vectors, in every fourth part of one: of halves, until one number is left. */
INLINE floats sums_of(floats a, floats b, floats c, floats d) {
#ifdef __AVX512VNNI__
#define HALVES(A, B) \
    (SHUFFLED(A, B, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) + \
     SHUFFLED(A, B, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
    const floats ab = HALVES(a, b), cd = HALVES(c, d);
    floats x = SHUFFLED(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    x += SHUFFLED(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    x += SHUFFLED(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    return x + SHUFFLED(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#else
#define HALVES(A, B) \
    (SHUFFLED(A, B, 0, 1, 2, 3, 8, 9, 10, 11) + SHUFFLED(A, B, 4, 5, 6, 7, 12, 13, 14, 15))
    const floats ab = HALVES(a, b), cd = HALVES(c, d);
    floats x = SHUFFLED(ab, cd, 0, 1, 4, 5, 8, 9, 12, 13);
    x += SHUFFLED(ab, cd, 2, 3, 6, 7, 10, 11, 14, 15);
    return x + SHUFFLED(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
#endif
#undef HALVES
}

INLINE float sum_of(floats x) { return sums_of(x, x, x, x)[0]; }

INLINE float total(int64_t n, const float *a, int64_t step) {
    floats sums = {0};
    int64_t k = 0;
    if (step == 1) {
        for (; k + LANES <= n; k += LANES) sums += load(a + k);
    }
    float rest = 0;
    for (; k < n; k++) rest += a[k * step];
    return sum_of(sums) + rest;
}

/* ---- Threads ---- */

/* Does part `part` of `parts` of some work. */
typedef void work(const void *about, int64_t part, int64_t parts);
enum { MOST_PARTS = 16, MOST_THREADS = 64, SPINS = 4000 };

/* Whoever asks for some work takes parts of it like the others, and waits for those who have begun
   one. A thread that wakes up late, as on a busy machine, leaves the work to them. */
static struct {
    pthread_mutex_t busy, lock;
    pthread_cond_t begun;
    int wanted, started, active, open;
    work *what;
    const void *about;
    int64_t parts, next, calls;
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .begun = PTHREAD_COND_INITIALIZER,
          .wanted = 1};

INLINE void wait_a_moment(void) {
#ifdef __AVX2__
    _mm_pause();
#endif
}

static void take_parts(void) {
    int64_t part;
    while ((part = __atomic_fetch_add(&pool.next, 1, __ATOMIC_RELAXED)) < pool.parts) {
        pool.what(pool.about, part, pool.parts);
    }
}

static void *worker(void *unused) {
    (void)unused;
    for (int64_t seen = 0;;) { /* steps follow one another: look for a while before sleeping */
        for (int i = 0; i < SPINS; i++) {
            if (__atomic_load_n(&pool.calls, __ATOMIC_RELAXED) != seen) break;
            wait_a_moment();
        }
        pthread_mutex_lock(&pool.lock);
        while (pool.calls == seen) pthread_cond_wait(&pool.begun, &pool.lock);
        seen = pool.calls;
        const int joins = pool.open;
        __atomic_add_fetch(&pool.active, joins, __ATOMIC_RELAXED); /* others leave without the lock */
        pthread_mutex_unlock(&pool.lock);
        if (joins) {
            take_parts();
            __atomic_sub_fetch(&pool.active, 1, __ATOMIC_RELEASE);
        }
    }
    return 0;
}

/* In a child of fork there are no workers, and locks may be held by threads that are not there. */
static void after_fork(void) {
    pthread_mutex_init(&pool.busy, 0);
    pthread_mutex_init(&pool.lock, 0);
    pthread_cond_init(&pool.begun, 0);
    pool.started = pool.active = pool.open = 0;
}

/* Have work done by so many threads, the caller's included. */
void use_threads(int64_t count) {
    static int known;
    if (!__atomic_exchange_n(&known, 1, __ATOMIC_RELAXED)) pthread_atfork(0, 0, after_fork);
    int wanted = (int)least(count < 1 ? 1 : count, MOST_THREADS);
    __atomic_store_n(&pool.wanted, wanted, __ATOMIC_RELAXED);
}

/* Does some work of so many multiplications; by several threads if that is worth waking them. */
static void share(work *what, const void *about, int64_t size) {
    const int wanted = __atomic_load_n(&pool.wanted, __ATOMIC_RELAXED);
    if (wanted == 1 || size < 1 << 19 || pthread_mutex_trylock(&pool.busy)) {
        what(about, 0, 1);
        return;
    }
    pthread_mutex_lock(&pool.lock);
    for (pthread_t made; pool.started < wanted - 1; pool.started++) {
        if (pthread_create(&made, 0, worker, 0)) break;
        pthread_detach(made);
    }
    pool.what = what, pool.about = about, pool.next = 0;
    pool.parts = least(MOST_PARTS, 4 * wanted), pool.open = 1;
    __atomic_add_fetch(&pool.calls, 1, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&pool.begun);
    pthread_mutex_unlock(&pool.lock);
    take_parts();
    pthread_mutex_lock(&pool.lock);
    pool.open = 0;
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; __atomic_load_n(&pool.active, __ATOMIC_ACQUIRE); i++) {
        if (i < SPINS) wait_a_moment();
        else sched_yield();
    }
    pthread_mutex_unlock(&pool.busy);
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

/* log(1 + e) = 2 atanh(e / (2 + e)) for e from 0 to 1, by its series. */
INLINE float log_of_one_and(float e) {
    const float z = e / (2.0f + e), zz = z * z;
    float p = 1.0f / 13.0f;
    p = p * zz + 1.0f / 11.0f;
    p = p * zz + 1.0f / 9.0f;
    p = p * zz + 1.0f / 7.0f;
    p = p * zz + 0.2f;
    p = p * zz + 1.0f / 3.0f;
    return 2.0f * (z * zz * p + z);
}

/* ---- Maps W x + b ---- */

/* W (O, I) lies in panels of two vectors of outputs, or of one in int8: for each input, or four of
   them, those of the panel's outputs. The last panel is filled up with zeros, and so are bias and
   scales. */
typedef struct map {
    int64_t outputs, inputs;
    const void *packed;
    const float *bias, *scales; /* scales (O): int8; else null */
    const uint16_t *of_blocks;  /* scales in bf16: int4; else null */
    int64_t type;               /* of W's rows, see `unpack`; 0 for W in panels */
    const struct map *next;     /* further outputs, of rows of another type; or null */
} map;

INLINE void put(float *y, floats x, int64_t room) {
    if (room >= LANES) {
        store(y, x);
    } else if (room > 0) {
        memcpy(y, &x, (size_t)room * sizeof(float));
    }
}

INLINE floats get(const float *y, int64_t room) {
    floats x = {0};
    if (room >= LANES) {
        x = load(y);
    } else if (room > 0) {
        memcpy(&x, y, (size_t)room * sizeof(float));
    }
    return x;
}

/* What several panels, from `first` on, make of some rows of x. The weights at `ahead`, which are
   wanted next, are asked for, `pace` bytes an input, in four places at once: the processor then reads
   on by itself from each. A function for each size, so that the sums stay in registers. */
INLINE void float_tile(const int panels, const int rows, const map *m, int64_t first,
                       const float *x, int64_t x_step, float *y, int64_t y_step,
                       const char *ahead, int64_t pace) {
    const int64_t inputs = m->inputs, out = first * PANEL;
    const float *w = (const float *)m->packed + out * inputs;
    floats sums[4][MOST_ROWS][2];
    UNROLLED for (int p = 0; p < panels; p++) {
        const float *bias = m->bias + out + p * PANEL;
        UNROLLED for (int r = 0; r < rows; r++) {
            sums[p][r][0] = load(bias), sums[p][r][1] = load(bias + LANES);
        }
    }
    int64_t i = 0;
#define ADD(I) \
    UNROLLED for (int p = 0; p < panels; p++) { \
        const float *at = w + (p * inputs + (I)) * PANEL; \
        floats low = load(at), high = load(at + LANES); \
        UNROLLED for (int r = 0; r < rows; r++) { \
            const float value = x[r * x_step + (I)]; \
            sums[p][r][0] += low * value; \
            sums[p][r][1] += high * value; \
        } \
    }
    if (panels == 1) { /* into the L2 cache: the L1 has no room for what is used, and this */
        const int64_t apart = inputs / 4 * pace;
        for (; i + 4 <= inputs; i += 4, ahead += pace) {
            UNROLLED for (int k = 0; k < 4; k++) {
                __builtin_prefetch(ahead + k * apart, 0, 2);
                if (pace > 64) __builtin_prefetch(ahead + k * apart + 64, 0, 2);
                ADD(i + k)
            }
        }
    }
    for (; i < inputs; i++) ADD(i)
#undef ADD
    UNROLLED for (int p = 0; p < panels; p++) {
        UNROLLED for (int r = 0; r < rows; r++) {
            const int64_t at = out + p * PANEL, room = m->outputs - at;
            put(y + r * y_step + at, sums[p][r][0], room);
            put(y + r * y_step + at + LANES, sums[p][r][1], room - LANES);
        }
    }
}

typedef void float_form(const map *, int64_t, const float *, int64_t, float *, int64_t,
                        const char *, int64_t);
#define FORM(P, R) \
    static __attribute__((noinline)) void float_##P##_##R( \
        const map *m, int64_t first, const float *x, int64_t x_step, float *y, int64_t y_step, \
        const char *ahead, int64_t pace) { \
        float_tile(P, R, m, first, x, x_step, y, y_step, ahead, pace); \
    }
FORM(1, 1) FORM(1, 2) FORM(1, 3) FORM(1, 4) FORM(1, 5) FORM(1, 6) FORM(1, 7) FORM(1, 8)
FORM(2, 2) FORM(2, 3) FORM(4, 1)
#undef FORM
static float_form *const FLOAT_FORMS[] = {float_1_1, float_1_2, float_1_3, float_1_4,
                                          float_1_5, float_1_6, float_1_7, float_1_8};
static float_form *const FLOAT_WIDE[] = {float_4_1, float_2_2, float_2_3};

/* Of panels `first` to `last`, the rows in tiles of sizes as equal as can be. A panel stays in the
   cache while all of them meet it, and the next one is on its way. */
static void float_product(const map *m, int64_t first, int64_t last, int64_t rows, const float *x,
                          int64_t x_step, float *y, int64_t y_step) {
    const int64_t inputs = m->inputs, tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t at_once = rows == 1 ? 4 : rows <= 3 ? 2 : 1;
    for (; at_once > 1 && first + at_once <= last; first += at_once) {
        FLOAT_WIDE[rows - 1](m, first, x, x_step, y, y_step, 0, 0);
    }
    const int64_t pace = PANEL * sizeof(float) / tiles;
    for (; first < last; first++) {
        const char *ahead = (const char *)((const float *)m->packed + (first + 1) * inputs * PANEL);
        for (int64_t r = 0, left = tiles; left > 0; left--) {
            const int64_t count = (rows - r + left - 1) / left;
            FLOAT_FORMS[count - 1](m, first, x + r * x_step, x_step, y + r * y_step, y_step, ahead,
                                   pace);
            r += count, ahead += inputs * pace;
        }
    }
}

/* ---- Maps W x + b in whole numbers ---- */

/* Each BLOCK inputs of a row of x have a scale of their own. The sums of a block are exact, and blocks
   are added up in order. `sum` is minus what the number that was added to the weights contributes. */
enum { BLOCK = 32 };
#define BLOCK_OF(TYPE) \
    struct { \
        float scale; \
        int32_t sum; \
        TYPE x[BLOCK]; \
    }
typedef BLOCK_OF(int8_t) block;
typedef BLOCK_OF(int16_t) wide_block;

INLINE int64_t blocks_of(const map *m) { return (m->inputs + BLOCK - 1) / BLOCK; }

/* Rounds a row of x to whole numbers, the last block filled up with zeros; returns what follows them. */
#define ROUNDED(NAME, TYPE) \
    static TYPE *NAME(const float *x, int64_t inputs, int32_t added, TYPE *to) { \
        for (; inputs > 0; inputs -= BLOCK, x += BLOCK, to++) { \
            float filled[BLOCK] = {0}; \
            const float *in = inputs < BLOCK ? memcpy(filled, x, (size_t)inputs * sizeof *x) : x; \
            int32_t most = 0, sum = 0; /* magnitudes are in the order of their bits */ \
            for (int i = 0; i < BLOCK; i++) { \
                int32_t bits; \
                memcpy(&bits, in + i, sizeof bits); \
                bits &= INT32_MAX; \
                most = bits > most ? bits : most; \
            } \
            float scale; \
            memcpy(&scale, &most, sizeof scale); \
            scale = (scale > 1e-30f ? scale : 1e-30f) * (1.0f / 127); \
            INDEPENDENT for (int i = 0; i < BLOCK; i++) { \
                int32_t of_x = (int32_t)((in[i] / scale + 12582912.0f) - 12582912.0f); \
                to->x[i] = of_x, sum += of_x; \
            } \
            to->scale = scale, to->sum = -added * sum; \
        } \
        return to; \
    }
ROUNDED(rounded, block)
ROUNDED(rounded_wide, wide_block)

/* VNNI multiplies numbers without a sign by others: W has 128 added. By AVX2 several rows share the
   work of widening W to 16 bits. */
#if defined __AVX512VNNI__
enum { ADDED = 128, WIDENS = 0 };
#elif defined __AVX2__
enum { ADDED = 0, WIDENS = 1 };
#else
enum { ADDED = 0, WIDENS = 0 };
#endif

/* Returns sums with a group's products added. */
INLINE integers four_products(integers sums, const int8_t *w, const int8_t *x) {
#if defined __AVX512VNNI__
    int32_t four;
    memcpy(&four, x, sizeof four);
    return (integers)_mm512_dpbusd_epi32((__m512i)sums, _mm512_loadu_si512(w),
                                         _mm512_set1_epi32(four));
#elif defined __AVX2__ /* |x| times w with x's sign: two of them are at most 2 * 127^2 < 2^15 */
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

INLINE void put_scaled(const map *m, int64_t panel, floats out, float *y) {
    const int64_t at = panel * LANES;
    put(y + at, out * load(m->scales + at) + load(m->bias + at), m->outputs - at);
}

/* What panels from `first` on make of rows of x. */
INLINE void int8_tile(const int panels, const int rows, const map *m, int64_t first, const block *x,
                      float *y, int64_t y_step) {
    const int64_t blocks = blocks_of(m);
    const int8_t *w = (const int8_t *)m->packed + first * blocks * BLOCK * LANES;
    floats out[4][MOST_ROWS];
    UNROLLED for (int p = 0; p < panels; p++) {
        UNROLLED for (int r = 0; r < rows; r++) out[p][r] = (floats){0};
    }
    for (int64_t b = 0; b < blocks; b++, x++, w += BLOCK * LANES) {
        integers sums[4][MOST_ROWS];
        UNROLLED for (int p = 0; p < panels; p++) {
            UNROLLED for (int r = 0; r < rows; r++) {
                sums[p][r] = (integers){0} + (ADDED ? x[r * blocks].sum : 0);
            }
        }
        UNROLLED for (int i = 0; i < BLOCK; i += GROUP) {
            UNROLLED for (int p = 0; p < panels; p++) {
                const int8_t *at = w + (p * blocks * BLOCK + i) * LANES;
                UNROLLED for (int r = 0; r < rows; r++) {
                    sums[p][r] = four_products(sums[p][r], at, x[r * blocks].x + i);
                }
            }
        }
        UNROLLED for (int p = 0; p < panels; p++) {
            UNROLLED for (int r = 0; r < rows; r++) {
                out[p][r] += __builtin_convertvector(sums[p][r], floats) * x[r * blocks].scale;
            }
        }
    }
    UNROLLED for (int p = 0; p < panels; p++) {
        UNROLLED for (int r = 0; r < rows; r++) put_scaled(m, first + p, out[p][r], y + r * y_step);
    }
}

#if defined __AVX2__ && !defined __AVX512VNNI__
/* The same of x in 16 bits, a panel after the other. */
INLINE void wide_tile(const int panels, const int rows, const map *m, int64_t panel,
                      const wide_block *x, float *y, int64_t y_step) {
    const int64_t blocks = blocks_of(m);
    for (const int64_t end = panel + panels; panel < end; panel++) {
        const int8_t *w = (const int8_t *)m->packed + panel * blocks * BLOCK * LANES;
        floats out[MOST_ROWS];
        UNROLLED for (int r = 0; r < rows; r++) out[r] = (floats){0};
        for (int64_t b = 0; b < blocks; b++) {
            __m256i first[MOST_ROWS], last[MOST_ROWS]; /* outputs 0 to 3, and 4 to 7, in pairs */
            UNROLLED for (int r = 0; r < rows; r++) first[r] = last[r] = _mm256_setzero_si256();
            UNROLLED for (int i = 0; i < BLOCK; i += GROUP, w += GROUP * LANES) {
                const __m128i *at = (const __m128i *)w;
                __m256i low = _mm256_cvtepi8_epi16(_mm_loadu_si128(at));
                __m256i high = _mm256_cvtepi8_epi16(_mm_loadu_si128(at + 1));
                UNROLLED for (int r = 0; r < rows; r++) {
                    int64_t four;
                    memcpy(&four, x[r * blocks + b].x + i, sizeof four);
                    __m256i values = _mm256_set1_epi64x(four);
                    first[r] = _mm256_add_epi32(first[r], _mm256_madd_epi16(low, values));
                    last[r] = _mm256_add_epi32(last[r], _mm256_madd_epi16(high, values));
                    /* Row after row, or there are more numbers on the way than registers. */
                    __asm__ volatile("" : "+x"(first[r]), "+x"(last[r]));
                }
            }
            UNROLLED for (int r = 0; r < rows; r++) {
                __m256i both = _mm256_hadd_epi32(first[r], last[r]);
                integers sums = (integers)_mm256_permute4x64_epi64(both, 0xd8);
                out[r] += __builtin_convertvector(sums, floats) * x[r * blocks + b].scale;
            }
        }
        UNROLLED for (int r = 0; r < rows; r++) put_scaled(m, panel, out[r], y + r * y_step);
    }
}
#else
#define wide_tile int8_tile
#endif

typedef void whole_form(const map *, int64_t, const void *, float *, int64_t);
#define FORM(NAME, P, R, TILE) \
    static __attribute__((noinline)) void NAME##_##P##_##R( \
        const map *m, int64_t first, const void *x, float *y, int64_t y_step) { \
        TILE(P, R, m, first, x, y, y_step); \
    }
#define FORMS(P) \
    FORM(int8, P, 2, wide_tile) FORM(int8, P, 3, wide_tile) FORM(int8, P, 4, wide_tile) \
    FORM(int8, P, 5, wide_tile) FORM(int8, P, 6, wide_tile)
FORM(int8, 1, 1, int8_tile) FORMS(1)
FORM(int8, 4, 1, int8_tile) FORMS(2)
#undef FORMS
static whole_form *const INT8_FORMS[] = {int8_1_1, int8_1_2, int8_1_3, int8_1_4, int8_1_5, int8_1_6};
static whole_form *const INT8_WIDE[] = {int8_4_1, int8_2_2, int8_2_3, int8_2_4, int8_2_5, int8_2_6};

/* W's numbers of 4 bits, with 8 added, lie in panels of one vector of outputs: eight inputs of each, the
   last four in the upper halves of bytes. Each BLOCK inputs of an output have a scale. */
enum { INT4_ROWS = LANES == 16 ? 8 : 4 };
typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

/* Numbers in bf16, the upper halves of those in float32. */
INLINE floats widened(const uint16_t *at) {
    return (floats)(__builtin_convertvector(*(const halves *)at, words) << 16);
}

/* Returns sums with the products of four inputs added; see `sums_of_block`. */
INLINE integers nibble_products(integers sums, words w, const int8_t *x) {
#ifdef __AVX2__
    int32_t four;
    memcpy(&four, x, sizeof four);
#endif
#if defined __AVX512VNNI__
    return (integers)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)w, _mm512_set1_epi32(four));
#elif defined __AVX2__ /* in pairs of 16 bits: 16 products are at most 16 * 15 * 127 < 2^15 */
    __m256i pairs = _mm256_maddubs_epi16((__m256i)w, _mm256_set1_epi32(four));
    return (integers)_mm256_add_epi16((__m256i)sums, pairs);
#else
    return four_products(sums, (const int8_t *)&w, x);
#endif
}

INLINE integers sums_of_block(integers sums) {
#if defined __AVX2__ && !defined __AVX512VNNI__
    return (integers)_mm256_madd_epi16((__m256i)sums, _mm256_set1_epi16(1));
#else
    return sums;
#endif
}

/* What panels from `first` on make of rows of x. */
INLINE void int4_tile(const int panels, const int rows, const map *m, int64_t first, const block *x,
                      float *y, int64_t y_step) {
    const int64_t blocks = blocks_of(m);
    const uint8_t *w = (const uint8_t *)m->packed + first * blocks * (BLOCK / 2 * LANES);
    const uint16_t *scales = m->of_blocks + first * blocks * LANES;
    floats out[4][MOST_ROWS];
    UNROLLED for (int p = 0; p < panels; p++) {
        UNROLLED for (int r = 0; r < rows; r++) out[p][r] = (floats){0};
    }
    for (int64_t b = 0; b < blocks; b++) {
        integers sums[4][MOST_ROWS];
        UNROLLED for (int p = 0; p < panels; p++) {
            UNROLLED for (int r = 0; r < rows; r++) sums[p][r] = (integers){0};
        }
        UNROLLED for (int i = 0; i < BLOCK; i += 2 * GROUP) {
            UNROLLED for (int p = 0; p < panels; p++) {
                const uint8_t *at = w + (p * blocks + b) * (BLOCK / 2 * LANES) + i / 2 * LANES;
                const words both = *(const words *)at;
                const words low = both & 0x0f0f0f0f, high = both >> 4 & 0x0f0f0f0f;
                UNROLLED for (int r = 0; r < rows; r++) {
                    const int8_t *of_x = x[r * blocks + b].x + i;
                    sums[p][r] = nibble_products(sums[p][r], low, of_x);
                    sums[p][r] = nibble_products(sums[p][r], high, of_x + GROUP);
                }
            }
        }
        UNROLLED for (int p = 0; p < panels; p++) {
            const floats scale = widened(scales + (p * blocks + b) * LANES);
            UNROLLED for (int r = 0; r < rows; r++) {
                const block *of_x = x + r * blocks + b;
                integers whole = sums_of_block(sums[p][r]) + of_x->sum;
                out[p][r] += __builtin_convertvector(whole, floats) * (scale * of_x->scale);
            }
        }
    }
    UNROLLED for (int p = 0; p < panels; p++) {
        const int64_t at = (first + p) * LANES;
        UNROLLED for (int r = 0; r < rows; r++) {
            put(y + r * y_step + at, out[p][r] + load(m->bias + at), m->outputs - at);
        }
    }
}

#define FORMS(R) FORM(int4, 1, R, int4_tile)
FORMS(1) FORMS(2) FORMS(3) FORMS(4) FORMS(5) FORMS(6) FORMS(7) FORMS(8) FORM(int4, 4, 1, int4_tile)
#undef FORM
#undef FORMS
static whole_form *const INT4_FORMS[] = {int4_1_1, int4_1_2, int4_1_3, int4_1_4,
                                         int4_1_5, int4_1_6, int4_1_7, int4_1_8};
static whole_form *const INT4_WIDE[] = {int4_4_1};

/* Of panels `first` to `last`, the rows in tiles of sizes as equal as can be. */
static void whole_product(const map *m, int64_t first, int64_t last, int64_t rows, const char *x,
                          float *y, int64_t y_step) {
    const int is_int4 = m->of_blocks != 0, most = is_int4 ? INT4_ROWS : INT8_ROWS;
    whole_form *const *forms = is_int4 ? INT4_FORMS : INT8_FORMS;
    whole_form *const *wide = is_int4 ? INT4_WIDE : INT8_WIDE;
    const int64_t at_once = rows == 1 ? 4 : is_int4 ? 1 : 2, tiles = (rows + most - 1) / most;
    const size_t width = WIDENS && rows > 1 && !is_int4 ? sizeof(wide_block) : sizeof(block);
    for (int64_t panels; first < last; first += panels) {
        panels = first + at_once <= last ? at_once : 1;
        for (int64_t r = 0, left = tiles; left > 0; left--) {
            const int64_t count = (rows - r + left - 1) / left;
            (panels > 1 ? wide : forms)[count - 1](m, first, x + r * blocks_of(m) * width,
                                                   y + r * y_step, y_step);
            r += count;
        }
    }
}

/* ---- Maps W x + b of rows in blocks, as files have them ---- */

/* The rows of W lie one after another, in one of these types of GGUF files: floating-point numbers,
   or blocks of 32 or 256 whole numbers q with scales s and minima m, which stand for s q - m. */
enum { PANELS, F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K };
/* Bytes of W that are asked for before they are wanted. */
enum { AHEAD = 6144 };
enum { EIGHT = 8, SUPERBLOCK = 256, GROUPS = SUPERBLOCK / 16, ROWS_AT_ONCE = 4, OUTPUTS_AT_ONCE = 32 };
typedef uint8_t bytes __attribute__((vector_size(16)));
typedef int8_t signed_bytes __attribute__((vector_size(16)));
typedef uint64_t two_words __attribute__((vector_size(16)));
typedef int16_t shorts __attribute__((vector_size(32)));
typedef uint16_t eight_halves __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint8_t eight_bytes __attribute__((vector_size(8)));
typedef int32_t eight_integers __attribute__((vector_size(32)));
typedef float eight __attribute__((vector_size(32)));
typedef float eight_anywhere __attribute__((vector_size(32), aligned(4), may_alias));

INLINE int64_t size_of(int type) { return type <= Q8_0 ? BLOCK : SUPERBLOCK; }
INLINE int64_t width_of(int type) {
    static const int widths[] = {0, 128, 64, 64, 18, 20, 22, 24, 34, 84, 110, 144, 176, 210};
    return widths[type];
}

INLINE float number_of_half(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, sizeof half);
#ifdef __F16C__
    return _cvtsh_ss(half);
#else
    const uint32_t shifted = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    float number;
    memcpy(&number, &shifted, sizeof number);
    number *= 0x1p112f; /* the exponents of both types are 112 apart */
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    bits |= sign | ((half & 0x7c00) == 0x7c00 ? 0x7f800000 : 0);
    memcpy(&number, &bits, sizeof number);
    return number;
#endif
}

INLINE void sixteen_at(const int type, const uint8_t *at, eight *to) {
    UNROLLED for (int i = 0; i < 2; i++) {
        if (type == F32) to[i] = *(const eight_anywhere *)(at + 32 * i);
#ifdef __AVX2__
        if (type == F16) to[i] = (eight)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at + i));
        if (type == BF16) {
            const __m256i both = _mm256_loadu_si256((const __m256i *)at), zero = _mm256_setzero_si256();
            const __m256i order = _mm256_permute4x64_epi64(both, 0xd8); /* halves unpack by lanes */
            to[i] = (eight)(i ? _mm256_unpackhi_epi16(zero, order) : _mm256_unpacklo_epi16(zero, order));
        }
#else
        for (int k = 0; k < EIGHT && type == F16; k++) to[i][k] = number_of_half(at + 2 * (EIGHT * i + k));
        if (type == BF16) {
            const eight_halves *halves = (const eight_halves *)at + i;
            to[i] = (eight)(__builtin_convertvector(*halves, eight_integers) << 16);
        }
#endif
    }
}

INLINE float sum_of_eight(eight x) {
    float four[4];
    for (int i = 0; i < 4; i++) four[i] = x[i] + x[i + 4];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

/* Adds the products of 32 floating-point numbers of W, for one or two outputs, with rows of x. */
INLINE void add_numbers(const int type, const int outputs, const int rows, const uint8_t *w,
                        int64_t w_step, const float *x, int64_t x_step,
                        eight sums[2][ROWS_AT_ONCE][2]) {
    UNROLLED for (int i = 0; i < 2; i++) {
        UNROLLED for (int p = 0; p < outputs; p++) {
            eight numbers[2];
            sixteen_at(type, w + p * w_step + i * (width_of(type) / 2), numbers);
            UNROLLED for (int k = 0; k < 2; k++) {
                UNROLLED for (int r = 0; r < rows; r++) {
                    const float *of_x = x + r * x_step + (2 * i + k) * EIGHT;
                    sums[p][r][k] += numbers[k] * *(const eight_anywhere *)of_x;
                }
            }
        }
    }
}

/* What outputs from `first` on make of rows of x. Two sums of each, for one would wait for itself. */
INLINE void numbers_tile(const int type, const int outputs, const int rows, const map *m, int64_t first,
                         const float *x, int64_t x_step, float *y, int64_t y_step) {
    const int64_t width = width_of(type), blocks = m->inputs / BLOCK, left = m->inputs % BLOCK;
    const int64_t left_bytes = left * width / BLOCK, each = blocks * width + left_bytes;
    const uint8_t *w = (const uint8_t *)m->packed + first * each;
    eight sums[2][ROWS_AT_ONCE][2];
    UNROLLED for (int p = 0; p < outputs; p++) {
        UNROLLED for (int r = 0; r < rows; r++) sums[p][r][0] = sums[p][r][1] = (eight){0};
    }
    for (int64_t b = 0; b < blocks; b++) {
        UNROLLED for (int p = 0; p < outputs; p++) {
            __builtin_prefetch(w + p * each + b * width + AHEAD);
            if (type == F32) __builtin_prefetch(w + p * each + b * width + AHEAD + 64);
        }
        add_numbers(type, outputs, rows, w + b * width, each, x + b * BLOCK, x_step, sums);
    }
    if (left) {
        float of_x[ROWS_AT_ONCE][BLOCK] = {0};
        uint8_t of_w[2][BLOCK * sizeof(float)] = {0};
        for (int r = 0; r < rows; r++) {
            memcpy(of_x[r], x + r * x_step + blocks * BLOCK, (size_t)left * sizeof(float));
        }
        for (int p = 0; p < outputs; p++) {
            memcpy(of_w[p], w + p * each + blocks * width, (size_t)left_bytes);
        }
        add_numbers(type, outputs, rows, of_w[0], sizeof of_w[0], of_x[0], BLOCK, sums);
    }
    UNROLLED for (int p = 0; p < outputs; p++) {
        UNROLLED for (int r = 0; r < rows; r++) {
            const float sum = sum_of_eight(sums[p][r][0] + sums[p][r][1]);
            y[r * y_step + first + p] = sum + m->bias[first + p];
        }
    }
}

/* 32 numbers of x in whole ones, scale (x + rest / 2^15), which is closer to them than float32 is to
   the largest of them. Rounding to 16 bits alone changes logits by
   more than float32 does: the large numbers of some blocks make the others coarse. */
typedef struct {
    int16_t x[BLOCK], rest[BLOCK];
} fine_block;

/* A row of x: its blocks, their scales, and the sums of each 16 of its numbers. */
typedef struct {
    const fine_block *blocks;
    const float *scales, *sums;
} fine_row;

INLINE int64_t fine_bytes(int64_t inputs) {
    return inputs / BLOCK * (int64_t)(sizeof(fine_block) + 3 * sizeof(float));
}
INLINE fine_row fine_row_at(const char *at, int64_t inputs) {
    const int64_t blocks = inputs / BLOCK;
    const float *scales = (const float *)(at + blocks * (int64_t)sizeof(fine_block));
    return (fine_row){(const fine_block *)at, scales, scales + blocks};
}

/* Rounds a row of x. */
static void rounded_finely(const float *x, int64_t inputs, char *at) {
    const fine_row row = fine_row_at(at, inputs);
    fine_block *to = (fine_block *)row.blocks;
    float *scales = (float *)row.scales, *sums = (float *)row.sums;
    for (; inputs > 0; inputs -= BLOCK, x += BLOCK, to++, scales++, sums += 2) {
        int32_t most = 0;
        for (int i = 0; i < BLOCK; i++) {
            int32_t bits;
            memcpy(&bits, x + i, sizeof bits);
            bits &= INT32_MAX;
            most = bits > most ? bits : most;
        }
        float scale;
        memcpy(&scale, &most, sizeof scale);
        scale = (scale > 1e-30f ? scale : 1e-30f) * (1.0f / INT16_MAX);
        const float by = 1.0f / scale;
        INDEPENDENT for (int i = 0; i < BLOCK; i++) {
            const float whole = (x[i] * by + 12582912.0f) - 12582912.0f;
            const float rest = (x[i] - whole * scale) * by * 32768.0f;
            to->x[i] = (int16_t)(int32_t)whole;
            to->rest[i] = (int16_t)(int32_t)((rest + 12582912.0f) - 12582912.0f);
        }
        *scales = scale;
        sums[0] = total(16, x, 1), sums[1] = total(16, x + 16, 1);
    }
}

INLINE bytes bytes_at(const uint8_t *at) {
    bytes x;
    memcpy(&x, at, sizeof x);
    return x;
}

INLINE shorts widened_bytes(bytes x) {
#ifdef __AVX2__
    return (shorts)_mm256_cvtepu8_epi16((__m128i)x);
#else
    return __builtin_convertvector(x, shorts);
#endif
}

INLINE shorts widened_signed(bytes x) {
#ifdef __AVX2__
    return (shorts)_mm256_cvtepi8_epi16((__m128i)x);
#else
    return __builtin_convertvector((signed_bytes)x, shorts);
#endif
}

#ifdef __clang__
#define SHUFFLED_BYTES(A, ...) __builtin_shufflevector(A, A, __VA_ARGS__)
#else
#define SHUFFLED_BYTES(A, ...) __builtin_shuffle(A, (bytes){__VA_ARGS__})
#endif

/* Of 16 bits, -1 for each that is not set, else 0. */
INLINE shorts unset_bits(const uint8_t *at) {
    const shorts places = {1,      1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
                           1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, INT16_MIN};
    int16_t bits;
    memcpy(&bits, at, sizeof bits);
    return (((shorts){0} + bits) & places) == 0;
}

/* The 16 whole numbers of group g of a block. */
INLINE shorts group_of(const int type, const uint8_t *at, const int g) {
    const int n = g / 8, j = g / 2 % 4, half = 16 * (g % 2);
    if (type == Q8_0) return widened_signed(bytes_at(at + 2 + half));
    if (type < Q8_0) {
        const int has_minimum = type == Q4_1 || type == Q5_1, has_fifth = type >= Q5_0;
        const uint8_t *fifth = at + 2 + 2 * has_minimum;
        const shorts both = widened_bytes(bytes_at(fifth + 4 * has_fifth));
        const shorts q = g ? both >> 4 : both & 15;
        if (!has_fifth) return has_minimum ? q : q - 8;
        const shorts unset = unset_bits(fifth + 2 * g);
        return q | (has_minimum ? unset + 1 : unset) << 4; /* without a minimum, 16 is subtracted */
    }
    if (type == Q4_K || type == Q5_K) {
        const int low = type == Q5_K ? 48 : 16, sub = g / 2;
        const shorts both = widened_bytes(bytes_at(at + low + 32 * (sub / 2) + half));
        const shorts q = sub % 2 ? both >> 4 : both & 15;
        return type == Q4_K ? q : q | (widened_bytes(bytes_at(at + 16 + half)) >> sub & 1) << 4;
    }
    if (type == Q6_K) {
        const shorts both = widened_bytes(bytes_at(at + 64 * n + 32 * (j % 2) + half));
        const shorts high = widened_bytes(bytes_at(at + 128 + 32 * n + half));
        return ((j < 2 ? both & 15 : both >> 4) | ((j < 2 ? high << (4 - 2 * j) : high >> (2 * j - 4)) & 48)) - 32;
    }
    const shorts q = widened_bytes(bytes_at(at + (type == Q3_K ? 32 : 16) + 32 * n + half)) >> 2 * j & 3;
    if (type == Q2_K) return q;
    return (q | (widened_bytes(bytes_at(at + half)) >> (4 * n + j) & 1) << 2) - 4;
}

/* The whole scales of the groups of a superblock, or of 32 numbers; and its whole minima of groups. */
INLINE void scales_of(const int type, const uint8_t *at, uint8_t *scales, uint8_t *minima) {
    uint32_t w[3];
    memcpy(w, at + (type == Q3_K ? 96 : 4), sizeof w);
    if (type == Q6_K) {
        memcpy(scales, at + 192, GROUPS);
    } else if (type == Q2_K) {
        const bytes both = bytes_at(at), low = both & 15, high = both >> 4;
        memcpy(scales, &low, GROUPS), memcpy(minima, &high, GROUPS);
    } else if (type == Q3_K) {
        uint32_t six[4];
        for (int k = 0; k < 4; k++) {
            six[k] = ((w[k % 2] >> 4 * (k / 2)) & 0x0f0f0f0f) | ((w[2] >> 2 * k) & 0x03030303) << 4;
        }
        const bytes lower = bytes_at((const uint8_t *)six) - 32;
        memcpy(scales, &lower, GROUPS);
    } else {
        const uint32_t upper[2] = {(w[0] >> 6) & 0x03030303, (w[1] >> 6) & 0x03030303};
        const uint32_t first[2] = {w[0] & 0x3f3f3f3f, (w[2] & 0x0f0f0f0f) | upper[0] << 4};
        const uint32_t last[2] = {w[1] & 0x3f3f3f3f, (w[2] >> 4 & 0x0f0f0f0f) | upper[1] << 4};
        const bytes eight = (bytes)(two_words){last[0] | (uint64_t)last[1] << 32, 0};
        const bytes twice = SHUFFLED_BYTES(eight, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
        memcpy(scales, first, sizeof first), memcpy(minima, &twice, GROUPS);
    }
}

INLINE eight_integers products_of_pairs(shorts a, const int16_t *at) {
#ifdef __AVX2__
    return (eight_integers)_mm256_madd_epi16((__m256i)a, _mm256_loadu_si256((const __m256i *)at));
#else
    eight_integers sums;
    for (int i = 0; i < EIGHT; i++) sums[i] = a[2 * i] * at[2 * i] + a[2 * i + 1] * at[2 * i + 1];
    return sums;
#endif
}

INLINE eight floats_of(const uint8_t *at) {
    eight_bytes x;
    memcpy(&x, at, sizeof x);
#ifdef __AVX2__
    return (eight)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)at)));
#else
    return __builtin_convertvector(x, eight);
#endif
}

INLINE eight products_of_block(shorts low, shorts high, const fine_block *x) {
    const eight_integers whole = products_of_pairs(low, x->x) + products_of_pairs(high, x->x + 16);
    const eight_integers rest = products_of_pairs(low, x->rest) + products_of_pairs(high, x->rest + 16);
    return __builtin_convertvector(whole, eight) + __builtin_convertvector(rest, eight) * 0x1p-15f;
}

/* What outputs from `first` on make of rows of x in fine blocks. Products with whole numbers, and
   with the whole scales of 16 of them, are added up exactly within a block of x. */
INLINE void blocks_tile(const int type, const int outputs, const int rows, const map *m, int64_t first,
                        const char *x, int64_t x_step, float *y, int64_t y_step) {
    const int is_super = type > Q8_0, of_32 = type == Q4_K || type == Q5_K;
    const int has_minimum = type == Q4_1 || type == Q5_1, has_minima = of_32 || type == Q2_K;
    const int64_t size = size_of(type), width = width_of(type), blocks = m->inputs / size;
    const int at_scale = type == Q2_K ? 80 : type == Q3_K ? 108 : type == Q6_K ? 208 : 0;
    const uint8_t *w = (const uint8_t *)m->packed + first * blocks * width;
    eight sums[2][ROWS_AT_ONCE];
    float rest[2][ROWS_AT_ONCE];
    UNROLLED for (int p = 0; p < outputs; p++) {
        UNROLLED for (int r = 0; r < rows; r++) sums[p][r] = (eight){0}, rest[p][r] = 0;
    }
    for (int64_t b = 0; b < blocks; b++) {
        UNROLLED for (int p = 0; p < outputs; p++) {
            const uint8_t *at = w + (p * blocks + b) * width;
            UNROLLED for (int i = 0; i < width; i += 64) __builtin_prefetch(at + AHEAD + i);
            const float scale = number_of_half(at + at_scale);
            const float minimum = has_minimum || has_minima ? number_of_half(at + at_scale + 2) : 0;
            uint8_t scales[GROUPS], minima[GROUPS];
            float of_both[ROWS_AT_ONCE][EIGHT];
            if (is_super) {
                scales_of(type, at, scales, minima);
                const eight own = of_32 ? floats_of(scales) * scale : (eight){0} + scale;
                UNROLLED for (int r = 0; r < rows; r++) {
                    const float *of_x = fine_row_at(x + r * x_step, m->inputs).scales + b * EIGHT;
                    *(eight_anywhere *)of_both[r] = own * *(const eight_anywhere *)of_x;
                }
            }
            UNROLLED for (int s = 0; s < size / BLOCK; s++) {
                shorts low = group_of(type, at, 2 * s), high = group_of(type, at, 2 * s + 1);
                if (is_super && !of_32) {
                    low *= (shorts){0} + (int8_t)scales[2 * s];
                    high *= (shorts){0} + (int8_t)scales[2 * s + 1];
                }
                UNROLLED for (int r = 0; r < rows; r++) {
                    const fine_row of_x = fine_row_at(x + r * x_step, m->inputs);
                    const int64_t block = b * (size / BLOCK) + s;
                    const float by = is_super ? of_both[r][s] : scale * of_x.scales[block];
                    sums[p][r] += products_of_block(low, high, of_x.blocks + block) * by;
                    if (!has_minimum) continue;
                    rest[p][r] += minimum * (of_x.sums[2 * block] + of_x.sums[2 * block + 1]);
                }
            }
            if (!has_minima) continue;
            UNROLLED for (int half = 0; half < 2; half++) {
                const eight least_of_groups = floats_of(minima + EIGHT * half) * -minimum;
                UNROLLED for (int r = 0; r < rows; r++) {
                    const float *of_x = fine_row_at(x + r * x_step, m->inputs).sums + b * GROUPS;
                    sums[p][r] += least_of_groups * *(const eight_anywhere *)(of_x + EIGHT * half);
                }
            }
        }
    }
    UNROLLED for (int p = 0; p < outputs; p++) {
        UNROLLED for (int r = 0; r < rows; r++) {
            y[r * y_step + first + p] = sum_of_eight(sums[p][r]) + rest[p][r] + m->bias[first + p];
        }
    }
}

/* The numbers of `blocks` blocks: s q - m, each of both operations rounded. */
INLINE void numbers_of_blocks(const int type, int64_t blocks, const uint8_t *at, float *y) {
    const int is_super = type > Q8_0, of_32 = type == Q4_K || type == Q5_K;
    const int has_minimum = type == Q4_1 || type == Q5_1, has_minima = of_32 || type == Q2_K;
    const int at_scale = type == Q2_K ? 80 : type == Q3_K ? 108 : type == Q6_K ? 208 : 0;
    for (; blocks > 0; blocks--, at += width_of(type)) {
        const float scale = number_of_half(at + at_scale);
        const float both = has_minimum || has_minima ? number_of_half(at + at_scale + 2) : 0;
        uint8_t scales[GROUPS], minima[GROUPS];
        if (is_super) scales_of(type, at, scales, minima);
        UNROLLED for (int g = 0; g < size_of(type) / 16; g++, y += 16) {
            const shorts q = group_of(type, at, g);
            const float by = !is_super ? scale
                : scale * (of_32 || type == Q2_K ? scales[of_32 ? g / 2 : g] : (int8_t)scales[g]);
            const float minimum = has_minima ? both * minima[g] : -both;
            float numbers[16];
            for (int i = 0; i < 16; i++) numbers[i] = q[i] * by;
            __asm__("" : "+m"(numbers)); /* no fused operation */
            for (int i = 0; i < 16; i++) y[i] = has_minimum || has_minima ? numbers[i] - minimum : numbers[i];
        }
    }
}

void dequantize(int64_t type, int64_t blocks, const uint8_t *at, float *y) {
#define NUMBERS(TYPE) case TYPE: numbers_of_blocks(TYPE, blocks, at, y); break;
    switch (type) {
        NUMBERS(Q4_0) NUMBERS(Q4_1) NUMBERS(Q5_0) NUMBERS(Q5_1) NUMBERS(Q8_0)
        NUMBERS(Q2_K) NUMBERS(Q3_K) NUMBERS(Q4_K) NUMBERS(Q5_K) NUMBERS(Q6_K)
    }
#undef NUMBERS
}

/* x is in floats for W in floating-point numbers, else in fine blocks; rows lie `x_step` bytes apart. */
typedef void rows_form(const map *, int64_t, const char *, int64_t, float *, int64_t);
#define FORM(TYPE, P, R) \
    static __attribute__((noinline)) void TYPE##_##P##_##R( \
        const map *m, int64_t first, const char *x, int64_t x_step, float *y, int64_t y_step) { \
        if (TYPE > BF16) blocks_tile(TYPE, P, R, m, first, x, x_step, y, y_step); \
        else numbers_tile(TYPE, P, R, m, first, (const float *)x, x_step / 4, y, y_step); \
    }
#define FORMS(TYPE) FORM(TYPE, 2, 1) FORM(TYPE, 1, 1) FORM(TYPE, 1, 2) FORM(TYPE, 1, 3) FORM(TYPE, 1, 4)
FORMS(F32) FORMS(F16) FORMS(BF16) FORMS(Q4_0) FORMS(Q4_1) FORMS(Q5_0) FORMS(Q5_1) FORMS(Q8_0)
FORMS(Q2_K) FORMS(Q3_K) FORMS(Q4_K) FORMS(Q5_K) FORMS(Q6_K)
#undef FORMS
#undef FORM
#define FORMS(TYPE) [TYPE] = {TYPE##_2_1, TYPE##_1_1, TYPE##_1_2, TYPE##_1_3, TYPE##_1_4}
static rows_form *const ROWS_FORMS[][1 + ROWS_AT_ONCE] = {
    FORMS(F32), FORMS(F16), FORMS(BF16), FORMS(Q4_0), FORMS(Q4_1), FORMS(Q5_0), FORMS(Q5_1),
    FORMS(Q8_0), FORMS(Q2_K), FORMS(Q3_K), FORMS(Q4_K), FORMS(Q5_K), FORMS(Q6_K)};
#undef FORMS

/* Of outputs `first` to `last`: as many as stay in the cache meet all rows of x, in tiles of them. */
static void rows_product(const map *m, int64_t first, int64_t last, int64_t rows, const char *x,
                         int64_t x_step, float *y, int64_t y_step) {
    rows_form *const *forms = ROWS_FORMS[m->type];
    for (; first < last; first += OUTPUTS_AT_ONCE) {
        const int64_t end = least(first + OUTPUTS_AT_ONCE, last);
        for (int64_t r = 0; r < rows; r += ROWS_AT_ONCE) {
            const int64_t count = least(ROWS_AT_ONCE, rows - r);
            int64_t output = first;
            for (; count == 1 && output + 2 <= end; output += 2) {
                forms[0](m, output, x + r * x_step, x_step, y + r * y_step, y_step);
            }
            for (; output < end; output++) {
                forms[count](m, output, x + r * x_step, x_step, y + r * y_step, y_step);
            }
        }
    }
}

typedef struct {
    const map *m;
    int64_t rows, x_step, y_step;
    const float *x;
    const void *whole; /* x in blocks of whole numbers; or null */
    float *y;
} product_work;

static void product_part(const void *about, int64_t part, int64_t parts) {
    const product_work *o = about;
    const int in_rows = o->m->type != PANELS;
    const int64_t panel = in_rows ? 1 : o->whole ? LANES : PANEL;
    const int64_t panels = (o->m->outputs + panel - 1) / panel;
    const int64_t fours = (panels + 3) / 4; /* a row takes four at a time */
    const int64_t first = 4 * (fours * part / parts);
    const int64_t last = least(panels, 4 * (fours * (part + 1) / parts));
    if (in_rows) {
        const char *x = o->whole ? o->whole : (const char *)o->x;
        const int64_t step = o->whole ? fine_bytes(o->m->inputs) : o->x_step * (int64_t)sizeof(float);
        rows_product(o->m, first, last, o->rows, x, step, o->y, o->y_step);
    } else if (o->whole) {
        whole_product(o->m, first, last, o->rows, o->whole, o->y, o->y_step);
    } else {
        float_product(o->m, first, last, o->rows, o->x, o->x_step, o->y, o->y_step);
    }
}

void product(const map *m, int64_t rows, const float *x, int64_t x_step, float *y, int64_t y_step,
             void *scratch) {
    const int is_wide = WIDENS && !m->of_blocks && rows > 1, added = m->of_blocks ? 8 : ADDED;
    const int rounds = m->scales || m->of_blocks;
    void *to = scratch;
    for (int64_t r = 0; rounds && r < rows; r++) {
        const float *in = x + r * x_step;
        to = is_wide ? (void *)rounded_wide(in, m->inputs, 0, to) : rounded(in, m->inputs, added, to);
    }
    int is_fine = 0;
    for (const map *some = m; some; some = some->next) is_fine |= some->type > BF16;
    for (int64_t r = 0; is_fine && r < rows; r++) {
        rounded_finely(x + r * x_step, m->inputs, (char *)scratch + r * fine_bytes(m->inputs));
    }
    for (; m; y += m->outputs, m = m->next) {
        void *whole = rounds || m->type > BF16 ? scratch : 0;
        const product_work all_of_it = {m, rows, x_step, y_step, x, whole, y};
        share(product_part, &all_of_it, rows * m->inputs * m->outputs);
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
    int64_t about[2]; /* PRODUCT: the map; ATTEND, SOURCE: the layer, and heads of keys */
} instruction;

/* Keys and values of each layer, (B, heads, slots, D): what every row has read before, and reads now.
   Row r of a program is a token of row `rows[r]` there, which takes slot `ends[r] - 1` and sees those
   from `starts[r]` on. Slots of row b before `until[b]` equal those of the row `like[b]` before it, and
   are read there, so that rows which share them take them from the cache; in `order` such rows
   follow one another.
   Of an encoder-decoder also those of the sources, (S, heads, places, D): row r reads the first
   `lengths[owners[r]]` places of source `owners[r]`. */
typedef struct {
    float *const *keys, *const *values;
    const int64_t *rows, *starts, *ends, *order, *like, *until;
    int64_t slots;
    int64_t room;
    float *weights; /* MOST_PARTS times `room`, which slots and places fit in */
    float *const *source_keys, *const *source_values;
    const int64_t *owners, *lengths;
    int64_t places;
} past;

enum { COPY, TANH, EXP, SQRT, NEGATIVE, EXPM1, LOG, ERF, ABSOLUTE,
       ADD, SUBTRACT, MULTIPLY, DIVIDE, MAXIMUM, MINIMUM, SUM, MOST, PRODUCT, ATTEND, SOURCE };

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

INLINE float largest(int64_t n, const float *a, int64_t step) {
    float most[LANES], all_most = a[0];
    int64_t k = 0;
    if (step == 1 && n >= LANES) {
        memcpy(most, a, sizeof most);
        for (k = LANES; k + LANES <= n; k += LANES) {
            for (int l = 0; l < LANES; l++) most[l] = a[k + l] > most[l] ? a[k + l] : most[l];
        }
        for (int l = 0; l < LANES; l++) all_most = most[l] > all_most ? most[l] : all_most;
    }
    for (; k < n; k++) all_most = a[k * step] > all_most ? a[k * step] : all_most;
    return all_most;
}

/* out[j] = a b_j, of `count` vectors b_j that lie `step` apart, side by side: one alone waits for
   each of its sums. */
INLINE void dots(const int count, int64_t n, const float *a, const float *b, int64_t step,
                 float scale, float *out) {
    floats sums[4];
    int64_t k = 0;
    UNROLLED for (int j = 0; j < count; j++) sums[j] = (floats){0};
    for (; k + LANES <= n; k += LANES) {
        floats of_a = load(a + k);
        UNROLLED for (int j = 0; j < count; j++) sums[j] += of_a * load(b + j * step + k);
    }
    if (k < n) {
        floats of_a = get(a + k, n - k);
        UNROLLED for (int j = 0; j < count; j++) sums[j] += of_a * get(b + j * step + k, n - k);
    }
    if (count < 4) {
        UNROLLED for (int j = 0; j < count; j++) out[j] = sum_of(sums[j]) * scale;
        return;
    }
    const floats of_each = sums_of(sums[0], sums[1], sums[2], sums[3]) * scale;
    UNROLLED for (int j = 0; j < 4; j++) out[j] = of_each[j * LANES / 4];
}

/* Slots `begin` to `end` of a row's past, where they lie. */
typedef struct {
    int64_t row, begin, end;
} stretch;
enum { STRETCHES = 16 };

/* Finds where the past of row `r` lies, the newest slots last, and returns where the first is. */
INLINE int64_t stretches_of(const past *state, int64_t r, stretch *found) {
    const int64_t start = state->starts[r];
    int64_t first = STRETCHES, end = state->ends[r], row = state->rows[r];
    while (end > start) {
        int64_t begin = start;
        if (first > 1 && state->like && state->until[row] > start) begin = state->until[row];
        if (begin < end) {
            found[--first] = (stretch){row, begin, end};
            end = begin;
        }
        if (end > start) row = state->like[row];
    }
    return first;
}

/* out (D) = softmax(q K^T / sqrt(D)) V over the slots of one head, whose keys and values of the
   next row lie `per_row` further on. The keys at `next`, which are wanted next, are asked for, `pace`
   numbers at a time. */
static void attend_one(const stretch *first, const stretch *last, int64_t width,
                       const float *q, const float *keys, const float *values, int64_t per_row,
                       float *weights, float *out, const float *next, int64_t pace) {
    const float scale = 1.0f / sqrtf((float)width);
    int64_t n = 0, d = 0;
    for (const stretch *s = first; s < last; s++) {
        const float *at = keys + s->row * per_row, *then = values + s->row * per_row;
        int64_t k = s->begin;
        for (; k + 4 <= s->end; k += 4, n += 4) {
            for (int64_t ahead = 0; ahead < 4 * width; ahead += 16) {
                __builtin_prefetch(then + k * width + ahead, 0, 2);
                __builtin_prefetch(next + ahead, 0, 2);
            }
            next += pace;
            dots(4, width, q, at + k * width, width, scale, weights + n);
        }
        for (; k < s->end; k++, n++) dots(1, width, q, at + k * width, width, scale, weights + n);
    }
    float most = largest(n, weights, 1);
    INDEPENDENT for (int64_t k = 0; k < n; k++) weights[k] = exponential(weights[k] - most);
    const float share = 1.0f / total(n, weights, 1);
#define READ(COUNT, GET, PUT) do { \
        floats sums[COUNT] = {0}; \
        const float *weight = weights; \
        for (const stretch *s = first; s < last; s++) { \
            const float *at = values + s->row * per_row + s->begin * width + d; \
            for (int64_t k = s->begin; k < s->end; k++, at += width) { \
                const float by = *weight++; \
                UNROLLED for (int j = 0; j < COUNT; j++) sums[j] += by * GET(at + LANES * j); \
            } \
        } \
        UNROLLED for (int j = 0; j < COUNT; j++) PUT(out + d + LANES * j, sums[j] * share); \
    } while (0)
#define GET(X) get(X, width - d)
#define PUT(Y, X) put(Y, X, width - d)
    for (; d + 8 * LANES <= width; d += 8 * LANES) READ(8, load, store);
    for (; d + 4 * LANES <= width; d += 4 * LANES) READ(4, load, store);
    for (; d + LANES <= width; d += LANES) READ(1, load, store);
    if (d < width) READ(1, GET, PUT);
#undef READ
#undef GET
#undef PUT
}

INLINE float *place(const buffer *buffers, const operand *x, int64_t row) {
    const buffer *at = buffers + x->buffer;
    return at->at + row * at->width + x->offset;
}

typedef struct {
    const instruction *o, *next;
    int64_t rows;
    const buffer *buffers;
    const past *state;
} step_work;

static void attend_part(const void *about, int64_t part, int64_t parts) {
    const step_work *a = about;
    const instruction *o = a->o;
    const past *state = a->state;
    const int own = o->code == ATTEND;
    const int64_t heads = o->shape[0], width = o->shape[2], of_keys = o->about[1];
    const int64_t head = (own ? state->slots : state->places) * width, per_row = of_keys * head;
    const float *keys = (own ? state->keys : state->source_keys)[o->about[0]];
    const float *values = (own ? state->values : state->source_values)[o->about[0]];
    const int64_t last = a->rows * (part + 1) / parts;
    for (int64_t h = 0; h < heads; h++) {
        const int64_t first = h / (heads / of_keys) * head;
        for (int64_t r = a->rows * part / parts; r < last; r++) {
            const int64_t row = state->order[r];
            stretch found[STRETCHES], *end = found + STRETCHES, *s = end - 1;
            if (own) {
                s = found + stretches_of(state, row, found);
            } else {
                *s = (stretch){state->owners[row], 0, state->lengths[state->owners[row]]};
            }
            const int64_t soon = r + 1 < last ? state->order[r + 1] : row;
            const float *next = keys + first + state->rows[soon] * per_row + state->starts[soon] * width;
            const int apart = own && !state->like; /* else rows read the same, which is there */
            attend_one(s, end, width, place(a->buffers, o->in, row) + h * o->in[0].strides[0],
                       keys + first, values + first, per_row, state->weights + part * state->room,
                       place(a->buffers, &o->out, row) + h * o->out.strides[0],
                       apart ? next : keys + first, apart ? 4 * width : 0);
        }
    }
}

/* Keys and values of the step are added to the past first, since rows may read those of others. */
static void append(const instruction *o, int64_t rows, const buffer *buffers, const past *state) {
    const int64_t width = o->shape[2], of_keys = o->about[1], head = state->slots * width;
    float *keys = state->keys[o->about[0]], *values = state->values[o->about[0]];
    for (int64_t row = 0; row < rows; row++) {
        const float *k = place(buffers, o->in + 1, row), *v = place(buffers, o->in + 2, row);
        for (int64_t h = 0; h < of_keys; h++) {
            int64_t newest = (state->rows[row] * of_keys + h) * head + (state->ends[row] - 1) * width;
            memcpy(keys + newest, k + h * o->in[1].strides[0], (size_t)width * sizeof(float));
            memcpy(values + newest, v + h * o->in[2].strides[0], (size_t)width * sizeof(float));
        }
    }
}

/* Slots `first` to `end` of row `target` become those of row `source`, pair after pair, in each of
   some blocks (rows, heads, slots, size bytes); `pairs` has target, source and first of each. */
void overwrite(const int64_t *blocks, int64_t count, int64_t heads, int64_t slots, int64_t size,
               const int64_t *pairs, int64_t number, int64_t end) {
    for (int64_t i = 0; i < number; i++, pairs += 3) {
        const int64_t begin = pairs[2] * size, length = end * size - begin;
        for (int64_t b = 0; b < count; b++) {
            for (int64_t h = 0; h < heads; h++) {
                char *to = (char *)(intptr_t)blocks[b] + (pairs[0] * heads + h) * slots * size;
                const char *from = (char *)(intptr_t)blocks[b] + (pairs[1] * heads + h) * slots * size;
                if (length > 0) memcpy(to + begin, from + begin, (size_t)length);
            }
        }
    }
}

/* What an instruction does to one row. */
static void elementwise(const instruction *o, int64_t row, const buffer *buffers) {
    const int64_t n = o->shape[2];
    float *out = place(buffers, &o->out, row);
    const float *a = place(buffers, o->in, row), *b = place(buffers, o->in + 1, row);
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
                line(o->code, n, y, o->out.strides[2], x, o->in[0].strides[2], AT(b, o->in[1]),
                     o->in[1].strides[2]);
            }
#undef AT
        }
    }
}

/* A row goes through all that is done to it alone while it is in the L1 cache. */
static void elementwise_part(const void *about, int64_t part, int64_t parts) {
    const step_work *a = about;
    for (int64_t row = a->rows * part / parts; row < a->rows * (part + 1) / parts; row++) {
        for (const instruction *o = a->o; o < a->next; o++) elementwise(o, row, a->buffers);
    }
}

void run(const instruction *program, int64_t count, int64_t rows, const buffer *buffers,
         const past *state, void *scratch) {
    for (const instruction *o = program, *end = program + count; o < end;) {
        if (o->code == PRODUCT) {
            product((const map *)(intptr_t)o->about[0], rows, place(buffers, o->in, 0),
                    buffers[o->in[0].buffer].width, place(buffers, &o->out, 0),
                    buffers[o->out.buffer].width, scratch);
            o++;
        } else if (o->code == ATTEND || o->code == SOURCE) {
            const int64_t read = o->code == ATTEND ? state->room : state->places;
            const step_work all_of_it = {o, 0, rows, buffers, state};
            if (o->code == ATTEND) append(o, rows, buffers, state);
            share(attend_part, &all_of_it, rows > 1 ? 2 * rows * o->shape[0] * o->shape[2] * read : 0);
            o++;
        } else {
            step_work some = {o, o, rows, buffers, state};
            int64_t numbers = 0;
            for (; some.next < end && some.next->code < PRODUCT; some.next++) {
                numbers += some.next->shape[0] * some.next->shape[1] * some.next->shape[2];
            }
            share(elementwise_part, &some, rows > 1 ? 4 * rows * numbers : 0);
            o = some.next;
        }
    }
}

/* ---- Softmax, and a draw from it ---- */

enum { NOTHING = -1 };

/* In vectors of doubles, in which sums of many numbers stay exact enough. */
static double exact_total(int64_t n, const float *a) {
    double sums[LANES] = {0}, sum = 0;
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        for (int l = 0; l < LANES; l++) sums[l] += a[k + l];
    }
    for (; k < n; k++) sum += a[k];
    for (int l = 0; l < LANES; l++) sum += sums[l];
    return sum;
}

/* Writes exp(x - most) of a row, and returns the log of their sum. */
static float masses_of(int64_t n, const float *x, float most, float *masses) {
    INDEPENDENT for (int64_t k = 0; k < n; k++) masses[k] = exponential(x[k] - most);
    return (float)log(exact_total(n, masses));
}

/* Writes the log-probabilities (rows, size) of logits. */
void log_softmax(int64_t rows, int64_t size, const float *logits, float *log_probs) {
    for (int64_t row = 0; row < rows; row++, logits += size, log_probs += size) {
        const float most = largest(size, logits, 1), log = masses_of(size, logits, most, log_probs);
        INDEPENDENT for (int64_t k = 0; k < size; k++) log_probs[k] = (logits[k] - most) - log;
    }
}

/* Draws a token of each row of logits (rows, size) by its uniform number, as `Forbid` and `CounterDraw`
   do: `NOTHING` where the roundings of those might decide, or most of the mass is removed.

   never: each once. masses: (size). log_probs: get that of each token, of `log_softmax`. */
void draw(int64_t rows, int64_t size, const float *logits, const double *uniforms,
          const int64_t *never, int64_t count, float *masses, int64_t *tokens, float *log_probs) {
    enum { BLOCK = 512 };
    for (int64_t row = 0; row < rows; row++, logits += size) {
        const float most = largest(size, logits, 1), norm = masses_of(size, logits, most, masses);
        double taken = 0, left = 0, before = 0;
        int64_t k = 0;
        for (int64_t i = 0; i < count; i++) taken += masses[never[i]], masses[never[i]] = 0;
        for (int64_t b = 0; b < size; b += BLOCK) left += exact_total(least(BLOCK, size - b), masses + b);
        /* Those round a number by 2^-24 of it, twice, and on average over the mass a number is at
           most log V; and `exponential` is off by some 2^-23. Both sides of a comparison are. */
        const double margin = left * 0x1p-23 * (2 * log(size) + 6), target = uniforms[row] * left;
        for (double sum; k < size; before += sum, k += BLOCK) {
            sum = exact_total(least(BLOCK, size - k), masses + k);
            if (before + sum > target) break;
        }
        for (; k < size && before + masses[k] <= target; k++) before += masses[k];
        const int sure = k < size && taken < 0.49 * (taken + left) && target - before > margin
            && before + masses[k] - target > margin;
        tokens[row] = sure ? k : NOTHING;
        log_probs[row] = sure ? (logits[k] - most) - norm : 0;
    }
}

/* ---- Mixtures of distributions ---- */

/* Writes the log-probabilities (rows, size) of a linear mixture from the logits of its parts, with
   their weights (parts, columns): the same for every row if there is one column. A sum of a and b is
   log a + log(1 + b / a), so that what has no probability in float32 still has a logarithm.

   scratch: (2, size). */
void mix(int64_t rows, int64_t parts, int64_t size, const float *const *logits, const double *weights,
         int64_t columns, float *scratch, float *log_probs) {
    float *const probs = scratch, *const mixed = scratch + size;
    for (int64_t row = 0; row < rows; row++, log_probs += size) {
        for (int64_t part = 0; part < parts; part++) {
            const float *const x = logits[part] + row * size;
            const float most = largest(size, x, 1), log_sum = masses_of(size, x, most, probs);
            const double weight = weights[part * columns + (columns > 1 ? row : 0)];
            const float log_weight = (float)log(weight), scale = (float)(weight * exp(-log_sum));
            if (part == 0) {
                INDEPENDENT for (int64_t k = 0; k < size; k++) {
                    log_probs[k] = (x[k] - most - log_sum) + log_weight, mixed[k] = probs[k] * scale;
                }
                continue;
            }
            INDEPENDENT for (int64_t k = 0; k < size; k++) {
                const float log_a = log_probs[k], log_b = (x[k] - most - log_sum) + log_weight;
                const float a = mixed[k], b = probs[k] * scale, more = a > b ? a : b, less = a > b ? b : a;
                const float high = log_a > log_b ? log_a : log_b, sum = high + log_of_one_and(less / more);
                mixed[k] = a + b, log_probs[k] = mixed[k] == 0.0f ? high : sum;
            }
        }
    }
}

/* The sum of the products of two rows, added up as by `exact_total`. */
static double exact_product(int64_t n, const float *a, const float *b) {
    double sums[LANES] = {0}, sum = 0;
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        for (int l = 0; l < LANES; l++) sums[l] += (double)a[k + l] * b[k + l];
    }
    for (; k < n; k++) sum += (double)a[k] * b[k];
    for (int l = 0; l < LANES; l++) sum += sums[l];
    return sum;
}

/* Writes the unnormalised log-probabilities (rows, size) of a log-linear mixture from the logits of
   its parts; see `mixture/gate.py`.

   constants: (orders, parts), of the order `matched` by each row. coefficients: (parts^2, parts).
   least: log-probabilities are raised to this. scratch: (2, parts, size). */
void gate(int64_t rows, int64_t parts, int64_t size, const float *const *logits, const int64_t *matched,
          const float *constants, const float *coefficients, float least, float *scratch, float *out) {
    const float least_prob = expf(least);
    float *const log_probs = scratch, *const probs = scratch + parts * size;
    for (int64_t row = 0; row < rows; row++, out += size) {
        double exponents[parts];
        for (int64_t j = 0; j < parts; j++) {
            const float *const x = logits[j] + row * size;
            float *const lp = log_probs + j * size, *const p = probs + j * size;
            const float most = largest(size, x, 1), log_sum = masses_of(size, x, most, p);
            const float scale = expf(-log_sum);
            INDEPENDENT for (int64_t v = 0; v < size; v++) {
                const float value = x[v] - most - log_sum, prob = p[v] * scale;
                lp[v] = value < least ? least : value, p[v] = value < least ? least_prob : prob;
            }
            exponents[j] = constants[matched[row] * parts + j];
        }
        for (int64_t j = 0; j < parts * parts; j++) {
            const double mean = exact_product(size, probs + j / parts * size, log_probs + j % parts * size);
            for (int64_t k = 0; k < parts; k++) exponents[k] += mean * coefficients[j * parts + k];
        }
        for (int64_t k = 0; k < parts; k++) {
            const float power = (float)exponents[k], *const lp = log_probs + k * size;
            INDEPENDENT for (int64_t v = 0; v < size; v++) out[v] = (k ? out[v] : 0.0f) + power * lp[v];
        }
    }
}

/* ---- N-grams ---- */

/* The n-grams of one order, and of each of their contexts where its n-grams begin. For drawing,
   `sums` has for each n-gram how much mass it and those before it have in their context, less what
   they would have after the shorter context; of contexts that are `known`. */
typedef struct {
    const float *log_probs, *backoffs;
    const int64_t *keys, *begins;
    double *sums;
    uint8_t *known;
} ngram_level;

/* `cumulated` has the mass of all words up to each, (V,). */
typedef struct {
    int64_t order, size, replaces;
    const double *cumulated;
    ngram_level levels[];
} ngram_tables;

/* Of each context its most probable continuation. */
typedef struct {
    const int64_t *words;
    const float *values;
} best_continuations;

enum { MOST_ORDER = 255 };

/* Writes for each context where its n-grams begin, and their end; also its most probable
   continuation (of equals the smallest word) if `words` is given. */
void ngram_contexts(const int64_t *keys, const float *log_probs, int64_t count, int64_t size,
                    int64_t contexts, int64_t *begins, int64_t *words, float *values) {
    int64_t at = 0;
    for (int64_t c = 0; c < contexts; c++) {
        const int64_t first = c * size;
        begins[c] = at;
        if (words) words[c] = at < count && keys[at] < first + size ? keys[at] - first : size;
        float best = -INFINITY;
        for (; at < count && keys[at] < first + size; at++) {
            if (words && log_probs[at] > best) best = log_probs[at], words[c] = keys[at] - first;
        }
        if (words) values[c] = best;
    }
    begins[contexts] = count;
}

/* Returns how many of `count` keys, ascending, are at most `key`. */
INLINE int64_t up_to(const int64_t *keys, int64_t count, int64_t key) {
    const int64_t *base = keys;
    if (count == 0) return 0;
    for (; count > 1; count -= count / 2) base = base[count / 2] <= key ? base + count / 2 : base;
    return base - keys + (*base <= key);
}

/* Returns the id of the n-gram of a context and a word, of order `n`. */
INLINE int64_t ngram_found(const ngram_tables *g, int64_t n, int64_t context, int64_t word) {
    const ngram_level *l = &g->levels[n - 1];
    const int64_t begin = l->begins[context], key = context * g->size + word;
    const int64_t at = begin + up_to(l->keys + begin, l->begins[context + 1] - begin, key) - 1;
    return at >= begin && l->keys[at] == key ? at : NOTHING;
}

/* Writes the ids (order, rows, length) of the n-grams that end at each of tokens (rows, length),
   from those before the first, (rows, N - 1). */
void ngram_nodes(const ngram_tables *g, int64_t order, int64_t rows, int64_t length,
                 const int64_t *tokens, const int64_t *first, int64_t *ids) {
    const int64_t count = rows * length;
    if (order > 0) memcpy(ids, tokens, count * sizeof *ids);
    for (int64_t n = 2; n <= order; n++) { /* look-ups of one order do not wait for one another */
        const int64_t *shorter = ids + (n - 2) * count;
        for (int64_t i = 0; i < count; i++) {
            const int64_t opened = i / length * (g->order - 1) + n - 2;
            const int64_t before = i % length ? shorter[i - 1] : first[opened];
            const int64_t id = before < 0 ? NOTHING : ngram_found(g, n, before, tokens[i]);
            ids[(n - 1) * count + i] = id;
        }
    }
}

/* Returns the log-probability of a word that a context of order `n` has not seen, from that after
   the shorter context. */
INLINE float ngram_lower(const ngram_tables *g, int64_t n, int64_t context, float value) {
    if (context < 0) return value;
    const float weight = g->levels[n - 1].backoffs[context];
    if (!g->replaces) return value + weight;
    return weight < 0 && value > -INFINITY ? weight : value;
}

/* Writes the log-probabilities (rows, V) of all words after contexts, whose ids are (rows, N - 1). */
void ngram_rows(const ngram_tables *g, int64_t rows, const int64_t *contexts, float *log_probs) {
    const int64_t size = g->size, ids = g->order - 1;
    for (int64_t row = 0; row < rows; row++, contexts += ids, log_probs += size) {
        memcpy(log_probs, g->levels[0].log_probs, size * sizeof *log_probs);
        for (int64_t n = 1; n <= ids; n++) {
            const int64_t context = contexts[n - 1];
            if (context < 0) continue;
            const ngram_level *l = &g->levels[n];
            INDEPENDENT for (int64_t k = 0; k < size; k++) {
                log_probs[k] = ngram_lower(g, n, context, log_probs[k]);
            }
            for (int64_t at = l->begins[context]; at < l->begins[context + 1]; at++) {
                log_probs[l->keys[at] - context * size] = l->log_probs[at];
            }
        }
    }
}

/* Writes the length of the longest stored context of each row of ids (rows, N - 1). */
void ngram_matched(const ngram_tables *g, int64_t rows, const int64_t *contexts, int64_t *matched) {
    const int64_t ids = g->order - 1;
    for (int64_t row = 0; row < rows; row++, contexts += ids) {
        int64_t n = ids;
        while (n > 0 && contexts[n - 1] < 0) n--;
        matched[row] = n;
    }
}

/* Reads a token in each row, and writes the ids (rows, N - 1) after it, from those `before`, and the
   log-probabilities (rows, V) of the next one. */
void ngram_step(const ngram_tables *g, int64_t rows, const int64_t *tokens, const int64_t *before,
                int64_t *after, float *log_probs) {
    const int64_t ids = g->order - 1;
    for (int64_t i = 0; i < rows * ids; i++) {
        const int64_t n = i % ids + 1, token = tokens[i / ids];
        after[i] = n == 1 ? token : before[i - 1] < 0 ? NOTHING : ngram_found(g, n, before[i - 1], token);
    }
    ngram_rows(g, rows, after, log_probs);
}

/* Writes the log-probability of each word after its context, whose ids are (N - 1, count). */
void ngram_log_probs(const ngram_tables *g, int64_t count, const int64_t *contexts,
                     const int64_t *words, float *log_probs) {
    for (int64_t i = 0; i < count; i++) {
        int64_t n = g->order, id = NOTHING;
        for (; n > 1; n--) {
            const int64_t context = contexts[(n - 2) * count + i];
            if (context >= 0 && (id = ngram_found(g, n, context, words[i])) >= 0) break;
        }
        float value = g->levels[n - 1].log_probs[n > 1 ? id : words[i]];
        for (n++; n <= g->order; n++) {
            value = ngram_lower(g, n - 1, contexts[(n - 2) * count + i], value);
        }
        log_probs[i] = value;
    }
}

/* Writes the most probable word after each context, as far as it follows from the best continuations
   of each order from 2 on, and whether it does not. See `look_ups.py`. */
void ngram_best(const ngram_tables *g, const best_continuations *levels, int64_t count, int64_t first,
                const int64_t *contexts, int64_t *best, uint8_t *unsure) {
    for (int64_t i = 0; i < count; i++) {
        float value = g->levels[0].log_probs[first];
        int64_t word = first;
        unsure[i] = 0;
        for (int64_t n = 2; n <= g->order; n++) {
            const int64_t context = contexts[(n - 2) * count + i];
            if (context < 0) continue;
            const float mine = levels[n - 2].values[context];
            const int64_t seen = levels[n - 2].words[context];
            const float lower = ngram_lower(g, n - 1, context, value);
            const int above = mine > lower;
            if (above) unsure[i] = 0;
            else if (mine > -INFINITY) unsure[i] |= ngram_found(g, n, context, word) >= 0;
            if (above || (mine == lower && seen < word)) word = seen;
            value = above ? mine : lower;
        }
        best[i] = word;
    }
}

/* The contexts of one text, by their number of words, and the factors of the words not seen there. */
typedef struct {
    int64_t ids[MOST_ORDER];
    double factors[MOST_ORDER];
} ngram_past;

/* Returns the probability of a word after the last `known` words. */
static double ngram_probability(const ngram_tables *g, const ngram_past *past, int64_t known,
                                int64_t word) {
    double factor = 1;
    for (int64_t n = known; n >= 1; n--) {
        if (past->ids[n] < 0) continue;
        const int64_t id = ngram_found(g, n + 1, past->ids[n], word);
        if (id >= 0) return factor * exp(g->levels[n].log_probs[id]);
        factor *= past->factors[n];
    }
    return factor * exp(g->levels[0].log_probs[word]);
}

/* Adds up the `sums` of the context of `n` words. */
static void ngram_add_up(const ngram_tables *g, const ngram_past *past, int64_t n) {
    const ngram_level *l = &g->levels[n];
    const int64_t context = past->ids[n];
    double total = 0;
    if (__atomic_load_n(&l->known[context], __ATOMIC_ACQUIRE)) return;
    for (int64_t at = l->begins[context]; at < l->begins[context + 1]; at++) {
        const int64_t word = l->keys[at] - context * g->size;
        total += exp(l->log_probs[at]) - past->factors[n] * ngram_probability(g, past, n - 1, word);
        l->sums[at] = total;
    }
    __atomic_store_n(&l->known[context], 1, __ATOMIC_RELEASE);
}

/* Returns the mass of all words up to `word`, without those that are never written. */
static double ngram_mass(const ngram_tables *g, const ngram_past *past, int64_t word,
                         const int64_t *never, const double *removed, int64_t count) {
    if (word < 0) return 0;
    double mass = g->cumulated[word];
    for (int64_t n = 1; n < g->order; n++) {
        const int64_t context = past->ids[n];
        if (context < 0) continue;
        const ngram_level *l = &g->levels[n];
        const int64_t begin = l->begins[context], key = context * g->size + word;
        const int64_t seen = up_to(l->keys + begin, l->begins[context + 1] - begin, key);
        mass = mass * past->factors[n] + (seen ? l->sums[begin + seen - 1] : 0);
    }
    for (int64_t i = 0; i < count && never[i] <= word; i++) mass -= removed[i];
    return mass;
}

/* Draws a word of each row by its uniform number, as the sum of the words' float32 probabilities
   would: `NOTHING` where the roundings of that sum might decide, or most of the mass is removed.

   contexts: (N - 1, rows). never: ascending. norms: gets the log of each row's whole mass. */
void ngram_draw(const ngram_tables *g, int64_t rows, const int64_t *contexts, const double *uniforms,
                const int64_t *never, int64_t count, double *removed, int64_t *words, double *norms) {
    for (int64_t row = 0; row < rows; row++) {
        ngram_past past;
        double taken = 0, raised = 0, roundings = 3;
        for (int64_t n = 1; n < g->order; n++) {
            past.ids[n] = contexts[(n - 1) * rows + row];
            if (past.ids[n] < 0) continue;
            const float weight = g->levels[n - 1].backoffs[past.ids[n]];
            past.factors[n] = exp(weight);
            raised += fmaxf(weight, 0);
            roundings++;
            ngram_add_up(g, &past, n);
        }
        const double whole = ngram_mass(g, &past, g->size - 1, never, removed, 0);
        for (int64_t i = 0; i < count; i++) {
            taken += removed[i] = ngram_probability(g, &past, g->order - 1, never[i]);
        }
        norms[row] = log(whole);
        /* Each backoff rounds a row's numbers, and so does taking off the largest of them, the norm
           and what is never written: by 2^-24 of a number at most. On average over the row's mass
           a number is at most log V, beside what is added to all of them. */
        const double number = log(g->size) + fabs(norms[row]) + raised;
        const double margin = roundings * 0x1.1p-24 * number * whole;
        const double target = uniforms[row] * (whole - taken);
        int64_t low = 0, high = g->size - 1;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (ngram_mass(g, &past, middle, never, removed, count) > target) high = middle;
            else low = middle + 1;
        }
        const int sure = taken < 0.49 * whole
            && target - ngram_mass(g, &past, low - 1, never, removed, count) > margin
            && ngram_mass(g, &past, low, never, removed, count) - target > margin;
        words[row] = sure ? low : NOTHING;
    }
}

/* ---- word2vec: the skip-gram model with negative sampling ---- */

/* Rows of a block of a product, and its most vectors; there are whole tiles of rows. */
enum { BLOCK_ROWS = 4, BLOCK_VECTORS = LANES / 4 };

/* out (R, count vectors) = a (R, inner) b (inner, count vectors), with R = BLOCK_ROWS. */
INLINE void tile_product(const int count, int64_t inner, const float *a, int64_t a_row, int64_t a_step,
                         const float *b, int64_t b_step, float *out, int64_t out_step) {
    floats sums[BLOCK_ROWS][BLOCK_VECTORS];
    UNROLLED for (int r = 0; r < BLOCK_ROWS; r++) {
        UNROLLED for (int j = 0; j < count; j++) sums[r][j] = (floats){0};
    }
    for (int64_t i = 0; i < inner; i++) {
        floats of_b[BLOCK_VECTORS];
        UNROLLED for (int j = 0; j < count; j++) of_b[j] = load(b + i * b_step + j * LANES);
        UNROLLED for (int r = 0; r < BLOCK_ROWS; r++) {
            const float x = a[r * a_row + i * a_step];
            UNROLLED for (int j = 0; j < count; j++) sums[r][j] += x * of_b[j];
        }
    }
    UNROLLED for (int r = 0; r < BLOCK_ROWS; r++) {
        UNROLLED for (int j = 0; j < count; j++) store(out + r * out_step + j * LANES, sums[r][j]);
    }
}

/* out (rows, width) = a (rows, inner) b (inner, width): rows in tiles, width in vectors. */
static void small_product(int64_t rows, int64_t inner, int64_t width, const float *a, int64_t a_row,
                          int64_t a_step, const float *b, int64_t b_step, float *out) {
    for (int64_t r = 0; r < rows; r += BLOCK_ROWS, a += BLOCK_ROWS * a_row, out += BLOCK_ROWS * width) {
        int64_t k = 0;
        for (; k + BLOCK_VECTORS * LANES <= width; k += BLOCK_VECTORS * LANES) {
            tile_product(BLOCK_VECTORS, inner, a, a_row, a_step, b + k, b_step, out + k, width);
        }
        for (; k < width; k += LANES) {
            tile_product(1, inner, a, a_row, a_step, b + k, b_step, out + k, width);
        }
    }
}

/* costs[k] = -log sigma(-x), and x becomes weight sigma(x), both by exp(-|x|). */
static void refuse(int64_t n, float weight, float *x, float *costs) {
    INDEPENDENT for (int64_t k = 0; k < n; k++) {
        const float e = exponential(-fabsf(x[k]));
        costs[k] = (x[k] > 0.0f ? x[k] : 0.0f) + log_of_one_and(e);
        x[k] = weight * (x[k] > 0.0f ? 1.0f : e) / (1.0f + e);
    }
}

typedef struct {
    int64_t width, rows, length, noise_words, context;
    const float *centres, *contexts;    /* (V, width) */
    const int64_t *tokens, *reach;      /* (rows, length) */
    const uint8_t *kept;                /* (rows, length) */
    const int64_t *noise;               /* (rows, noise_words) */
    float *of_centres, *of_contexts;    /* gradients, added to; (V, width) */
    float *room;                        /* see `sampled_room` */
    int64_t *places;                    /* (2, length) */
    float negatives;
} sampled;

INLINE int64_t whole(int64_t n, int64_t of) { return (n + of - 1) / of * of; }

/* How many floats `sampled_cost` works in. */
int64_t sampled_room(const sampled *s) {
    const int64_t width = whole(s->width, LANES), noise = whole(s->noise_words, LANES);
    const int64_t length = whole(s->length, BLOCK_ROWS), each = noise + 2 * s->context;
    return width * (4 * length + 3 * noise) + noise * length + 2 * each;
}

/* Returns the cost of rows of text, and adds its gradients: see `words/word2vec.py`. Vectors of the
   words that a row keeps are copied next to each other, and filled up with zeros. */
double sampled_cost(const sampled *s) {
    const int64_t width = whole(s->width, LANES), noise = whole(s->noise_words, LANES);
    const int64_t most = whole(s->length, BLOCK_ROWS), size = s->width * sizeof(float);
    float *v = s->room, *u = v + most * width, *to_v = u + most * width, *to_u = to_v + most * width;
    float *n = to_u + most * width, *turned = n + noise * width, *to_n = turned + noise * width;
    float *scores = to_n + noise * width, *costs = scores + most * noise;
    float *near = costs + noise + 2 * s->context;
    int64_t *words = s->places, *reach = words + s->length;
    double cost = 0;
    memset(s->room, 0, (costs - s->room) * sizeof(float));
    for (int64_t row = 0; row < s->rows; row++) {
        const int64_t *drawn = s->noise + row * s->noise_words;
        int64_t count = 0;
        for (int64_t t = row * s->length; t < (row + 1) * s->length; t++) {
            if (!s->kept[t]) continue;
            memcpy(v + count * width, s->centres + s->tokens[t] * s->width, size);
            memcpy(u + count * width, s->contexts + s->tokens[t] * s->width, size);
            words[count] = s->tokens[t], reach[count++] = s->reach[t];
        }
        for (int64_t k = 0; k < s->noise_words; k++) {
            memcpy(n + k * width, s->contexts + drawn[k] * s->width, size);
            for (int64_t d = 0; d < s->width; d++) turned[d * noise + k] = n[k * width + d];
        }
        small_product(count, s->width, noise, v, width, 1, turned, noise, scores);
        for (int64_t t = 0; t < count; t++) {
            const int64_t first = t > reach[t] ? t - reach[t] : 0;
            const int64_t times = least(count - 1, t + reach[t]) - first;
            const float weight = s->negatives * times / s->noise_words;
            refuse(s->noise_words, weight, scores + t * noise, costs);
            cost += (double)weight * total(s->noise_words, costs, 1);
        }
        for (int64_t t = count; t < whole(count, BLOCK_ROWS); t++) {
            memset(scores + t * noise, 0, noise * sizeof(float));
        }
        small_product(count, noise, width, scores, noise, 1, n, width, to_v);
        small_product(noise, count, width, scores, 1, noise, v, width, to_n);
        memset(to_u, 0, count * width * sizeof(float));
        for (int64_t t = 0; t < count; t++) {
            const int64_t first = t > reach[t] ? t - reach[t] : 0;
            const int64_t pairs = least(count, t + reach[t] + 1) - first;
            const float *const mine = v + t * width;
            for (int64_t j = 0; j < pairs; j++) {
                dots(1, width, mine, u + (first + j) * width, 0, -1.0f, near + j);
            }
            near[t - first] = -INFINITY; /* no word is in its own context */
            refuse(pairs, -1.0f, near, costs);
            cost += total(pairs, costs, 1);
            for (int64_t j = 0; j < pairs; j++) {
                const float *const other = u + (first + j) * width;
                float *const to_other = to_u + (first + j) * width;
                for (int64_t d = 0; d < width; d += LANES) {
                    store(to_other + d, load(to_other + d) + near[j] * load(mine + d));
                    store(to_v + t * width + d, load(to_v + t * width + d) + near[j] * load(other + d));
                }
            }
        }
        for (int64_t t = 0; t < count + s->noise_words; t++) {
            const int64_t word = t < count ? words[t] : drawn[t - count];
            const float *const added = t < count ? to_u + t * width : to_n + (t - count) * width;
            float *const to = s->of_contexts + word * s->width;
            INDEPENDENT for (int64_t d = 0; d < s->width; d++) to[d] += added[d];
            if (t >= count) continue;
            float *const to_centre = s->of_centres + word * s->width;
            INDEPENDENT for (int64_t d = 0; d < s->width; d++) to_centre[d] += to_v[t * width + d];
        }
    }
    return cost;
}

/* A mapped file that others cut short has lost pages: reading one sends this signal. */
static void say_and_end(int number, siginfo_t *about, void *context) {
    static const char said[] = "seqgen: a file was cut short or written over while it was read; "
                               "restore it and run the command again\n";
    (void)context;
    if (about->si_code == BUS_ADRERR) _exit(write(STDERR_FILENO, said, sizeof said - 1) < 0 ? 2 : 1);
    signal(number, SIG_DFL); /* a fault of another kind, which comes again */
}

/* Have the process end in a line, and with exit code 1, if a mapped file is cut short. */
void end_in_a_line(void) {
    struct sigaction action = {.sa_sigaction = say_and_end, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, 0);
}

/* Which source this was compiled from; see `compiling.py`. */
uint32_t mark(void) { return MARK; }

/* Outputs that lie side by side in a panel of int8; twice as many in float32. */
int64_t lanes(void) { return LANES; }

/* What is added to weights in int8, which become numbers without a sign; or 0. */
int64_t added(void) { return ADDED; }

/* Whether this processor can do what this file was compiled for. */
int suits(void) {
#ifdef __AVX512VNNI__
    return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#elif defined __AVX2__
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
#else
    return 1;
#endif
}

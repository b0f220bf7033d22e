/* Calls every kernel on made-up numbers, and prints what comes out: builds for different machines
   print the same numbers but for rounding. KERNELS is the path of `kernels.c`. */

#include KERNELS

#include <stdio.h>
#include <stdlib.h>

static uint64_t state;

static double number(void) { /* from 0 to 1 */
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 40) / (1 << 24);
}

static void *room_of(size_t bytes) { return calloc(bytes + 64, 1); }

static float *numbers(int64_t count, double low, double high) {
    float *x = room_of(count * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = (float)(low + (high - low) * number());
    return x;
}

static float *zeros(int64_t count) { return room_of(count * sizeof(float)); }

static void show(const char *name, int64_t count, const float *x) {
    printf("%s", name);
    for (int64_t i = 0; i < count; i++) printf(" %.9g", x[i]);
    printf("\n");
}

static void products(int64_t outputs, int64_t inputs, int64_t rows) {
    const int64_t wide = whole(inputs, BLOCK), blocks = wide / BLOCK, most = whole(outputs, PANEL);
    float *x = numbers(rows * inputs, -2, 2), *y = zeros(rows * outputs);
    float *packed = zeros(most * inputs), *bias = zeros(most);
    int8_t *small = room_of(most * wide), *smallest = room_of(most * wide / 2);
    uint16_t *of_blocks = room_of(most * blocks * sizeof *of_blocks);
    for (int64_t o = 0; o < outputs; o++) {
        bias[o] = (float)number();
        for (int64_t i = 0; i < inputs; i++) {
            const double w = number();
            packed[(o / PANEL * inputs + i) * PANEL + o % PANEL] = (float)w;
            small[((o / LANES * wide + i / GROUP * GROUP) * LANES) + o % LANES * GROUP + i % GROUP] =
                (int8_t)((int)(254 * w - 127) + ADDED);
            const int64_t block = o / LANES * blocks + i / BLOCK, eight = i % BLOCK / 8;
            smallest[(block * BLOCK / 8 + eight) * 4 * LANES + o % LANES * 4 + i % 4] |=
                (int8_t)((int)(16 * w) << i % 8 / 4 * 4);
            of_blocks[block * LANES + o % LANES] = (uint16_t)(0x3e00 + o % 97); /* 0.125 and more */
        }
    }
    void *scratch = room_of(rows * 2 * (8 * blocks + wide));
    map m = {outputs, inputs, packed, bias, 0};
    product(&m, rows, x, inputs, y, outputs, scratch);
    show("product", rows * outputs, y);
    m.packed = small, m.scales = bias;
    product(&m, rows, x, inputs, y, outputs, scratch);
    show("int8", rows * outputs, y);
    m.packed = smallest, m.of_blocks = of_blocks;
    product(&m, rows, x, inputs, y, outputs, scratch);
    show("int4", rows * outputs, y);
}

static void steps(int64_t rows, int64_t n) {
    float *x = numbers(rows * n, 0.01, 2), *y = numbers(rows * n, 0.01, 2), *out = zeros(rows * n);
    const buffer buffers[] = {{x, n}, {y, n}, {out, n}};
    for (int64_t code = COPY; code <= MOST; code++) {
        const int64_t each = code < SUM; /* the strides of what comes out */
        const instruction o = {code, {1, 1, n}, {2, 0, {n, n, each}}, {{0, 0, {n, n, 1}}, {1, 0, {n, n, 1}}},
                               {0}};
        run(&o, 1, rows, buffers, 0, 0);
        show("step", rows * n, out);
    }
}

static void attention(int64_t heads, int64_t of_keys, int64_t width) {
    enum { ROWS = 3, SLOTS = 11 };
    float *blocks[4], *qkv = numbers(ROWS * (heads + 2 * of_keys) * width, -1, 1);
    float *out = zeros(ROWS * heads * width);
    for (int i = 0; i < 4; i++) blocks[i] = numbers(ROWS * of_keys * SLOTS * width, -1, 1);
    const int64_t rows[] = {0, 1, 2}, starts[] = {0, 3, 7}, ends[] = {9, 9, 9}, owners[] = {2, 0, 0};
    const int64_t lengths[] = {4, SLOTS, 1};
    const past state = {blocks, blocks + 1, rows, starts, ends, rows, 0, 0, SLOTS, SLOTS,
                        zeros(MOST_PARTS * SLOTS), blocks + 2, blocks + 3, owners, lengths, SLOTS};
    const int64_t at = (heads + 2 * of_keys) * width, keys = heads * width, values = keys + of_keys * width;
    const buffer buffers[] = {{qkv, at}, {out, heads * width}};
    for (int64_t code = ATTEND; code <= SOURCE; code++) {
        const instruction o = {code, {heads, 1, width}, {1, 0, {width, width, 1}},
                               {{0, 0, {width, width, 1}}, {0, keys, {width, width, 1}},
                                {0, values, {width, width, 1}}}, {0, of_keys}};
        run(&o, 1, ROWS, buffers, &state, 0);
        show("attend", ROWS * heads * width, out);
    }
    const int64_t pairs[] = {2, 0, 5}, places[] = {(intptr_t)blocks[0], (intptr_t)blocks[1]};
    overwrite(places, 2, of_keys, SLOTS, width * sizeof(float), pairs, 1, 8);
    show("overwrite", ROWS * of_keys * SLOTS * width, blocks[1]);
}

static void softmax(int64_t rows, int64_t size) {
    float *x = numbers(rows * size, -3, 3), *y = zeros(rows * size);
    double *uniforms = room_of(rows * sizeof *uniforms);
    int64_t *tokens = room_of(rows * sizeof *tokens);
    const int64_t never[] = {0, 2};
    for (int64_t r = 0; r < rows; r++) uniforms[r] = number();
    log_softmax(rows, size, x, y);
    show("log_softmax", rows * size, y);
    draw(rows, size, x, uniforms, never, 2, y, tokens, y + size);
    for (int64_t r = 0; r < rows; r++) printf("draw %lld %.9g\n", (long long)tokens[r], y[size + r]);
}

static void mixtures(int64_t rows, int64_t size) {
    enum { PARTS = 3 };
    const float *logits[PARTS], *constants = numbers(2 * PARTS, -1, 1);
    const float *coefficients = numbers(PARTS * PARTS * PARTS, -0.1, 0.1);
    float *scratch = zeros(2 * PARTS * size), *out = zeros(rows * size);
    int64_t *matched = room_of(rows * sizeof *matched);
    const double weights[PARTS] = {0.2, 0, 0.8};
    for (int i = 0; i < PARTS; i++) logits[i] = numbers(rows * size, -9, 9);
    for (int64_t r = 0; r < rows; r++) matched[r] = r % 2;
    mix(rows, PARTS, size, logits, weights, 1, scratch, out);
    show("mix", rows * size, out);
    gate(rows, PARTS, size, logits, matched, constants, coefficients, -8, scratch, out);
    show("gate", rows * size, out);
}

static void ngrams(int64_t size) {
    enum { SEEN = 5, ROWS = 40 };
    const int64_t count = size * SEEN;
    ngram_tables *g = room_of(sizeof *g + 2 * sizeof(ngram_level));
    float *words = numbers(size, -9, -1), *log_probs = zeros(count), *backoffs = zeros(size);
    int64_t *keys = room_of(count * sizeof *keys), *begins = room_of((size + 1) * sizeof *begins);
    int64_t *best = room_of(size * sizeof *best), *tokens = room_of(ROWS * sizeof *tokens);
    int64_t *ids = room_of(2 * ROWS * sizeof *ids), *found = room_of(ROWS * sizeof *found);
    float *values = zeros(size);
    double *cumulated = room_of(size * sizeof *cumulated), sum = 0, *uniforms = room_of(ROWS * sizeof *uniforms);
    double removed[1], *norms = room_of(ROWS * sizeof *norms);
    uint8_t unsure[ROWS];
    for (int64_t w = 0; w < size; w++) sum += exp(words[w]);
    for (int64_t w = 0; w < size; w++) {
        words[w] -= (float)log(sum);
        cumulated[w] = (w ? cumulated[w - 1] : 0) + exp(words[w]);
    }
    for (int64_t c = 0; c < size; c++) { /* half of the mass is seen */
        double lower = 0;
        for (int64_t i = 0; i < SEEN; i++) {
            const int64_t word = (c % 7) + i * (size / SEEN);
            keys[c * SEEN + i] = c * size + word;
            log_probs[c * SEEN + i] = (float)log(0.5 * (i + 1) / 15);
            lower += exp(words[word]);
        }
        backoffs[c] = (float)log(0.5 / (1 - lower));
    }
    *g = (ngram_tables){.order = 2, .size = size, .cumulated = cumulated};
    g->levels[0] = (ngram_level){words, backoffs, 0, 0, 0, 0};
    g->levels[1] = (ngram_level){log_probs, 0, keys, begins, room_of(count * sizeof(double)), room_of(size)};
    ngram_contexts(keys, log_probs, count, size, size, begins, best, values);
    for (int64_t r = 0; r < ROWS; r++) tokens[r] = (int64_t)(number() * size), uniforms[r] = number();
    ngram_nodes(g, 2, ROWS / 10, 10, tokens, tokens, ids);
    ngram_log_probs(g, ROWS - 1, tokens, tokens + 1, log_probs = zeros(ROWS));
    show("ngram", ROWS, log_probs);
    float *all = zeros(ROWS * size);
    ngram_step(g, ROWS, tokens, tokens, ids, all);
    show("ngram_step", ROWS * size, all);
    ngram_matched(g, ROWS, ids, found);
    for (int64_t r = 0; r < ROWS; r++) printf("matched %lld\n", (long long)found[r]);
    ngram_nodes(g, 2, ROWS / 10, 10, tokens, tokens, ids);
    const best_continuations level = {best, values};
    ngram_best(g, &level, ROWS, 1, tokens, found, unsure);
    for (int64_t r = 0; r < ROWS; r++) {
        printf("best %lld %d %lld\n", (long long)found[r], unsure[r], (long long)ids[ROWS + r]);
    }
    const int64_t never[] = {3};
    ngram_draw(g, ROWS, tokens, uniforms, never, 1, removed, found, norms);
    for (int64_t r = 0; r < ROWS; r++) printf("drawn %lld %.6f\n", (long long)found[r], norms[r]);
}

static void skip_grams(int64_t width) {
    enum { WORDS = 20, ROWS = 2, LENGTH = 9, NOISE = 6 };
    int64_t tokens[ROWS * LENGTH], reach[ROWS * LENGTH], noise[ROWS * NOISE], places[2 * LENGTH];
    uint8_t kept[ROWS * LENGTH];
    for (int i = 0; i < ROWS * LENGTH; i++) {
        tokens[i] = (int64_t)(number() * WORDS), reach[i] = 1 + i % 3, kept[i] = i % 5 != 4;
    }
    for (int i = 0; i < ROWS * NOISE; i++) noise[i] = (int64_t)(number() * WORDS);
    sampled s = {width, ROWS, LENGTH, NOISE, 3, numbers(WORDS * width, -1, 1), numbers(WORDS * width, -1, 1),
                 tokens, reach, kept, noise, zeros(WORDS * width), zeros(WORDS * width),
                 0, places, 5};
    s.room = zeros(sampled_room(&s));
    const float cost = (float)sampled_cost(&s);
    show("cost", 1, &cost);
    show("of_centres", WORDS * width, s.of_centres);
    show("of_contexts", WORDS * width, s.of_contexts);
}

int main(void) {
    if (!suits() || mark() != MARK) return 77; /* not of this processor */
    for (int64_t threads = 1; threads <= 3; threads += 2) {
        use_threads(threads), state = 1;
        products(97, 33, 1);
        products(50, 7, 5);
        products(300, 200, 11);
        steps(2, 37);
        attention(4, 2, 20);
        attention(2, 2, 64);
        softmax(4, 66);
        mixtures(5, 70);
        ngrams(60);
        skip_grams(21);
    }
    return 0;
}

/* Linear layers with GELU between them, in bfloat16 with sums in float32: a block of rows goes through all of them while
   it is in cache. Compiled behind kernels.c; without AVX-512's products of bfloat16 there is none of it. */
#ifdef __AVX512BF16__
#include <immintrin.h>

#define BLOCK 96 /* rows */
#define HIGH 6   /* a tile of the result: so many rows */
#define WIDE 4   /* and vectors */

typedef uint32_t vu __attribute__((vector_size(4 * W), aligned(4), may_alias));

INLINE vu wide(halves x) { return (vu)_mm512_cvtepu16_epi32((__m256i)x); }
INLINE v widened(const uint16_t *x) { return (v)(wide(*(const halves *)x) << 16); }
INLINE halves narrowed(v x) { return (halves)_mm512_cvtneps_pbh((__m512)x); }
/* Two rows as pairs (lower, upper half): what the products take. */
INLINE vu paired(halves a, halves b) { return wide(a) | (wide(b) << 16); }

/* c (rows, columns) = or += sum_k a[row][k] b[k][column] of pairs, of a tile; strides in words. */
INLINE void tile(const word *a, ptrdiff_t row, ptrdiff_t step, const word *b, ptrdiff_t width, int k, float *c, int add,
                 const int rows, const int n) {
  __m512 sum[HIGH][WIDE];
#pragma GCC unroll 6
  for (int i = 0; i < rows; i++)
    LOOP for (int j = 0; j < n; j++)
      sum[i][j] = add ? _mm512_loadu_ps(c + i * width + W * j) : _mm512_setzero_ps();
  for (; k--; a += step, b += width) {
    __m512bh of_b[WIDE];
    LOOP for (int j = 0; j < n; j++) of_b[j] = (__m512bh)_mm512_loadu_ps((const float *)b + W * j);
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
      __m512bh of_a = (__m512bh)_mm512_set1_epi32((int)a[i * row]);
      LOOP for (int j = 0; j < n; j++) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], of_a, of_b[j]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < rows; i++) LOOP for (int j = 0; j < n; j++) _mm512_storeu_ps(c + i * width + W * j, sum[i][j]);
}

INLINE void tiles(const word *a, ptrdiff_t row, ptrdiff_t step, const word *b, ptrdiff_t width, int k, float *c,
                  int add, int rows, const int n) {
  for (; rows >= HIGH; rows -= HIGH, a += HIGH * row, c += HIGH * width) tile(a, row, step, b, width, k, c, add, HIGH, n);
  for (; rows >= 2; rows -= 2, a += 2 * row, c += 2 * width) tile(a, row, step, b, width, k, c, add, 2, n);
  if (rows) tile(a, row, step, b, width, k, c, add, 1, n);
}

/* The same of `width` columns, a multiple of 16. */
static void multiply(const word *a, ptrdiff_t row, ptrdiff_t step, const word *b, int width, int k, float *c, int add,
                     int rows) {
  int at = 0;
  for (; at + W * WIDE <= width; at += W * WIDE) tiles(a, row, step, b + at, width, k, c + at, add, rows, WIDE);
  for (; at + 2 * W <= width; at += 2 * W) tiles(a, row, step, b + at, width, k, c + at, add, rows, 2);
  if (at < width) tiles(a, row, step, b + at, width, k, c + at, add, rows, 1);
}

/* Normal distribution and GELU's slope, to 1e-4: 1/2 + x P(x^2) of |x| < 4.5. */
#define HALF_AND_ODD(x, ...)                                                                      \
  const float p[] = {__VA_ARGS__};                                                                \
  v at = (v)_mm512_max_ps((__m512)ALL(-4.5f), _mm512_min_ps((__m512)ALL(4.5f), (__m512)x)); \
  v square = at * at, sum = ALL(p[9]);                                                            \
  _Pragma("GCC unroll 9") for (int i = 8; i >= 0; i--) sum = sum * square + p[i];                 \
  return 0.5f + at * sum;
INLINE v inside(v x) {
  HALF_AND_ODD(x, 3.988287507e-01f, -6.621965620e-02f, 9.747955420e-03f, -1.092617900e-03f, 9.191712105e-05f,
               -5.657171321e-06f, 2.442694689e-07f, -6.935592262e-09f, 1.153359727e-10f, -8.456099784e-13f)
}
/* Exactly 0 of large negative x, which it is multiplied by. */
INLINE v normal(v x) { return PICK(x < -4.5f, ALL(0), inside(x)); }
INLINE v gelu_slope(v x) {
  HALF_AND_ODD(x, 7.979006263e-01f, -2.654999616e-01f, 5.901707417e-02f, -8.956589119e-03f, 9.678557680e-04f,
               -7.440988675e-05f, 3.950390413e-06f, -1.366439896e-07f, 2.754944267e-09f, -2.445845003e-11f)
}

typedef struct {
  const float *weight, *bias; /* (out, in), (out,); out is a multiple of 16 */
  float *dweight, *dbias;     /* (out, in rounded up to a multiple of 16), (out,): what is found is added */
  uint16_t *hidden;           /* (rows, out): what goes into the GELU, of all but the last layer */
  int in, out;
} layer_t;

typedef struct {
  const layer_t *layers;
  const void *x;  /* (rows, in) of floats or bfloat16 */
  void *y;        /* (rows, out), or their gradient, of bfloat16; of floats if `full` */
  void *dx;       /* or none */
  word *room;     /* of `pairs` of all weights, and 3 BLOCK times the widest layer */
  ptrdiff_t first, last;
  int count, half, full, backward;
} chain_t;

INLINE int padded(int n) { return (n + W - 1) / W * W; }

/* Weights as pairs of inputs, (in / 2, out), for forward; as pairs of outputs, (out / 2, in), for backward. */
static word *pack(const layer_t *l, int backward, word *to, uint16_t *rows) {
  int in = padded(l->in), pairs = in / 2;
  for (int o = 0; o < l->out; o++)
    for (int i = 0; i < in; i += W)
      *(halves *)(rows + (size_t)o * in + i) =
          narrowed(load(l->weight + (ptrdiff_t)o * l->in + i, l->in - i < W ? l->in - i : W));
  if (backward)
    for (int o = 0; o < l->out; o += 2)
      for (int i = 0; i < in; i += W)
        *(vu *)(to + o / 2 * in + i) = paired(*(halves *)(rows + (size_t)o * in + i), *(halves *)(rows + (size_t)(o + 1) * in + i));
  else
    for (int o = 0; o < l->out; o += W)
      for (int k = 0; k < pairs; k++)
        *(vu *)(to + k * l->out + o) =
            (vu)_mm512_i32gather_epi32((__m512i)(LANE * pairs), (word *)rows + (size_t)o * pairs + k, 4);
  return to + (size_t)pairs * l->out;
}

/* Rows of `width` in bfloat16 as pairs of rows, (count / 2, width). */
static void pair_rows(const uint16_t *from, int count, int width, word *to) {
  for (int r = 0; r < count; r += 2)
    for (int i = 0; i < width; i += W)
      *(vu *)(to + r / 2 * width + i) =
          paired(*(halves *)(from + r * width + i), r + 1 < count ? *(halves *)(from + (r + 1) * width + i) : (halves){});
}

static void read_inputs(const chain_t *c, ptrdiff_t start, int count, uint16_t *to) {
  int in = c->layers[0].in, width = padded(in);
  for (int r = 0; r < count; r++)
    for (int i = 0; i < width; i += W) {
      ptrdiff_t at = (start + r) * in + i;
      int lanes = in - i < W ? in - i : W;
      halves x = {};
      if (!c->half)
        x = narrowed(load((const float *)c->x + at, lanes));
      else if (lanes == W)
        x = *(const halves *)((const uint16_t *)c->x + at);
      else
        memcpy(&x, (const uint16_t *)c->x + at, 2 * (size_t)lanes);
      *(halves *)(to + r * width + i) = x;
    }
}

static void write_slopes(const chain_t *c, ptrdiff_t start, int count, const float *from) {
  int in = c->layers[0].in, width = padded(in);
  for (int r = 0; r < count; r++)
    for (int i = 0; i < in; i += W) {
      ptrdiff_t at = (start + r) * in + i;
      int lanes = in - i < W ? in - i : W;
      v x = *(v *)(from + r * width + i);
      halves half = narrowed(x);
      if (!c->half)
        store((float *)c->dx + at, x, lanes);
      else if (lanes == W)
        *(halves *)((uint16_t *)c->dx + at) = half;
      else
        memcpy((uint16_t *)c->dx + at, &half, 2 * (size_t)lanes);
    }
}

/* Rows from first to last through all layers. */
void chain(const chain_t *c) {
  int widest = 0;
  word *weights[8], *room = c->room;
  for (int l = 0; l < c->count; l++) {
    int in = padded(c->layers[l].in), out = c->layers[l].out;
    widest = in > widest ? in : widest, widest = out > widest ? out : widest;
  }
  word *last = room;
  for (int l = 0; l < c->count; l++) last += padded(c->layers[l].in) / 2 * c->layers[l].out;
  for (int l = 0; l < c->count; l++) weights[l] = room, room = pack(c->layers + l, c->backward, room, (uint16_t *)last);
  float *sums = (float *)room;
  uint16_t *now = (uint16_t *)(room + BLOCK * widest), *inputs = now + BLOCK * widest;
  word *pairs = room + 2 * BLOCK * widest, *of_inputs = pairs + BLOCK / 2 * widest;
  const layer_t *top = c->layers + c->count - 1;
  for (ptrdiff_t start = c->first; start < c->last; start += BLOCK) {
    int count = c->last - start < BLOCK ? (int)(c->last - start) : BLOCK;
    if (!c->backward) read_inputs(c, start, count, now);
    for (int i = 0; !c->backward && i < c->count; i++) {
      const layer_t *l = c->layers + i;
      multiply((word *)now, padded(l->in) / 2, 1, weights[i], l->out, padded(l->in) / 2, sums, 0, count);
      uint16_t *to = l == top ? c->y : l->hidden;
      for (int r = 0; r < count; r++)
        for (int o = 0; o < l->out; o += W) {
          ptrdiff_t at = (start + r) * l->out + o;
          v x = *(v *)(sums + r * l->out + o);
          if (l->bias) x += *(v *)(l->bias + o);
          if (l == top && c->full)
            *(v *)((float *)c->y + at) = x;
          else
            *(halves *)(to + at) = narrowed(x);
          if (l != top) *(halves *)(now + r * l->out + o) = narrowed(x * normal(x));
        }
    }
    if (c->backward) memcpy(now, (uint16_t *)c->y + start * top->out, 2 * (size_t)(count * top->out));
    for (int i = c->count - 1; c->backward && i >= 0; i--) {
      const layer_t *l = c->layers + i;
      int in = padded(l->in);
      const uint16_t *hidden = i ? l[-1].hidden + start * in : NULL;
      for (int o = 0; o < l->out; o += W) {
        v sum = *(v *)(l->dbias + o);
        for (int r = 0; r < count; r++) sum += widened(now + r * l->out + o);
        *(v *)(l->dbias + o) = sum;
      }
      if (!i) read_inputs(c, start, count, inputs);
      for (int at = 0; i && at < count * in; at += W) {
        v x = widened(hidden + at);
        *(halves *)(inputs + at) = narrowed(x * normal(x));
      }
      pair_rows(now, count, l->out, pairs);
      pair_rows(inputs, count, in, of_inputs);
      multiply(pairs, 1, l->out, of_inputs, in, (count + 1) / 2, l->dweight, 1, l->out);
      if (!i && !c->dx) continue;
      multiply((word *)now, l->out / 2, 1, weights[i], in, l->out / 2, sums, 0, count);
      if (!i) write_slopes(c, start, count, sums);
      for (int at = 0; i && at < count * in; at += W)
        *(halves *)(now + at) = narrowed(*(v *)(sums + at) * gelu_slope(widened(hidden + at)));
    }
  }
}
#endif

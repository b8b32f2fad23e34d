/* What training spends most of its time on beside matrix products, one pass over data that is in cache.

   Vectors of 16 floats are GCC's and clang's own extension: they become whatever the machine has. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define W 16 /* lanes */
#define R 4  /* rows at once: what fits the registers */
#define LOOP _Pragma("GCC unroll 4")
typedef float v __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(4 * W)));

#define ALL(x) ((v){} + (float)(x))
#define PICK(mask, a, b) ((v)(((vi)(a) & (mask)) | ((vi)(b) & ~(mask))))
#define INLINE static inline __attribute__((always_inline))

/* Cosine and sine; |x| < 1000 (Cephes' polynomials after a reduction by quarter turns). */
INLINE void turn(v x, v *cosine, v *sine) {
  const float magic = 12582912.f; /* 1.5 * 2^23: adding it rounds to integers, which are then the low bits */
  v shifted = x * 0.636619772367581343f + magic, k = shifted - magic;
  v r = ((x - k * 1.5703125f) - k * 4.837512969970703125e-4f) - k * 7.54978995489188216e-8f;
  v q = r * r;
  v s = r + r * q * (-1.6666654611e-1f + q * (8.3321608736e-3f + q * -1.9515295891e-4f));
  v c = 1.f - 0.5f * q + q * q * (4.166664568298827e-2f + q * (-1.388731625493765e-3f + q * 2.443315711809948e-5f));
  vi quarter = (vi)shifted, odd = -(quarter & 1);
  v sn = PICK(odd, c, s), cs = PICK(odd, s, c);
  *sine = (v)((vi)sn ^ ((quarter & 2) << 30));
  *cosine = (v)((vi)cs ^ (((quarter + 1) & 2) << 30));
}

INLINE v load(const float *from, int lanes) {
  v x = {};
  if (lanes == W) return *(const v *)from;
  memcpy(&x, from, 4 * (size_t)lanes);
  return x;
}

INLINE void store(float *to, v x, int lanes) {
  if (lanes == W)
    *(v *)to = x;
  else
    memcpy(to, &x, 4 * (size_t)lanes);
}

/* cos and sin of j * angle of `rows` rows, added to sums[j - 1], by f_{j+1} = 2 cos(angle) f_j - f_{j-1}. */
INLINE void add_waves(const v *held, v *sums, int knots, const int rows) {
  v twice[R], before[R][2], wave[R][2];
  LOOP for (int i = 0; i < rows; i++) {
    wave[i][0] = held[2 * i], wave[i][1] = held[2 * i + 1], twice[i] = 2.f * held[2 * i];
    before[i][0] = ALL(1), before[i][1] = ALL(0);
  }
  for (int j = 1; j < knots; j++, sums += 2) {
    v c = sums[0], s = sums[1];
    LOOP for (int i = 0; i < rows; i++) {
      c += wave[i][0], s += wave[i][1];
      v nc = twice[i] * wave[i][0] - before[i][0], ns = twice[i] * wave[i][1] - before[i][1];
      before[i][0] = wave[i][0], before[i][1] = wave[i][1], wave[i][0] = nc, wave[i][1] = ns;
    }
    sums[0] = c, sums[1] = s;
  }
}

/* sum_j a_j cos(j angle) + b_j sin(j angle) of `rows` rows; slopes hold a_j and b_j. */
INLINE void add_slopes(const v *held, const v *slopes, int knots, v *out, const int rows) {
  v twice[R], before[R][2], wave[R][2], sum[R];
  LOOP for (int i = 0; i < rows; i++) {
    wave[i][0] = held[2 * i], wave[i][1] = held[2 * i + 1], twice[i] = 2.f * held[2 * i];
    before[i][0] = ALL(1), before[i][1] = ALL(0), sum[i] = ALL(0);
  }
  for (int j = 1; j < knots; j++, slopes += 2) {
    v a = slopes[0], b = slopes[1];
    LOOP for (int i = 0; i < rows; i++) {
      sum[i] += a * wave[i][0] + b * wave[i][1];
      v nc = twice[i] * wave[i][0] - before[i][0], ns = twice[i] * wave[i][1] - before[i][1];
      before[i][0] = wave[i][0], before[i][1] = wave[i][1], wave[i][0] = nc, wave[i][1] = ns;
    }
  }
  LOOP for (int i = 0; i < rows; i++) out[i] = sum[i];
}

/* SIGReg of projections y (slices, n, columns), contiguous: see objectives._SigReg.

   Of it the columns from `first` to `last`. weight[j] = w_j phi_j / n and phi[j] = n phi_j are of knots t_j = j h.
   On return y holds half of d statistic / d y where `sloped`, and `statistic` the sum over slices and columns.
   `room` is for 2 n + 4 knots vectors.
   Returns 0, or 1, with y written in part, where an angle is too large for `turn`. */
int sigreg(float *y, ptrdiff_t slices, ptrdiff_t n, ptrdiff_t columns, ptrdiff_t first, ptrdiff_t last, int knots,
           float h, const float *weight, const float *phi, int sloped, float *room, double *statistic) {
  v *held = (v *)room, *sums = held + 2 * n, *slopes = sums + 2 * knots;
  double total = 0;
  for (ptrdiff_t slice = 0; slice < slices; slice++)
    for (ptrdiff_t column = first; column < last; column += W) {
      int lanes = last - column < W ? (int)(last - column) : W;
      float *at = y + slice * n * columns + column;
      vi large = {};
      for (ptrdiff_t i = 0; i < n; i++) {
        v angle = h * load(at + i * columns, lanes);
        large |= (angle > 1000.f) | (angle < -1000.f);
        turn(angle, held + 2 * i, held + 2 * i + 1);
      }
      for (int lane = 0; lane < W; lane++)
        if (large[lane]) return 1;
      memset(sums, 0, 2 * (size_t)knots * sizeof(v));
      ptrdiff_t i = 0;
      while (i < n) { /* in blocks, since long sums of floats lose digits */
        ptrdiff_t end = i + 512 < n ? i + 512 : n;
        memset(slopes, 0, 2 * (size_t)knots * sizeof(v));
        for (; i + R <= end; i += R) add_waves(held + 2 * i, slopes, knots, R);
        for (; i < end; i++) add_waves(held + 2 * i, slopes, knots, 1);
        for (int j = 0; j < 2 * knots - 2; j++) sums[j] += slopes[j];
      }
      v tested = {};
      for (int j = 1; j < knots; j++) {
        v real = sums[2 * j - 2] - phi[j], imaginary = sums[2 * j - 1];
        tested += weight[j] * (real * real + imaginary * imaginary);
        slopes[2 * j - 2] = (weight[j] * (float)j * h) * imaginary;
        slopes[2 * j - 1] = (-weight[j] * (float)j * h) * real;
      }
      for (int lane = 0; lane < lanes; lane++) total += tested[lane];
      if (!sloped) continue;
      v out[R];
      for (i = 0; i + R <= n; i += R) {
        add_slopes(held + 2 * i, slopes, knots, out, R);
        for (int k = 0; k < R; k++) store(at + (i + k) * columns, out[k], lanes);
      }
      for (; i < n; i++) {
        add_slopes(held + 2 * i, slopes, knots, out, 1);
        store(at + i * columns, out[0], lanes);
      }
    }
  *statistic = total;
  return 0;
}

/* exp(-x) of 0 <= x, zero from 87 on (Cephes' polynomial after a reduction by log 2). */
INLINE v decay(v x) {
  const float magic = 12582912.f;
  vi tiny = x > 87.f;
  v y = PICK(tiny, ALL(-87), -x), shifted = y * 1.44269504088896341f + magic, k = shifted - magic;
  v r = (y - k * 0.693359375f) + k * 2.12194440e-4f;
  v p = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
         1.6666665459e-1f) * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  return PICK(tiny, ALL(0), (v)((vi)p + (((vi)shifted - 0x4b400000) << 23)));
}

typedef float v8 __attribute__((vector_size(32)));
typedef float v4 __attribute__((vector_size(16)));
typedef int32_t vi8 __attribute__((vector_size(32)));
typedef int32_t vi4 __attribute__((vector_size(16)));

INLINE float sum_of(v x) {
  v8 a[2];
  v4 b[2];
  memcpy(a, &x, sizeof x);
  a[0] += a[1];
  memcpy(b, a, sizeof b);
  b[0] += b[1];
  return (b[0][0] + b[0][2]) + (b[0][1] + b[0][3]);
}

INLINE float most_of(v x) {
  v8 a[2];
  v4 b[2];
  memcpy(a, &x, sizeof x);
  vi8 more = a[0] > a[1];
  a[0] = (v8)(((vi8)a[0] & more) | ((vi8)a[1] & ~more));
  memcpy(b, a, sizeof b);
  vi4 rest = b[0] > b[1];
  b[0] = (v4)(((vi4)b[0] & rest) | ((vi4)b[1] & ~rest));
  float most = b[0][0];
  for (int i = 1; i < 4; i++) most = b[0][i] > most ? b[0][i] : most;
  return most;
}

#define MOST 96 /* tokens, and features of a head */
#define ACROSS _Pragma("GCC unroll 6")

/* Where rows of a head are: of floats, or of their upper halves (bfloat16). */
typedef struct {
  void *at;
  ptrdiff_t batch, row, head; /* strides, in elements */
} rows_t;

typedef uint32_t word __attribute__((may_alias));
typedef uint16_t halves __attribute__((vector_size(2 * W), aligned(2), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * W), may_alias));

/* `count` rows of `d` into rows of 16 n floats, zeros behind them. */
INLINE void read_rows(rows_t from, ptrdiff_t b, ptrdiff_t h, int count, int d, int half, float *to, const int n) {
  for (int i = 0; i < count; i++, to += W * n) {
    ptrdiff_t start = b * from.batch + i * from.row + h * from.head;
    for (int c = 0; c < W * n; c += W) {
      int lanes = d - c < 0 ? 0 : d - c < W ? d - c : W;
      halves bits = {};
      if (!half)
        *(v *)(to + c) = load((const float *)from.at + start + c, lanes);
      else {
        const uint16_t *at = (const uint16_t *)from.at + start + c;
        if (lanes == W)
          bits = *(const halves *)at;
        else
          memcpy(&bits, at, 2 * (size_t)lanes);
        *(v *)(to + c) = (v)(__builtin_convertvector(bits, words) << 16);
      }
    }
  }
}

/* The reverse; bfloat16 rounds to even. */
INLINE void write_rows(rows_t into, ptrdiff_t b, ptrdiff_t h, int count, int d, int half, const float *from,
                       const int n) {
  for (int i = 0; i < count; i++, from += W * n) {
    ptrdiff_t start = b * into.batch + i * into.row + h * into.head;
    for (int c = 0; c < d; c += W) {
      int lanes = d - c < W ? d - c : W;
      v x = *(const v *)(from + c);
      words bits = (words)x, even = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
      halves rounded = __builtin_convertvector((words)PICK(x == x, even, ((words){} + 0x7fc0)), halves);
      if (!half)
        store((float *)into.at + start + c, x, lanes);
      else if (lanes == W)
        *(halves *)((uint16_t *)into.at + start + c) = rounded;
      else
        memcpy((uint16_t *)into.at + start + c, &rounded, 2 * (size_t)lanes);
    }
  }
}

/* (rows, columns) of 16 m floats a row into (columns, rows) of 16 n. */
INLINE void transpose(const float *from, int rows, int columns, float *to, const int n, const int m) {
  for (int c = 0; c < columns; c++)
    for (int i = 0; i < W * n; i++) to[c * W * n + i] = i < rows ? from[i * W * m + c] : 0;
}

/* out[i] = sum_k of a[i][k] b[k], R rows at once; b and out of 16 n floats a row, a of 16 wide. */
INLINE void product(const float *a, const int wide, const float *b, int terms, float *out, const int n) {
  v sum[R][MOST / W];
  LOOP for (int i = 0; i < R; i++) ACROSS for (int j = 0; j < n; j++) sum[i][j] = ALL(0);
  for (int k = 0; k < terms; k++)
    LOOP for (int i = 0; i < R; i++)
      ACROSS for (int j = 0; j < n; j++) sum[i][j] += a[i * W * wide + k] * ((const v *)b)[k * n + j];
  LOOP for (int i = 0; i < R; i++) ACROSS for (int j = 0; j < n; j++) ((v *)out)[i * n + j] = sum[i][j];
}

/* out[k] += sum_i of a[i][k] b[i] over R rows i. */
INLINE void spread(const float *a, const int wide, const float *b, int terms, float *out, const int n) {
  v held[R][MOST / W];
  LOOP for (int i = 0; i < R; i++) ACROSS for (int j = 0; j < n; j++) held[i][j] = ((const v *)b)[i * n + j];
  for (int k = 0; k < terms; k++)
    ACROSS for (int j = 0; j < n; j++) {
      v sum = ((v *)out)[k * n + j];
      LOOP for (int i = 0; i < R; i++) sum += a[i * W * wide + k] * held[i][j];
      ((v *)out)[k * n + j] = sum;
    }
}

static const vi LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Weights of the keys up to `seen` of one query, from its scores. */
INLINE void softmax(float *row, int seen, const int n) {
  v *scores = (v *)row, most = ALL(-__builtin_inff()), sum = ALL(0);
  ACROSS for (int j = 0; j < n; j++) {
    scores[j] = PICK(LANE + W * j < seen, scores[j], ALL(-__builtin_inff()));
    most = PICK(scores[j] > most, scores[j], most);
  }
  float top = most_of(most);
  ACROSS for (int j = 0; j < n; j++) sum += scores[j] = decay(top - scores[j]);
  float scale = 1.f / sum_of(sum);
  ACROSS for (int j = 0; j < n; j++) scores[j] *= scale;
}

typedef int16_t vs __attribute__((vector_size(2 * W), aligned(2)));

/* What is kept of weights: those of `bits` at or above `least`, divided by the share that is; all without bits. */
INLINE void keep(const float *weights, const int16_t *bits, int least, float scale, float *out, const int n) {
  ACROSS for (int j = 0; j < n; j++) {
    v w = ((const v *)weights)[j];
    if (bits) {
      vs drawn;
      memcpy(&drawn, bits + W * j, sizeof drawn);
      w = PICK(__builtin_convertvector(drawn, vi) >= least, w * scale, ALL(0));
    }
    ((v *)out)[j] = w;
  }
}

typedef struct {
  rows_t q, k, v, out;             /* (batch, queries, heads, d), (batch, keys, heads, d) twice, and as q */
  rows_t dq, dk, dv;               /* gradients, where `out` is that of the outputs */
  const int16_t *bits;             /* (batch, heads, queries, keys) or none */
  ptrdiff_t heads, first, last;    /* of batch x heads, those from first to last */
  int queries, keys, d, half, least, backward;
  float scale; /* of what is kept */
} attention_t;

INLINE void attend(const attention_t *a, const int n, const int m) {
  float q[MOST * MOST], k[MOST * MOST], values[MOST * MOST], turned[MOST * MOST], out[MOST * MOST];
  float dq[MOST * MOST], dk[MOST * MOST], dv[MOST * MOST], values_turned[MOST * MOST];
  float weights[R * MOST], kept[R * MOST], slope[R * MOST];
  int16_t drawn[MOST * MOST + MOST] = {0};
  const int width = W * n, size = W * m, past = a->keys - a->queries, most = (a->queries + R - 1) / R * R;
  const float scale = 1.f / __builtin_sqrtf((float)a->d);
  for (ptrdiff_t item = a->first; item < a->last; item++) {
    ptrdiff_t b = item / a->heads, h = item % a->heads;
    const int16_t *bits = a->bits ? drawn : NULL; /* a copy, since vectors read beyond the last key */
    if (bits) memcpy(drawn, a->bits + item * a->queries * a->keys, 2 * (size_t)(a->queries * a->keys));
    memset(q + a->queries * size, 0, 4 * (size_t)((most - a->queries) * size));
    read_rows(a->q, b, h, a->queries, a->d, a->half, q, m);
    read_rows(a->k, b, h, a->keys, a->d, a->half, k, m);
    read_rows(a->v, b, h, a->keys, a->d, a->half, values, m);
    for (int i = 0; i < a->queries * size; i++) q[i] *= scale;
    transpose(k, a->keys, a->d, turned, n, m);
    if (a->backward) {
      memset(out + a->queries * size, 0, 4 * (size_t)((most - a->queries) * size));
      read_rows(a->out, b, h, a->queries, a->d, a->half, out, m);
      transpose(values, a->keys, a->d, values_turned, n, m);
      memset(dk, 0, 4 * (size_t)(a->keys * size));
      memset(dv, 0, 4 * (size_t)(a->keys * size));
    }
    for (int i = 0; i < a->queries; i += R) {
      int rows = a->queries - i < R ? a->queries - i : R, seen = i + rows + past;
      product(q + i * size, m, turned, a->d, weights, n);
      memset(kept, 0, sizeof kept);
      for (int r = 0; r < rows; r++) {
        softmax(weights + r * width, i + r + past + 1, n);
        keep(weights + r * width, bits ? bits + (i + r) * a->keys : NULL, a->least, a->scale, kept + r * width, n);
      }
      if (!a->backward) {
        product(kept, n, values, seen, out + i * size, m);
        continue;
      }
      spread(kept, n, out + i * size, seen, dv, m);
      product(out + i * size, m, values_turned, a->d, slope, n);
      for (int r = 0; r < rows; r++) {
        float *w = weights + r * width, *g = slope + r * width;
        keep(g, bits ? bits + (i + r) * a->keys : NULL, a->least, a->scale, g, n);
        v sum = ALL(0);
        for (int j = 0; j < n; j++) sum += ((v *)w)[j] * ((v *)g)[j];
        float mean = sum_of(sum);
        for (int j = 0; j < n; j++) ((v *)g)[j] = ((v *)w)[j] * (((v *)g)[j] - mean);
      }
      for (int r = rows; r < R; r++) memset(slope + r * width, 0, 4 * (size_t)width);
      product(slope, n, k, seen, dq + i * size, m);
      spread(slope, n, q + i * size, seen, dk, m);
    }
    if (a->backward) {
      for (int i = 0; i < a->queries * size; i++) dq[i] *= scale;
      write_rows(a->dq, b, h, a->queries, a->d, a->half, dq, m);
      write_rows(a->dk, b, h, a->keys, a->d, a->half, dk, m);
      write_rows(a->dv, b, h, a->keys, a->d, a->half, dv, m);
    } else
      write_rows(a->out, b, h, a->queries, a->d, a->half, out, m);
  }
}

INLINE void attend_keys(const attention_t *a, const int n) {
  if (a->d <= W)
    attend(a, n, 1);
  else if (a->d <= 2 * W)
    attend(a, n, 2);
  else
    attend(a, n, 6);
}

/* Causal attention of at most 96 tokens and features of a head, forward or backward; the last query sees every key. */
void attention(const attention_t *a) {
  if (a->keys <= 2 * W)
    attend_keys(a, 2);
  else if (a->keys <= 4 * W)
    attend_keys(a, 4);
  else
    attend_keys(a, 6);
}

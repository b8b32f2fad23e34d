/* Perceptrons in float32 without gradients: a block of rows goes through all layers while it is in cache, activations
   are computed where a product is written. Compiled behind kernels.c. */
#if defined(__AVX512F__)
#define N 16     /* lanes of a register */
#define TALL 12  /* a tile of the result: so many rows, and two registers of columns */
#elif defined(__AVX__)
#define N 8
#define TALL 6
#else
#define N 4
#define TALL 6
#endif
#define PANEL (2 * N)
#define ROWS 96 /* of a block */

typedef float f __attribute__((vector_size(4 * N), aligned(4), may_alias));
typedef int32_t fi __attribute__((vector_size(4 * N)));

enum { LINEAR, RELU, SILU };

typedef struct {
  const float *weight, *bias; /* (in, out), (out,) */
  int in, out;
} linear_t;

typedef struct {
  const linear_t *layers;
  const float *x; /* (rows, in) */
  float *y;       /* (rows, out) */
  float *room;    /* of all weights and biases in panels, and 2 ROWS times the widest panels */
  ptrdiff_t first, last;
  int count, hidden; /* layers, and the activation between them */
} perceptron_t;

/* exp(x) of x <= 0 to 2e-7, relative; 0 below -87 (Cephes' polynomial after a reduction by halvings). */
INLINE f falling(f x) {
  const float magic = 12582912.f; /* 1.5 * 2^23: adding it rounds to integers, which are then the low bits */
  f shifted = x * 1.44269504088896341f + magic, k = shifted - magic;
  f r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
  f p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f, p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f, p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  return (f)(((fi)p + ((fi)shifted << 23)) & (x > -87.f));
}

/* x / (1 + exp(-x)), by the exponential that cannot overflow. */
INLINE f silu(f x) {
  fi above = x > 0.f;
  f e = falling((f)((fi)x | (int32_t)0x80000000)), share = 1.f / (1.f + e);
  return x * (f)(((fi)share & above) | ((fi)(e * share) & ~above));
}

INLINE f activated(f x, int activation) {
  if (activation == SILU) return silu(x);
  return activation == RELU ? (f)((fi)x & ~(x < 0.f)) : x;
}

/* c = activation(bias + a b) of a tile; a's rows lie `stride` floats apart, b is a panel, c's rows lie `width` apart. */
INLINE void float_tile(const float *a, ptrdiff_t stride, const float *b, int k, const float *bias, float *c,
                       ptrdiff_t width, int activation, const int rows, const int n) {
  f sum[TALL][2];
#pragma GCC unroll 12
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < n; j++) sum[i][j] = *(const f *)(bias + N * j);
  for (; k--; a++, b += n * N) {
    f of_b[2];
    for (int j = 0; j < n; j++) of_b[j] = *(const f *)(b + N * j);
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < n; j++) sum[i][j] += a[i * stride] * of_b[j];
  }
#pragma GCC unroll 12
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < n; j++) *(f *)(c + i * width + N * j) = activated(sum[i][j], activation);
}

INLINE void float_tiles(const float *a, ptrdiff_t stride, const float *b, int k, const float *bias, float *c,
                        ptrdiff_t width, int activation, int rows, const int n) {
  for (; rows >= TALL; rows -= TALL, a += TALL * stride, c += TALL * width)
    float_tile(a, stride, b, k, bias, c, width, activation, TALL, n);
  for (; rows >= 2; rows -= 2, a += 2 * stride, c += 2 * width)
    float_tile(a, stride, b, k, bias, c, width, activation, 2, n);
  if (rows) float_tile(a, stride, b, k, bias, c, width, activation, 1, n);
}

INLINE int whole(int n) { return (n + N - 1) / N * N; }

/* A layer's panels, two registers wide and a last one of one or two, each with its biases before it. */
static float *lay_out(const linear_t *l, float *to) {
  for (int at = 0; at < l->out;) {
    int n = whole(l->out) - at > N ? PANEL : N, held = l->out - at < n ? l->out - at : n;
    for (int k = -1; k < l->in; k++, to += n) {
      memset(to, 0, 4 * (size_t)n);
      memcpy(to, k < 0 ? l->bias + at : l->weight + (ptrdiff_t)k * l->out + at, 4 * (size_t)held);
    }
    at += n;
  }
  return to;
}

void perceptron(const perceptron_t *p) {
  float *end = p->room;
  int widest = N;
  for (int i = 0; i < p->count; i++) {
    end = lay_out(p->layers + i, end);
    if (whole(p->layers[i].out) > widest) widest = whole(p->layers[i].out);
  }
  int inputs = p->layers[0].in, outputs = p->layers[p->count - 1].out;
  for (ptrdiff_t start = p->first; start < p->last; start += ROWS) {
    int rows = p->last - start < ROWS ? (int)(p->last - start) : ROWS;
    const float *now = p->x + start * inputs, *panel = p->room;
    ptrdiff_t stride = inputs;
    float *next = end;
    for (int i = 0; i < p->count; i++) {
      const linear_t *l = p->layers + i;
      int width = whole(l->out), activation = i + 1 < p->count ? p->hidden : LINEAR;
      for (int at = 0; at < width;) {
        int n = width - at > N ? 2 : 1;
        const float *b = panel + n * N;
        if (n == 1)
          float_tiles(now, stride, b, l->in, panel, next + at, width, activation, rows, 1);
        else
          float_tiles(now, stride, b, l->in, panel, next + at, width, activation, rows, 2);
        panel = b + (ptrdiff_t)l->in * n * N, at += n * N;
      }
      now = next, stride = width, next = next == end ? end + (ptrdiff_t)ROWS * widest : end;
    }
    for (int r = 0; r < rows; r++) memcpy(p->y + (start + r) * outputs, now + r * stride, 4 * (size_t)outputs);
  }
}

/* What training spends most of its time on beside matrix products, one pass over data that is in cache.

   Vectors of 16 floats are GCC's and clang's own extension: they become whatever the machine has. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define W 16 /* lanes */
#define R 4  /* rows at once: what fits the registers */
#define LOOP _Pragma("GCC unroll 4")
typedef float v __attribute__((vector_size(4 * W), aligned(4)));
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
  memcpy(&x, from, lanes == W ? sizeof x : 4 * (size_t)lanes);
  return x;
}

INLINE void store(float *to, v x, int lanes) { memcpy(to, &x, lanes == W ? sizeof x : 4 * (size_t)lanes); }

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

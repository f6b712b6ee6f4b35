#include "kernels/cuda/launch/block_reduce.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/table/kernels.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

// Normalises one row per block. Computes in double, in which the square of a float neither
// overflows nor underflows.
struct NormalizeRowsBody {
  using Shared = BlockReduce<Sum>;
  static constexpr int kPhases = 3;

  int64_t width;
  const float* x;
  float* y;
  float* inverse_norms;

  MUSTER_HOST_DEVICE void Run(int phase, int64_t row, int thread, Shared& shared) const {
    const float* from = x + row * width;
    if (phase == 0) {
      double squares = 0;
      for (int64_t i = thread; i < width; i += kThreads) {
        squares += static_cast<double>(from[i]) * static_cast<double>(from[i]);
      }
      shared.threads[thread] = {squares};
    } else if (phase == 1) {
      shared.Reduce(thread);
    } else {
      const double norm = sqrt(shared.Total().value);
      const double inverse = norm < kSmallestNorm ? 0 : 1 / norm;
      if (thread == 0) inverse_norms[row] = static_cast<float>(inverse);
      for (int64_t i = thread; i < width; i += kThreads) {
        y[row * width + i] = static_cast<float>(from[i] * inverse);
      }
    }
  }
};

// One row per block.
struct NormalizeRowsBackwardBody {
  using Shared = BlockReduce<Sum>;
  static constexpr int kPhases = 3;

  int64_t width;
  const float* y;
  const float* inverse_norms;
  const float* dy;
  float* dx;

  MUSTER_HOST_DEVICE void Run(int phase, int64_t row, int thread, Shared& shared) const {
    const float* unit = y + row * width;
    const float* from = dy + row * width;
    if (phase == 0) {
      double along = 0;
      for (int64_t i = thread; i < width; i += kThreads) {
        along += static_cast<double>(unit[i]) * static_cast<double>(from[i]);
      }
      shared.threads[thread] = {along};
    } else if (phase == 1) {
      shared.Reduce(thread);
    } else {
      const double along = shared.Total().value;
      const double inverse = inverse_norms[row];
      for (int64_t i = thread; i < width; i += kThreads) {
        dx[row * width + i] = static_cast<float>((from[i] - along * unit[i]) * inverse);
      }
    }
  }
};

// units [samples, width] -> columns [width, row_stride], zero after the last sample.
struct TransposeBody {
  int64_t samples;
  int64_t width;
  int64_t row_stride;
  const float* units;
  float* columns;
  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const int64_t sample = item % row_stride;
    const int64_t i = item / row_stride;
    columns[item] = sample < samples ? units[sample * width + i] : 0.0f;
  }
};

// C [rows, columns] = A [rows, depth] B [depth, columns], each with its own row stride. An item is
// kRows rows by kWidth columns of C. The sums of a row do not depend on the number of rows.
template <int kWidth>
struct ProductBody {
  static constexpr int kRows = 4;

  int64_t rows, columns, depth;
  const float* a;
  int64_t a_stride;
  const float* b;
  int64_t b_stride;
  float* c;
  int64_t c_stride;

  int64_t items() const { return CeilDiv(rows, kRows) * (columns / kWidth); }

  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const int64_t column = item % (columns / kWidth) * kWidth;
    const int64_t row = item / (columns / kWidth) * kRows;
    const float* a_rows[kRows];
    for (int r = 0; r < kRows; ++r) a_rows[r] = a + Min(row + r, rows - 1) * a_stride;
    Floats<kWidth> sums[kRows] = {};
    for (int64_t k = 0; k < depth; ++k) {
      const Floats<kWidth> values = Load<kWidth>(b + k * b_stride + column);
      for (int r = 0; r < kRows; ++r) {
        const float factor = a_rows[r][k];
        for (int i = 0; i < kWidth; ++i) sums[r][i] += factor * values[i];
      }
    }
    for (int r = 0; r < kRows; ++r) {
      if (row + r < rows) Store<kWidth>(c + (row + r) * c_stride + column, sums[r]);
    }
  }
};

void Product(const ProductBody<1>& product) {
  if (product.columns % 4 != 0 || product.b_stride % 4 != 0 || product.c_stride % 4 != 0 ||
      !Aligned({product.b, product.c})) {
    return ForEachItem(product.items(), product);
  }
  const ProductBody<4> wide{product.rows,     product.columns,  product.depth,
                            product.a,        product.a_stride, product.b,
                            product.b_stride, product.c,        product.c_stride};
  ForEachItem(wide.items(), wide);
}

struct LargestNegative {
  float value;
  MUSTER_HOST_DEVICE static LargestNegative Identity() { return {-INFINITY}; }
  MUSTER_HOST_DEVICE void Add(const LargestNegative& other) {
    if (other.value > value) value = other.value;
  }
};

// Loss of one anchor per block.
struct AnchorBody {
  struct Shared {
    BlockReduce<LargestNegative> negatives;
    BlockReduce<Sum> exponentials;
  };
  static constexpr int kPhases = 5;

  int64_t samples;
  int64_t first;
  int64_t row_stride;
  float inverse_temperature;
  float* logits;  // holds the products of the units at first
  float* log_sums;
  LossSum* losses;

  MUSTER_HOST_DEVICE void Run(int phase, int64_t anchor, int thread, Shared& shared) const {
    float* const logit = logits + anchor * row_stride;
    const int64_t self = first + anchor;
    if (phase == 0) {
      LargestNegative largest = LargestNegative::Identity();
      for (int64_t j = thread; j < samples; j += kThreads) {
        const float value = j == self ? -INFINITY : logit[j] * inverse_temperature;
        logit[j] = value;
        if (j != (self ^ 1)) largest.Add({value});
      }
      shared.negatives.threads[thread] = largest;
      return;
    }
    if (phase == 1) return shared.negatives.Reduce(thread);
    if (phase == 3) return shared.exponentials.Reduce(thread);
    // Subtracting the largest logit keeps exp from overflowing and the sum at 1 or more.
    const float negative = shared.negatives.Total().value;
    const float positive = logit[self ^ 1];
    const float largest = negative > positive ? negative : positive;
    if (phase == 2) {
      double sum = 0;
      for (int64_t j = thread; j < samples; j += kThreads) sum += expf(logit[j] - largest);
      shared.exponentials.threads[thread] = {sum};
    } else if (thread == 0) {
      const double log_sum = log(shared.exponentials.Total().value);
      log_sums[anchor] = static_cast<float>(largest + log_sum);
      losses[anchor] = {log_sum - (static_cast<double>(positive) - largest),
                        positive > negative ? 1.0 : 0.0};
    }
  }
};

// Replaces the logits by the coefficients of each sample's unit in an anchor's gradient.
struct CoefficientBody {
  int64_t samples;
  int64_t first;
  int64_t row_stride;
  double scale;
  const double* loss_scale;  // null means 1
  float temperature;
  const float* log_sums;
  float* logits;
  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const int64_t j = item % samples;
    const int64_t anchor = item / samples;
    const int64_t self = first + anchor;
    const float factor =
        static_cast<float>(scale * (loss_scale != nullptr ? *loss_scale : 1.0)) / temperature;
    float& logit = logits[anchor * row_stride + j];
    const float both = expf(logit - log_sums[self]) + expf(logit - log_sums[j]);
    logit = (j == (self ^ 1) ? both - 2 : both) * factor;
  }
};

// States the work of a product of the anchors or their logits with all units.
void StateProduct(const NtXentShape& shape) {
  StateWork(ArrayBytes(DataType::kFloat32, shape.logits_elements() + shape.workspace_elements() +
                                               shape.anchors * shape.width),
            2.0 * static_cast<double>(shape.logits_elements() * shape.width));
}

}  // namespace

void L2NormalizeForward(int64_t rows, int64_t width, const float* x, float* y,
                        float* inverse_norms) {
  StateWork(2 * ArrayBytes(DataType::kFloat32, rows * width));
  ForEachBlock(rows, NormalizeRowsBody{width, x, y, inverse_norms});
}

void L2NormalizeBackward(int64_t rows, int64_t width, const float* y, const float* inverse_norms,
                         const float* dy, float* dx) {
  StateWork(3 * ArrayBytes(DataType::kFloat32, rows * width));
  ForEachBlock(rows, NormalizeRowsBackwardBody{width, y, inverse_norms, dy, dx});
}

void NtXentForward(const NtXentShape& shape, const float* units, float* logits, float* log_sums,
                   float* workspace, LossResult* result) {
  const int64_t row_stride = shape.row_stride();
  StateWork(2 * ArrayBytes(DataType::kFloat32, shape.workspace_elements()));
  ForEachItem(shape.width * row_stride,
              TransposeBody{shape.samples, shape.width, row_stride, units, workspace});
  StateProduct(shape);
  Product({shape.anchors, row_stride, shape.width, units + shape.first * shape.width, shape.width,
           workspace, row_stride, logits, row_stride});
  NtXentLosses(shape, logits, log_sums, result);
}

void NtXentLosses(const NtXentShape& shape, float* logits, float* log_sums, LossResult* result) {
  LossSum* const losses = Scratch<LossSum>(Max(shape.anchors, 1));
  if (losses == nullptr) return;
  StateWork(2 * ArrayBytes(DataType::kFloat32, shape.logits_elements()));
  ForEachBlock(shape.anchors, AnchorBody{shape.samples, shape.first, shape.row_stride(),
                                         1.0f / shape.temperature, logits, log_sums, losses});
  ReduceInOneBlock<LossSum>(shape.anchors, ArraySource<LossSum>{losses}, LossSink{result});
}

void NtXentBackward(const NtXentShape& shape, double scale, const double* loss_scale,
                    const float* units, const float* log_sums, float* logits, float* dunits) {
  NtXentCoefficients(shape, scale, loss_scale, log_sums, logits);
  StateProduct(shape);
  Product({shape.anchors, shape.width, shape.samples, logits, shape.row_stride(), units,
           shape.width, dunits, shape.width});
}

void NtXentCoefficients(const NtXentShape& shape, double scale, const double* loss_scale,
                        const float* log_sums, float* logits) {
  StateWork(2 * ArrayBytes(DataType::kFloat32, shape.logits_elements()));
  ForEachItem(shape.anchors * shape.samples,
              CoefficientBody{shape.samples, shape.first, shape.row_stride(), scale, loss_scale,
                              shape.temperature, log_sums, logits});
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

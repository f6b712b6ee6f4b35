// What judges a batch's samples and what it leaves out of them: the loss of their classes, dropout.
#include "kernels/cuda/fold.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

// An item is the four elements of a row that one Philox counter decides, fewer at its end.
template <typename Storage>
struct DropoutBody {
  DropoutMask mask;
  const RandomDraw* draw;
  float keep_scale;
  int64_t columns;
  int64_t groups;  // of a row
  bool whole;      // every group is of four elements that may be loaded at once
  const Storage* x;
  Storage* y;

  template <int kCount>
  MUSTER_HOST_DEVICE void Keep(int64_t at, const PhiloxCounter& words, int first) const {
    Floats<kCount> values = Load<kCount>(x + at);
    for (int i = 0; i < kCount; ++i) {
      const bool drop = Uniform01(words[first + i]) < mask.probability;
      values[i] = drop ? 0.0f : values[i] * keep_scale;
    }
    Store<kCount>(y + at, values);
  }
  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const int64_t row = item / groups;
    const int64_t group = item % groups;
    const PhiloxCounter words =
        Philox4x32(DropoutCounter(mask.layer, draw->first_row + static_cast<uint64_t>(row),
                                  static_cast<uint32_t>(group)),
                   draw->key);
    const int64_t at = row * columns + 4 * group;
    if (whole) return Keep<4>(at, words, 0);
    for (int i = 0; i < 4; ++i) {
      if (4 * group + i < columns) Keep<1>(at + i, words, i);
    }
  }
};

// The first among equals.
struct LargestLogit {
  float value;
  int64_t at;
  MUSTER_HOST_DEVICE static LargestLogit Nothing() { return {-INFINITY, INT64_MAX}; }
  MUSTER_HOST_DEVICE void Add(const LargestLogit& other) {
    if (other.value < value || (other.value == value && other.at > at)) return;
    if (other.value != other.value) return;
    *this = other;
  }
};

struct LogitSums {
  double exponentials;  // of each logit less the largest
  double distances;     // each logit less the largest
  MUSTER_HOST_DEVICE static LogitSums Nothing() { return {0, 0}; }
  MUSTER_HOST_DEVICE void Add(const LogitSums& other) {
    exponentials += other.exponentials;
    distances += other.distances;
  }
};

// A block per row.
struct CrossEntropyBody {
  struct Shared {
    Folds<LargestLogit> largest;
    Folds<LogitSums> sums;
  };
  static constexpr int kPhases = 5;

  CrossEntropyOptions options;
  const float* logits;
  const int32_t* labels;
  const double* loss_scale;  // or null: 1
  float* dlogits;            // or null
  LossSum* losses;

  MUSTER_HOST_DEVICE void Run(int phase, int64_t row, int thread, Shared& shared) const {
    const float* const logit = logits + row * options.classes;
    float* const gradient = dlogits != nullptr ? dlogits + row * options.classes : nullptr;
    if (phase == 0) {
      LargestLogit largest = LargestLogit::Nothing();
      for (int64_t c = thread; c < options.classes; c += kThreads) largest.Add({logit[c], c});
      shared.largest.threads[thread] = largest;
    } else if (phase == 1) {
      shared.largest.Fold(thread);
    } else if (phase == 2) {
      const float largest = shared.largest.Whole().value;
      LogitSums sums = LogitSums::Nothing();
      for (int64_t c = thread; c < options.classes; c += kThreads) {
        const float distance = logit[c] - largest;
        const float exponential = expf(distance);
        sums.Add({exponential, distance});
        if (gradient != nullptr) gradient[c] = exponential;
      }
      shared.sums.threads[thread] = sums;
    } else if (phase == 3) {
      shared.sums.Fold(thread);
    } else {
      Finish(row, thread, shared, logit, gradient);
    }
  }

  MUSTER_HOST_DEVICE void Finish(int64_t row, int thread, const Shared& shared, const float* logit,
                                 float* gradient) const {
    const LogitSums sums = shared.sums.Whole();
    const int64_t label = labels[row];
    const double smoothing = options.label_smoothing;
    const double classes = static_cast<double>(options.classes);
    if (thread == 0) {
      const LargestLogit largest = shared.largest.Whole();
      const double distance = logit[label] - largest.value;
      losses[row] = {log(sums.exponentials) - (1 - smoothing) * distance -
                         smoothing / classes * sums.distances,
                     largest.at == label ? 1.0 : 0.0};
    }
    if (gradient == nullptr) return;
    const float off_target = static_cast<float>(smoothing / classes);
    const float on_target = static_cast<float>(1 - smoothing) + off_target;
    const float inverse = static_cast<float>(1 / sums.exponentials);
    const float scale =
        static_cast<float>(options.scale * (loss_scale != nullptr ? *loss_scale : 1.0));
    for (int64_t c = thread; c < options.classes; c += kThreads) {
      const float target = c == label ? on_target : off_target;
      gradient[c] = scale * (gradient[c] * inverse - target);
    }
  }
};

}  // namespace

void Dropout(DataType type, const DropoutMask& mask, const RandomDraw* draw, int64_t rows,
             int64_t columns, const void* x, void* y) {
  const int64_t groups = Quotient(columns, 4);
  const bool whole = columns % 4 == 0 && Aligned({x, y});
  DispatchType(type, [&](auto element) {
    using Storage = decltype(element);
    ForEachItem(
        rows * groups,
        DropoutBody<Storage>{mask, draw, 1.0f / (1.0f - mask.probability), columns, groups, whole,
                             static_cast<const Storage*>(x), static_cast<Storage*>(y)});
  });
}

void SoftmaxCrossEntropy(const CrossEntropyOptions& options, const float* logits,
                         const int32_t* labels, const double* loss_scale, float* dlogits,
                         LossResult* result) {
  LossSum* const losses = Scratch<LossSum>(Larger(options.rows, 1));
  if (losses == nullptr) return;
  ForEachBlock(options.rows,
               CrossEntropyBody{options, logits, labels, loss_scale, dlogits, losses});
  FoldInOneBlock<LossSum>(options.rows, ArraySource<LossSum>{losses}, LossSink{result});
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#include "kernels/cuda/launch/block_reduce.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/table/kernels.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

struct LogitSums {
  double exponentials;  // sum of exp(logit - largest)
  double distances;     // sum of logit - largest
};

// Each group of kLanes threads processes a row of logits in vectors of kWidth. If kKept > 0, the
// row has at most kLanes * kKept vectors, and each thread keeps its own in registers, so that the
// row is read once. If kKept is 0, rows may have any length and are read in each phase.
template <int kLanes, int kWidth, int kKept>
struct CrossEntropyBody {
  static constexpr int kPhases = 6;
  static constexpr int kRows = kThreads / kLanes;   // per block
  static constexpr int kPartials = 8;               // partial results per row
  static constexpr int kEach = kLanes / kPartials;  // threads per partial result
  struct Shared {
    float largest[kThreads];
    float largest_partials[kRows][kPartials];
    LogitSums sums[kThreads];
    LogitSums sums_partials[kRows][kPartials];
    int earlier[kThreads];  // whether a logit before the label's equals the largest
    int earlier_partials[kRows][kPartials];
    LossSum losses[kRows];
  };
  struct State {
    Floats<kWidth> logits[kKept > 0 ? kKept : 1];  // from phase 2 on, their exponentials
    int32_t label;
    float logit_of_label;
  };

  CrossEntropyOptions options;
  const float* logits;
  const int32_t* labels;
  const double* loss_scale;  // null means 1
  float* dlogits;            // or null
  LossSum* losses;           // [blocks]

  // Calls visit(class, registers) for each vector of the lane: the vector's first class, and the
  // registers for it.
  template <typename Visit>
  MUSTER_HOST_DEVICE void ForEachVector(int lane, State& state, const Visit& visit) const {
    if constexpr (kKept > 0) {
#pragma unroll
      for (int i = 0; i < kKept; ++i) {
        const int c = (i * kLanes + lane) * kWidth;
        if (c < options.classes) visit(c, state.logits[i]);
      }
    } else {
      for (int64_t c = lane * kWidth; c < options.classes; c += kLanes * kWidth) {
        visit(c, state.logits[0]);
      }
    }
  }

  MUSTER_HOST_DEVICE void Run(int phase, int64_t block, int thread, Shared& shared,
                              State& state) const {
    const int lane = thread % kLanes;
    const int group = thread / kLanes;
    const int64_t row = block * kRows + group;
    if (phase == 5) {
      if (thread != 0) return;
      LossSum all = LossSum::Identity();
      for (int i = 0; i < Min(kRows, options.samples - block * kRows); ++i) {
        all.Add(shared.losses[i]);
      }
      losses[block] = all;
      return;
    }
    if (row >= options.samples) return;
    const float* const logit = logits + row * options.classes;
    if (phase == 0) {
      float largest = -INFINITY;
      // Issue all loads of a row before the first use.
      state.label = labels[row];
      if constexpr (kKept > 0) {
        ForEachVector(lane, state,
                      [&](auto c, Floats<kWidth>& kept) { kept = Load<kWidth>(logit + c); });
      }
      state.logit_of_label = logit[state.label];
      ForEachVector(lane, state, [&](auto c, Floats<kWidth>& kept) {
        const Floats<kWidth> values = kKept > 0 ? kept : Load<kWidth>(logit + c);
        for (int i = 0; i < kWidth; ++i) largest = fmaxf(largest, values[i]);
      });
      shared.largest[thread] = largest;
    } else if (phase == 1) {
      if (lane >= kPartials) return;
      const float* const values = shared.largest + group * kLanes + lane * kEach;
      float largest = values[0];
      for (int i = 1; i < kEach; ++i) largest = fmaxf(largest, values[i]);
      shared.largest_partials[group][lane] = largest;
    } else if (phase == 2) {
      SumExponentials(thread, logit, shared, state);
    } else if (phase == 3) {
      if (lane >= kPartials) return;
      const int first = group * kLanes + lane * kEach;
      LogitSums sums = shared.sums[first];
      int earlier = shared.earlier[first];
      for (int i = 1; i < kEach; ++i) {
        sums.exponentials += shared.sums[first + i].exponentials;
        sums.distances += shared.sums[first + i].distances;
        earlier |= shared.earlier[first + i];
      }
      shared.sums_partials[group][lane] = sums;
      shared.earlier_partials[group][lane] = earlier;
    } else {
      Finish(row, thread, logit, shared, state);
    }
  }

 private:
  MUSTER_HOST_DEVICE float LargestOf(const Shared& shared, int group) const {
    float largest = shared.largest_partials[group][0];
    for (int i = 1; i < kPartials; ++i) largest = fmaxf(largest, shared.largest_partials[group][i]);
    return largest;
  }

  MUSTER_HOST_DEVICE void SumExponentials(int thread, const float* logit, Shared& shared,
                                          State& state) const {
    const float largest = LargestOf(shared, thread / kLanes);
    const int32_t label = state.label;
    LogitSums sums = {0, 0};
    int earlier = 0;
    ForEachVector(thread % kLanes, state, [&](auto c, Floats<kWidth>& kept) {
      const Floats<kWidth> values = kKept > 0 ? kept : Load<kWidth>(logit + c);
      float exponentials = 0;
      float distances = 0;
      for (int i = 0; i < kWidth; ++i) {
        const float distance = values[i] - largest;
        kept[i] = expf(distance);
        exponentials += kept[i];
        distances += distance;
        earlier |= c + i < label && values[i] == largest ? 1 : 0;
      }
      sums.exponentials += exponentials;
      sums.distances += distances;
    });
    shared.sums[thread] = sums;
    shared.earlier[thread] = earlier;
  }

  MUSTER_HOST_DEVICE void Finish(int64_t row, int thread, const float* logit, Shared& shared,
                                 State& state) const {
    const int group = thread / kLanes;
    LogitSums sums = shared.sums_partials[group][0];
    for (int i = 1; i < kPartials; ++i) {
      sums.exponentials += shared.sums_partials[group][i].exponentials;
      sums.distances += shared.sums_partials[group][i].distances;
    }
    const float largest = LargestOf(shared, group);
    if (dlogits != nullptr) WriteGradient(row, thread, logit, largest, sums.exponentials, state);
    if (thread % kLanes != 0) return;
    int earlier = shared.earlier_partials[group][0];
    for (int i = 1; i < kPartials; ++i) earlier |= shared.earlier_partials[group][i];
    const double smoothing = options.label_smoothing;
    const double distance = state.logit_of_label - largest;
    shared.losses[group] = {log(sums.exponentials) - (1 - smoothing) * distance -
                                smoothing / static_cast<double>(options.classes) * sums.distances,
                            state.logit_of_label == largest && earlier == 0 ? 1.0 : 0.0};
  }

  MUSTER_HOST_DEVICE void WriteGradient(int64_t row, int thread, const float* logit, float largest,
                                        double exponentials, State& state) const {
    const int32_t label = state.label;
    const double smoothing = options.label_smoothing;
    float* const gradient = dlogits + row * options.classes;
    const float off_target = static_cast<float>(smoothing / static_cast<double>(options.classes));
    const float on_target = static_cast<float>(1 - smoothing) + off_target;
    const float inverse = static_cast<float>(1 / exponentials);
    const float scale =
        static_cast<float>(options.scale * (loss_scale != nullptr ? *loss_scale : 1.0));
    ForEachVector(thread % kLanes, state, [&](auto c, Floats<kWidth>& kept) {
      Floats<kWidth> values = kept;
      if constexpr (kKept == 0) {
        values = Load<kWidth>(logit + c);
        for (int i = 0; i < kWidth; ++i) values[i] = expf(values[i] - largest);
      }
      for (int i = 0; i < kWidth; ++i) {
        values[i] = scale * (values[i] * inverse - (c + i == label ? on_target : off_target));
      }
      Store<kWidth>(gradient + c, values);
    });
  }
};

}  // namespace

void SoftmaxCrossEntropy(const CrossEntropyOptions& options, const float* logits,
                         const int32_t* labels, const double* loss_scale, float* dlogits,
                         LossResult* result) {
  StateWork((dlogits != nullptr ? 2 : 1) *
            ArrayBytes(DataType::kFloat32, options.samples * options.classes));
  const auto run = [&]<int kLanes, int kWidth, int kKept>() {
    using Body = CrossEntropyBody<kLanes, kWidth, kKept>;
    const int64_t blocks = CeilDiv(options.samples, Body::kRows);
    LossSum* const losses = Scratch<LossSum>(Max(blocks, 1));
    if (losses == nullptr) return;
    ForEachBlock(blocks, Body{options, logits, labels, loss_scale, dlogits, losses});
    ReduceInOneBlock<LossSum>(blocks, ArraySource<LossSum>{losses}, LossSink{result});
  };
  constexpr int64_t kMaxKeptClasses = 1024;
  const bool vectors = options.classes % 4 == 0 && Aligned({logits, dlogits});
  if (options.classes > kMaxKeptClasses) {
    return vectors ? run.template operator()<kThreads, 4, 0>()
                   : run.template operator()<kThreads, 1, 0>();
  }
  // More threads per row would leave too few bytes in flight; fewer would need too many registers.
  if (vectors) {
    return options.classes <= 128 ? run.template operator()<32, 4, 1>()
                                  : run.template operator()<64, 4, 4>();
  }
  return options.classes <= 128 ? run.template operator()<32, 1, 4>()
                                : run.template operator()<32, 1, 32>();
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

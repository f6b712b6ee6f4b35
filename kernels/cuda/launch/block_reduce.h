// Values of a whole array added up to one, in an order that its length alone decides.
#ifndef MUSTER_KERNELS_CUDA_LAUNCH_BLOCK_REDUCE_H_
#define MUSTER_KERNELS_CUDA_LAUNCH_BLOCK_REDUCE_H_

#include <cstdint>

#include "kernels/cuda/launch/launch.h"
#include "kernels/loss_result.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// The values of a block's threads, and of 16 of them each.
template <typename Value>
struct Folds {
  static constexpr int kCount = 16;
  Value threads[kThreads];
  Value folds[kCount];

  // To be called by all threads, in a phase of its own after all have written `threads`.
  MUSTER_HOST_DEVICE void Fold(int thread) {
    if (thread >= kCount) return;
    constexpr int kEach = kThreads / kCount;
    Value value = threads[thread * kEach];
    for (int i = 1; i < kEach; ++i) value.Add(threads[thread * kEach + i]);
    folds[thread] = value;
  }
  // By any thread, in a later phase.
  MUSTER_HOST_DEVICE Value Whole() const {
    Value value = folds[0];
    for (int i = 1; i < kCount; ++i) value.Add(folds[i]);
    return value;
  }
};

// Adds up source(i) of all items by blocks, and gives each block's to sink(block, value). A Value
// has Nothing(), to which Add() adds.
template <typename Value, typename Source, typename Sink>
struct FoldBody {
  using Shared = Folds<Value>;
  static constexpr int kPhases = 3;

  Source source;
  Sink sink;
  int64_t items;
  int64_t blocks;

  MUSTER_HOST_DEVICE void Run(int phase, int64_t block, int thread, Shared& shared) const {
    if (phase == 0) {
      Value value = Value::Nothing();
      const int64_t stride = blocks * kThreads;
      int64_t i = block * kThreads + thread;
      // Loads four items before it adds the first, to hide the latency of memory.
      for (; i + 3 * stride < items; i += 4 * stride) {
        const Value loaded[] = {source(i), source(i + stride), source(i + 2 * stride),
                                source(i + 3 * stride)};
        for (const Value& one : loaded) value.Add(one);
      }
      for (; i < items; i += stride) value.Add(source(i));
      shared.threads[thread] = value;
    } else if (phase == 1) {
      shared.Fold(thread);
    } else if (thread == 0) {
      sink(block, shared.Whole());
    }
  }
};

struct Sum {
  double value;
  MUSTER_HOST_DEVICE static Sum Nothing() { return {0}; }
  MUSTER_HOST_DEVICE void Add(const Sum& other) { value += other.value; }
};

// Of samples whose loss asks which of several is right.
struct LossSum {
  double loss;
  double correct;
  MUSTER_HOST_DEVICE static LossSum Nothing() { return {0, 0}; }
  MUSTER_HOST_DEVICE void Add(const LossSum& other) {
    loss += other.loss;
    correct += other.correct;
  }
};

struct LossSink {
  LossResult* result;
  MUSTER_HOST_DEVICE void operator()(int64_t, const LossSum& all) const {
    result->loss_sum = all.loss;
    result->correct = all.correct;
  }
};

template <typename Value>
struct ArraySource {
  const Value* values;
  MUSTER_HOST_DEVICE Value operator()(int64_t i) const { return values[i]; }
};

template <typename Value>
struct ArraySink {
  Value* values;
  MUSTER_HOST_DEVICE void operator()(int64_t block, const Value& value) const {
    values[block] = value;
  }
};

// For few items, those in scratch memory too.
template <typename Value, typename Source, typename Sink>
void FoldInOneBlock(int64_t items, const Source& source, const Sink& sink) {
  ForEachBlock(1, FoldBody<Value, Source, Sink>{source, sink, items, 1});
}

// Calls sink(0, the sum of source(i) over all items).
template <typename Value, typename Source, typename Sink>
void FoldAll(int64_t items, const Source& source, const Sink& sink) {
  constexpr int64_t kEach = 16;  // at least, of a thread
  const int64_t blocks = Smaller(kReducingBlocks, Larger(1, items / (int64_t{kThreads} * kEach)));
  Value* const partial = Scratch<Value>(blocks);
  if (partial == nullptr) return;
  ForEachBlock(blocks, FoldBody<Value, Source, ArraySink<Value>>{source, {partial}, items, blocks});
  FoldInOneBlock<Value>(blocks, ArraySource<Value>{partial}, sink);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CUDA_LAUNCH_BLOCK_REDUCE_H_

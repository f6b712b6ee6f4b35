// Reductions of an array to one value, in an order that depends on the array's length alone.
#ifndef MUSTER_KERNELS_CUDA_LAUNCH_BLOCK_REDUCE_H_
#define MUSTER_KERNELS_CUDA_LAUNCH_BLOCK_REDUCE_H_

#include <cstdint>

#include "kernels/cuda/launch/launch.h"
#include "kernels/loss_result.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Shared memory for the reduction of one value per thread over a block, in three phases: each
// thread writes threads[thread]; all threads call Reduce; any thread calls Total.
//
// A Value has Identity(), and Add(other), which combines another value into it.
template <typename Value>
struct BlockReduce {
  static constexpr int kPartials = 16;
  Value threads[kThreads];
  Value partials[kPartials];

  MUSTER_HOST_DEVICE void Reduce(int thread) {
    if (thread >= kPartials) return;
    constexpr int kEach = kThreads / kPartials;
    Value value = threads[thread * kEach];
    for (int i = 1; i < kEach; ++i) value.Add(threads[thread * kEach + i]);
    partials[thread] = value;
  }
  MUSTER_HOST_DEVICE Value Total() const {
    Value value = partials[0];
    for (int i = 1; i < kPartials; ++i) value.Add(partials[i]);
    return value;
  }
};

// Divides the items among `blocks` blocks, reduces source(i) within each block, and calls
// sink(block, value) once per block.
template <typename Value, typename Source, typename Sink>
struct ReduceBody {
  using Shared = BlockReduce<Value>;
  static constexpr int kPhases = 3;

  Source source;
  Sink sink;
  int64_t items;
  int64_t blocks;

  MUSTER_HOST_DEVICE void Run(int phase, int64_t block, int thread, Shared& shared) const {
    if (phase == 0) {
      Value value = Value::Identity();
      const int64_t stride = blocks * kThreads;
      int64_t i = block * kThreads + thread;
      // Loads four items before adding the first, to hide memory latency.
      for (; i + 3 * stride < items; i += 4 * stride) {
        const Value loaded[] = {source(i), source(i + stride), source(i + 2 * stride),
                                source(i + 3 * stride)};
        for (const Value& one : loaded) value.Add(one);
      }
      for (; i < items; i += stride) value.Add(source(i));
      shared.threads[thread] = value;
    } else if (phase == 1) {
      shared.Reduce(thread);
    } else if (thread == 0) {
      sink(block, shared.Total());
    }
  }
};

struct Sum {
  double value;
  MUSTER_HOST_DEVICE static Sum Identity() { return {0}; }
  MUSTER_HOST_DEVICE void Add(const Sum& other) { value += other.value; }
};

// The loss of samples and the number of correct predictions among them.
struct LossSum {
  double loss;
  double correct;
  MUSTER_HOST_DEVICE static LossSum Identity() { return {0, 0}; }
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

// Calls sink(0, reduction of source(i) over all items). For small arrays; needs no scratch memory,
// so the source may be in it.
template <typename Value, typename Source, typename Sink>
void ReduceInOneBlock(int64_t items, const Source& source, const Sink& sink) {
  ForEachBlock(1, ReduceBody<Value, Source, Sink>{source, sink, items, 1});
}

// Calls sink(0, reduction of source(i) over all items). Uses scratch memory.
template <typename Value, typename Source, typename Sink>
void ReduceAll(int64_t items, const Source& source, const Sink& sink) {
  constexpr int64_t kEach = 16;  // minimum number of items per thread
  const int64_t blocks = Min(kReductionBlocks, Max(1, items / (int64_t{kThreads} * kEach)));
  Value* const partial = Scratch<Value>(blocks);
  if (partial == nullptr) return;
  ForEachBlock(blocks,
               ReduceBody<Value, Source, ArraySink<Value>>{source, {partial}, items, blocks});
  ReduceInOneBlock<Value>(blocks, ArraySource<Value>{partial}, sink);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CUDA_LAUNCH_BLOCK_REDUCE_H_

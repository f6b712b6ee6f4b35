#include "trainer/strategy/elastic/tree_bucket_reducer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/status.h"
#include "kernels/data_type.h"
#include "kernels/kernel_table.h"
#include "trainer/strategy/stopwatch.h"

namespace muster::train {
namespace {

using collectives::DataType;

constexpr size_t kLineElements = 16;  // of a cache line
// Elements that are summed at a time, of all roots: they fit into a first-level cache.
constexpr size_t kBlockElements = 1 << 10;

size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

TreeBucketReducer::TreeBucketReducer(collectives::Communicator* communicator,
                                     kernels::Device* device, const ShardTree* tree,
                                     const TreeBucketReducerOptions& options)
    : communicator_(communicator),
      device_(*device),
      tree_(*tree),
      options_(options),
      own_(tree->of(communicator->rank())),
      losses_(communicator, tree) {
  const size_t unit = kLineElements * tree_.ranks();
  padded_ = RoundUp(options.elements, unit);
  size_t bytes = options.first_bucket_bytes;
  for (size_t end = padded_; end > 0; bytes = options.bucket_bytes) {
    const size_t count = std::max(unit, RoundUp(bytes / sizeof(float), unit));
    buckets_.push_back({end - std::min(count, end), end});
    end = buckets_.back().begin;
  }
  for (uint32_t rank = 0; rank < tree_.ranks(); ++rank) {
    for (uint32_t root = 0; root < tree_.roots(rank); ++root) sources_.push_back({root, rank});
  }
}

absl::StatusOr<std::unique_ptr<TreeBucketReducer>> TreeBucketReducer::Create(
    collectives::Communicator* communicator, kernels::Device* device, const ShardTree* tree,
    const TreeBucketReducerOptions& options) {
  std::unique_ptr<TreeBucketReducer> reducer(
      new TreeBucketReducer(communicator, device, tree, options));
  RETURN_IF_ERROR(reducer->Allocate());
  return reducer;
}

absl::Status TreeBucketReducer::Allocate() {
  const size_t values = tree_.max_values();
  const size_t received = tree_.ranks() > 1 ? tree_.max_roots() : 0;
  const size_t bytes = (values + received) * padded_ * sizeof(float);
  ASSIGN_OR_RETURN(memory_, communicator_->Allocate(bytes));
  // The elements between tensors and after the last one are never written.
  std::memset(memory_->data(), 0, bytes);
  float* array = static_cast<float*>(memory_->data());
  const auto take = [&] { return std::exchange(array, array + padded_); };
  gradients_ = take();
  while (partials_.size() + 1 < values) partials_.push_back(take());
  while (received_.size() < received) received_.push_back(take());
  buffers_ = kernels::MakeAlignedFloats(options_.buffer_elements);
  return absl::OkStatus();
}

void TreeBucketReducer::Add(const float* src, float* dst, size_t count) const {
  device_.kernels().accumulate(DataType::kFloat32, count, src, dst);
}

void TreeBucketReducer::KeepBuffers() {
  if (shard_ == 0) std::copy_n(options_.buffers, options_.buffer_elements, buffers_.get());
}

void TreeBucketReducer::Accumulate(bool first) {
  const Stopwatch stopwatch(kernel_time_);
  if (first) {
    shard_ = own_.begin;
    kept_ = 0;
  }
  KeepBuffers();
  for (uint32_t i = tree_.AdditionsAfter(communicator_->rank(), shard_); i > 0; --i) {
    Add(partials_[--kept_], gradients_, options_.elements);
  }
  device_.Copy(partials_[kept_++], gradients_, options_.elements * sizeof(float));
  ++shard_;
}

void TreeBucketReducer::Begin(absl::Span<const kernels::LossResult> losses) {
  if (own_.size() == 1) shard_ = own_.begin;
  KeepBuffers();
  ready_ = 0;
  exchanges_.clear();
  gathers_.clear();
  losses_.Begin(losses);
  broadcast_ = communicator_->Broadcast(buffers_.get(), options_.buffer_elements,
                                        DataType::kFloat32, /*root=*/0);
}

void TreeBucketReducer::Ready(size_t offset) {
  for (; ready_ < buckets_.size() && offset <= buckets_[ready_].begin; ++ready_) {
    Exchange(buckets_[ready_]);
  }
}

void TreeBucketReducer::Exchange(const Bucket& bucket) {
  const uint32_t rank = communicator_->rank();
  const size_t count = bucket.end - bucket.begin;
  const uint32_t additions = tree_.AdditionsAfter(rank, own_.end - 1);
  {
    const Stopwatch stopwatch(kernel_time_);
    for (uint32_t i = 1; i <= additions; ++i) {
      Add(partials_[kept_ - i] + bucket.begin, gradients_ + bucket.begin, count);
    }
  }
  if (tree_.ranks() == 1) return;
  for (uint32_t root = 0; root < received_.size(); ++root) {
    // A rank with fewer roots sends one that the others do not use.
    const float* const values = root + 1 < tree_.roots(rank) ? partials_[root] : gradients_;
    exchanges_.push_back(communicator_->AllToAll(values + bucket.begin,
                                                 received_[root] + bucket.begin, ChunkOf(bucket),
                                                 DataType::kFloat32));
  }
}

void TreeBucketReducer::SumAndGather(const Bucket& bucket) {
  const size_t chunk = ChunkOf(bucket);
  const auto at = [&](uint32_t value) {
    const Source& source = sources_[value];
    return received_[source.root] + bucket.begin + source.rank * chunk;
  };
  {
    const Stopwatch stopwatch(kernel_time_);
    for (size_t begin = 0; begin < chunk; begin += kBlockElements) {
      const size_t count = std::min(kBlockElements, chunk - begin);
      for (const ShardTree::Addition& addition : tree_.total()) {
        Add(at(addition.from) + begin, at(addition.into) + begin, count);
      }
    }
  }
  gathers_.push_back(
      communicator_->AllGather(at(0), gradients_ + bucket.begin, chunk, DataType::kFloat32));
}

absl::Status TreeBucketReducer::Finish() {
  Ready(0);
  kept_ = 0;
  const absl::StatusOr<kernels::LossResult> total = losses_.Finish();
  absl::Status status = total.status();
  // Returns the first error, which is the cause, but waits for all operations so that none still
  // writes to the memory.
  const auto wait = [&status](collectives::Work& work) {
    absl::Status done = work.Wait();
    if (status.ok()) status = std::move(done);
  };
  wait(*broadcast_);
  auto exchange = exchanges_.begin();
  for (const Bucket& bucket : buckets_) {
    for (size_t root = 0; root < received_.size(); ++root) wait(**exchange++);
    if (status.ok() && !received_.empty()) SumAndGather(bucket);
  }
  for (const auto& gather : gathers_) wait(*gather);
  RETURN_IF_ERROR(status);
  totals_ = *total;
  std::copy_n(buffers_.get(), options_.buffer_elements, options_.buffers);
  return absl::OkStatus();
}

size_t TreeBucketReducer::operations() const {
  const size_t per_bucket = received_.empty() ? 0 : received_.size() + 1;
  return 2 + buckets_.size() * per_bucket;
}

}  // namespace muster::train

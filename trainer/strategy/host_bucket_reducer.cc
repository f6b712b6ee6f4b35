#include "trainer/strategy/host_bucket_reducer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/types/span.h"
#include "common/status.h"
#include "kernels/kernel_table.h"
#include "trainer/strategy/stopwatch.h"

namespace muster::train {
namespace {

using kernels::DataType;

// Elements after the gradients: sum of losses and number of correct samples. A float represents
// counts up to 2^24 exactly.
constexpr size_t kTailElements = 2;

size_t CanonicalCount(const nn::ParameterInfo& parameter) {
  size_t count = 1;
  for (const int64_t dimension : parameter.shape) count *= static_cast<size_t>(dimension);
  return count;
}

}  // namespace

HostBucketReducer::HostBucketReducer(collectives::Communicator* communicator, nn::Plan* plan,
                                     const HostBucketReducerOptions& options)
    : communicator_(communicator),
      plan_(plan),
      device_(plan->device()),
      canonical_(options.canonical),
      sums_(options.sums),
      scatters_(options.scatters),
      type_(options.type),
      postscale_(RankScale(type_, communicator->size())),
      prescale_(1 / postscale_),
      shares_(plan->parameter_elements(), communicator->size()) {}

absl::StatusOr<std::unique_ptr<HostBucketReducer>> HostBucketReducer::Create(
    collectives::Communicator* communicator, nn::Plan* plan,
    const HostBucketReducerOptions& options) {
  std::unique_ptr<HostBucketReducer> reducer(new HostBucketReducer(communicator, plan, options));
  reducer->LayOut(options);
  RETURN_IF_ERROR(reducer->Allocate(options));
  return reducer;
}

void HostBucketReducer::LayOut(const HostBucketReducerOptions& options) {
  const absl::Span<const nn::ParameterInfo> parameters = plan_->parameters();
  std::vector<size_t> counts;
  size_t canonical_elements = 0;
  for (const nn::ParameterInfo& parameter : parameters) {
    const size_t count = canonical_ ? CanonicalCount(parameter) : parameter.count;
    counts.push_back(count);
    offsets_.push_back(canonical_ ? canonical_elements : parameter.offset);
    canonical_elements += count;
  }
  elements_ = canonical_ ? canonical_elements : plan_->parameter_elements();
  size_t end = elements_;
  size_t plan_end = plan_->parameter_elements();
  for (const Bucket& bucket :
       MakeBuckets(counts, options.first_bucket_bytes, options.bucket_bytes)) {
    Range range;
    range.parameters = bucket;
    // The bucket of the first parameters extends to the start of the array.
    range.plan_begin = bucket.first == 0 ? 0 : parameters[bucket.first].offset;
    range.plan_end = plan_end;
    plan_end = range.plan_begin;
    range.begin = bucket.first == 0 ? 0 : offsets_[bucket.first];
    range.end = end;
    end = range.begin;
    buckets_.push_back(range);
  }
}

HostBucketReducer::~HostBucketReducer() {
  if (tail_work_ != nullptr) work_.push_back(std::move(tail_work_));
  for (const std::shared_ptr<collectives::Work>& work : work_) {
    if (work->Done()) continue;
    communicator_->Abort(absl::AbortedError("the step has failed"));
    work->Wait().IgnoreError();
  }
}

absl::Status HostBucketReducer::Allocate(const HostBucketReducerOptions& options) {
  const size_t floats = plan_->parameter_elements();
  if (options.accumulates) {
    ASSIGN_OR_RETURN(accumulated_, kernels::DeviceFloats::Create(device_, floats, "gradients"));
  }
  // The tail follows the gradients directly if both are float32, so that they are reduced together;
  // otherwise it is aligned.
  const size_t width = kernels::SizeOf(type_);
  const size_t reduced = scatters_ ? shares_.padded() : elements_;
  const size_t tail_at = (reduced * width + sizeof(float) - 1) / sizeof(float) * sizeof(float);
  ASSIGN_OR_RETURN(memory_, communicator_->Allocate(tail_at + kTailElements * sizeof(float)));
  // An update that a lost rank has begun is completed from all gradients.
  if (!sums_) memory_->KeepForPeers();
  reduced_ = memory_->data();
  if (scatters_) std::memset(reduced_, 0, reduced * width);
  tail_ = reinterpret_cast<float*>(static_cast<std::byte*>(reduced_) + tail_at);
  const bool narrow = type_ != DataType::kFloat32;
  if (narrow) own_packed_ = kernels::MakeAlignedFloats(elements_);
  packed_ = narrow ? own_packed_.get() : static_cast<float*>(reduced_);
  const bool apart = canonical_ || !device_.host_memory();
  if (apart) {
    ASSIGN_OR_RETURN(own_gradients_, kernels::DeviceFloats::Create(device_, floats, "gradients"));
  }
  gradients_ = apart ? own_gradients_.get() : packed_;
  return absl::OkStatus();
}

const float* HostBucketReducer::PeerGradients(uint32_t rank) {
  if (gradients_ != reduced_) return nullptr;
  return static_cast<const float*>(communicator_->PeerData(*memory_, rank));
}

size_t HostBucketReducer::bytes() const {
  return elements_ * kernels::SizeOf(type_) + kTailElements * sizeof(float);
}

void HostBucketReducer::Accumulate(bool first) {
  const Stopwatch stopwatch(kernel_time_);
  const size_t count = plan_->parameter_elements();
  if (first) {
    device_.Copy(accumulated_.get(), gradients_, count * sizeof(float));
  } else {
    device_.kernels().accumulate(DataType::kFloat32, count, gradients_, accumulated_.get());
  }
}

void HostBucketReducer::Begin(const nn::LossResult& loss, bool accumulated) {
  work_.clear();
  ready_ = 0;
  has_accumulated_ = accumulated;
  tail_[0] = static_cast<float>(loss.loss_sum);
  tail_[1] = static_cast<float>(loss.correct);
  if (sums_ && !TailInFirstBucket()) ReduceTail();
}

void HostBucketReducer::ReduceTail() {
  tail_work_ = communicator_->AllReduce(
      tail_, tail_, kTailElements, collectives::DataType::kFloat32, collectives::ReduceOp::kSum);
}

void HostBucketReducer::Ready(size_t offset) {
  for (; ready_ < buckets_.size() && offset <= buckets_[ready_].plan_begin; ++ready_) {
    const Range& range = buckets_[ready_];
    Pack(range);
    if (!sums_ || scatters_) continue;
    const bool with_tail = ready_ == 0 && TailInFirstBucket();
    void* const begin = Reduced(range.begin);
    work_.push_back(communicator_->AllReduce(
        begin, begin, range.end - range.begin + (with_tail ? kTailElements : 0), type_,
        collectives::ReduceOp::kSum));
  }
}

void* HostBucketReducer::Reduced(size_t element) const {
  return static_cast<std::byte*>(reduced_) + element * kernels::SizeOf(type_);
}

void HostBucketReducer::Pack(const Range& range) {
  const Stopwatch stopwatch(kernel_time_);
  if (has_accumulated_) {
    device_.kernels().accumulate(DataType::kFloat32, range.plan_end - range.plan_begin,
                                 accumulated_.get() + range.plan_begin,
                                 gradients_ + range.plan_begin);
  }
  if (canonical_) {
    for (size_t i = range.parameters.first; i < range.parameters.end; ++i) {
      const nn::ParameterInfo& parameter = plan_->parameters()[i];
      // Cannot fail: the sizes are the plan's own.
      (void)plan_->ExportFrom(gradients_, parameter,
                              absl::MakeSpan(packed_ + offsets_[i], CanonicalCount(parameter)));
    }
  } else if (gradients_ != packed_) {
    device_.CopyToHost(packed_ + range.begin, gradients_ + range.begin,
                       (range.end - range.begin) * sizeof(float));
  }
  if (type_ == DataType::kFloat32) return;
  kernels::CpuKernels().cast(DataType::kFloat32, packed_ + range.begin, prescale_, type_,
                             Reduced(range.begin), range.end - range.begin);
}

void HostBucketReducer::Unpack(size_t begin, size_t end) {
  const Stopwatch stopwatch(kernel_time_);
  const size_t count = end - begin;
  if (type_ != DataType::kFloat32) {
    kernels::CpuKernels().cast(type_, Reduced(begin), postscale_, DataType::kFloat32,
                               packed_ + begin, count);
  }
  if (gradients_ != packed_ && !canonical_) {
    device_.CopyToDevice(gradients_ + begin, packed_ + begin, count * sizeof(float));
  }
}

absl::Status HostBucketReducer::Finish() {
  Ready(0);
  if (scatters_) {
    work_.push_back(
        communicator_->ReduceScatter(reduced_, Reduced(communicator_->rank() * shares_.length()),
                                     shares_.length(), type_, collectives::ReduceOp::kSum));
  }
  // Also synchronizes the ranks: once it completes, no rank's gradients change any more.
  if (!sums_) ReduceTail();
  // Returns the first error, which is the cause, but waits for all operations so that none still
  // writes to the memory.
  absl::Status status;
  if (tail_work_ != nullptr) status = tail_work_->Wait();
  for (size_t i = 0; i < work_.size(); ++i) {
    absl::Status done = work_[i]->Wait();
    if (status.ok()) status = std::move(done);
    // Unpacks while later buckets are still in flight.
    if (!status.ok()) continue;
    if (scatters_) {
      const Shares::Share own = shares_.of(communicator_->rank());
      Unpack(own.begin, own.end);
    } else {
      Unpack(buckets_[i].begin, buckets_[i].end);
    }
  }
  RETURN_IF_ERROR(status);
  if (canonical_) RETURN_IF_ERROR(ImportCanonical());
  totals_.loss_sum = tail_[0];
  totals_.correct = double{tail_[1]};
  return absl::OkStatus();
}

absl::Status HostBucketReducer::ImportCanonical() {
  const Stopwatch stopwatch(kernel_time_);
  for (size_t i = 0; i < plan_->parameters().size(); ++i) {
    const nn::ParameterInfo& parameter = plan_->parameters()[i];
    RETURN_IF_ERROR(
        plan_->ImportInto(gradients_, parameter,
                          absl::MakeConstSpan(packed_ + offsets_[i], CanonicalCount(parameter))));
  }
  return absl::OkStatus();
}

}  // namespace muster::train

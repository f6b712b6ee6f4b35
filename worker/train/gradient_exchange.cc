#include "worker/train/gradient_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "common/status.h"
#include "kernels/kernel_table.h"

namespace muster::train {
namespace {

// Behind the gradients: the sum of losses and the count of correct rows. A float holds counts up to
// 2^24 exactly.
constexpr size_t kTailElements = 2;

size_t CanonicalCount(const nn::ParameterInfo& parameter) {
  size_t count = 1;
  for (const int64_t dimension : parameter.shape) count *= static_cast<size_t>(dimension);
  return count;
}

}  // namespace

GradientExchange::GradientExchange(collectives::Communicator* communicator, nn::Plan* plan,
                                   bool canonical)
    : communicator_(communicator), plan_(plan), canonical_(canonical) {}

absl::StatusOr<std::unique_ptr<GradientExchange>> GradientExchange::Create(
    collectives::Communicator* communicator, nn::Plan* plan, const ExchangeOptions& options) {
  std::unique_ptr<GradientExchange> exchange(
      new GradientExchange(communicator, plan, options.canonical));
  exchange->LayOut(options);
  ASSIGN_OR_RETURN(exchange->memory_,
                   communicator->Allocate((exchange->elements_ + kTailElements) * sizeof(float)));
  exchange->exchanged_ = static_cast<float*>(exchange->memory_->data());
  if (options.canonical) exchange->own_gradients_ = MakeAlignedFloats(plan->parameter_elements());
  if (options.accumulates) exchange->accumulated_ = MakeAlignedFloats(plan->parameter_elements());
  exchange->gradients_ = options.canonical ? exchange->own_gradients_.get() : exchange->exchanged_;
  return exchange;
}

void GradientExchange::LayOut(const ExchangeOptions& options) {
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
  size_t end = elements_ + kTailElements;
  size_t plan_end = plan_->parameter_elements();
  for (const Bucket& bucket :
       MakeBuckets(counts, options.first_bucket_bytes, options.bucket_bytes)) {
    Range range;
    range.parameters = bucket;
    // The bucket of the first parameters takes everything down to the start.
    range.plan_begin = bucket.first == 0 ? 0 : parameters[bucket.first].offset;
    range.plan_end = plan_end;
    plan_end = range.plan_begin;
    range.begin = bucket.first == 0 ? 0 : offsets_[bucket.first];
    range.end = end;
    end = range.begin;
    buckets_.push_back(range);
  }
}

size_t GradientExchange::bytes() const { return (elements_ + kTailElements) * sizeof(float); }

void GradientExchange::Accumulate(const nn::LossResult& loss) {
  const size_t count = plan_->parameter_elements();
  if (has_accumulated_) {
    kernels::CpuKernels().accumulate(count, gradients_, accumulated_.get());
  } else {
    std::copy_n(gradients_, count, accumulated_.get());
  }
  has_accumulated_ = true;
  accumulated_loss_.loss_sum += loss.loss_sum;
  accumulated_loss_.correct += loss.correct;
}

void GradientExchange::Begin(const nn::LossResult& loss) {
  work_.clear();
  exchanged_[elements_] = static_cast<float>(accumulated_loss_.loss_sum + loss.loss_sum);
  exchanged_[elements_ + 1] = static_cast<float>(accumulated_loss_.correct + loss.correct);
  accumulated_loss_ = {};
}

void GradientExchange::Ready(size_t offset) {
  while (work_.size() < buckets_.size() && offset <= buckets_[work_.size()].plan_begin) {
    Issue(buckets_[work_.size()]);
  }
}

void GradientExchange::Issue(const Range& range) {
  if (has_accumulated_) {
    kernels::CpuKernels().accumulate(range.plan_end - range.plan_begin,
                                     accumulated_.get() + range.plan_begin,
                                     gradients_ + range.plan_begin);
  }
  if (canonical_) {
    for (size_t i = range.parameters.first; i < range.parameters.end; ++i) {
      const nn::ParameterInfo& parameter = plan_->parameters()[i];
      // The sizes are the plan's own, so this cannot fail.
      (void)plan_->ExportFrom(gradients_, parameter,
                              absl::MakeSpan(exchanged_ + offsets_[i], CanonicalCount(parameter)));
    }
  }
  float* begin = exchanged_ + range.begin;
  work_.push_back(communicator_->AllReduce(begin, begin, range.end - range.begin,
                                           collectives::DataType::kFloat32,
                                           collectives::ReduceOp::kSum));
}

absl::Status GradientExchange::Finish() {
  Ready(0);
  // The first error is the cause; the others are waited for so that nothing writes to the memory
  // any more.
  absl::Status status;
  for (const auto& work : work_) {
    absl::Status done = work->Wait();
    if (status.ok()) status = std::move(done);
  }
  has_accumulated_ = false;
  RETURN_IF_ERROR(status);
  if (canonical_) {
    for (size_t i = 0; i < plan_->parameters().size(); ++i) {
      const nn::ParameterInfo& parameter = plan_->parameters()[i];
      RETURN_IF_ERROR(plan_->ImportInto(
          gradients_, parameter,
          absl::MakeConstSpan(exchanged_ + offsets_[i], CanonicalCount(parameter))));
    }
  }
  totals_.loss_sum = exchanged_[elements_];
  totals_.correct = static_cast<uint64_t>(exchanged_[elements_ + 1]);
  return absl::OkStatus();
}

}  // namespace muster::train

#include "trainer/strategy/device_bucket_reducer.h"

#include <utility>

#include "common/status.h"
#include "trainer/strategy/buckets.h"

namespace muster::train {

using kernels::DataType;

DeviceBucketReducer::DeviceBucketReducer(collectives::Communicator* communicator, nn::Plan* plan,
                                         const DeviceBucketReducerOptions& options)
    : communicator_(communicator),
      device_(plan->device()),
      scatters_(options.scatters && communicator != nullptr),
      type_(options.type),
      elements_(plan->parameter_elements()),
      shares_(elements_, communicator == nullptr ? 1 : communicator->size()),
      postscale_(RankScale(type_, communicator == nullptr ? 1 : communicator->size())),
      prescale_(1 / postscale_) {
  std::vector<size_t> counts;
  for (const nn::ParameterInfo& parameter : plan->parameters()) counts.push_back(parameter.count);
  size_t end = elements_;
  for (const Bucket& bucket :
       MakeBuckets(counts, options.first_bucket_bytes, options.bucket_bytes)) {
    // The bucket of the first parameters extends to the start of the array.
    const size_t begin = bucket.first == 0 ? 0 : plan->parameters()[bucket.first].offset;
    buckets_.push_back({begin, end});
    end = begin;
  }
}

absl::StatusOr<std::unique_ptr<DeviceBucketReducer>> DeviceBucketReducer::Create(
    collectives::Communicator* communicator, nn::Plan* plan,
    const DeviceBucketReducerOptions& options) {
  std::unique_ptr<DeviceBucketReducer> reducer(
      new DeviceBucketReducer(communicator, plan, options));
  RETURN_IF_ERROR(reducer->Allocate(options));
  return reducer;
}

absl::Status DeviceBucketReducer::Allocate(const DeviceBucketReducerOptions& options) {
  const size_t bytes = (scatters_ ? shares_.padded() : elements_) * kernels::SizeOf(type_);
  if (communicator_ != nullptr) {
    ASSIGN_OR_RETURN(registered_, communicator_->Allocate(bytes));
    reduced_ = registered_->data();
    // Padding between parameters stays zero.
    device_.Zero(reduced_, bytes);
  } else {
    ASSIGN_OR_RETURN(own_reduced_, kernels::DeviceFloats::Create(device_, elements_, "gradients"));
    reduced_ = own_reduced_.get();
  }
  if (type_ == DataType::kFloat32) {
    gradients_ = static_cast<float*>(reduced_);
  } else {
    ASSIGN_OR_RETURN(own_gradients_,
                     kernels::DeviceFloats::Create(device_, elements_, "gradients"));
    gradients_ = own_gradients_.get();
  }
  if (options.accumulates) {
    ASSIGN_OR_RETURN(accumulated_, kernels::DeviceFloats::Create(device_, elements_, "gradients"));
  }
  return absl::OkStatus();
}

void DeviceBucketReducer::Accumulate(bool first) {
  if (first) {
    device_.Copy(accumulated_.get(), gradients_, elements_ * sizeof(float));
  } else {
    device_.kernels().accumulate(DataType::kFloat32, elements_, gradients_, accumulated_.get());
  }
}

void DeviceBucketReducer::Begin() {
  ready_ = 0;
  work_.clear();
}

void DeviceBucketReducer::ReduceLosses(nn::LossResult* losses, size_t count) {
  static_assert(sizeof(nn::LossResult) == 2 * sizeof(double));
  if (communicator_ == nullptr) return;
  work_.push_back(communicator_->AllReduce(
      losses, losses, 2 * count, collectives::DataType::kFloat64, collectives::ReduceOp::kSum));
}

void DeviceBucketReducer::Ready(size_t offset, bool accumulated) {
  for (; ready_ < buckets_.size() && offset <= buckets_[ready_].begin; ++ready_) {
    const auto [begin, end] = buckets_[ready_];
    if (accumulated) {
      device_.kernels().accumulate(DataType::kFloat32, end - begin, accumulated_.get() + begin,
                                   gradients_ + begin);
    }
    if (type_ != DataType::kFloat32) {
      device_.kernels().cast(DataType::kFloat32, gradients_ + begin, prescale_, type_,
                             Reduced(begin), end - begin);
    }
    if (communicator_ == nullptr || scatters_) continue;
    work_.push_back(communicator_->AllReduce(Reduced(begin), Reduced(begin), end - begin, type_,
                                             collectives::ReduceOp::kSum));
  }
}

void* DeviceBucketReducer::Reduced(size_t element) const {
  return static_cast<std::byte*>(reduced_) + element * kernels::SizeOf(type_);
}

absl::Status DeviceBucketReducer::Finish() {
  Shares::Share summed{0, elements_};
  if (scatters_) {
    summed = shares_.of(communicator_->rank());
    work_.push_back(
        communicator_->ReduceScatter(reduced_, Reduced(communicator_->rank() * shares_.length()),
                                     shares_.length(), type_, collectives::ReduceOp::kSum));
  }
  for (const std::shared_ptr<collectives::Work>& work : work_) RETURN_IF_ERROR(work->Join());
  if (type_ != DataType::kFloat32) {
    device_.kernels().cast(type_, Reduced(summed.begin), postscale_, DataType::kFloat32,
                           gradients_ + summed.begin, summed.count());
  }
  return absl::OkStatus();
}

}  // namespace muster::train

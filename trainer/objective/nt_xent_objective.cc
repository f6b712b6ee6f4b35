#include "trainer/objective/nt_xent_objective.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "trainer/strategy/stopwatch.h"

namespace muster::train {
namespace {

// Limits up to which a float represents counts exactly and sizes in bytes cannot overflow.
constexpr uint64_t kMaxSamples = 1 << 24;
constexpr int64_t kMaxColumns = 1 << 20;

absl::Status Check(const NtXentOptions& options) {
  // Kernels use the temperature as a float, also as a divisor.
  const auto temperature = static_cast<float>(options.temperature);
  if (!(temperature > 0) || !std::isfinite(temperature) || !std::isfinite(1 / temperature)) {
    return absl::InvalidArgumentError(
        absl::StrCat("nt_xent: temperature must be positive, not ", options.temperature));
  }
  if (options.width < 1 || options.width > kMaxColumns) {
    return absl::InvalidArgumentError(absl::StrCat("nt_xent: embedding width must be from 1 to ",
                                                   kMaxColumns, ", not ", options.width));
  }
  return absl::OkStatus();
}

}  // namespace

NtXentObjective::NtXentObjective(const NtXentOptions& options)
    : device_(*options.device),
      kernels_(device_.kernels()),
      group_(options.group),
      width_(static_cast<size_t>(options.width)),
      samples_of_(ranks()) {
  shape_.width = options.width;
  shape_.temperature = static_cast<float>(options.temperature);
}

absl::StatusOr<std::unique_ptr<NtXentObjective>> NtXentObjective::Create(
    const NtXentOptions& options) {
  RETURN_IF_ERROR(Check(options));
  std::unique_ptr<NtXentObjective> objective(new NtXentObjective(options));
  // Blocks are as large as that of the rank with the most samples.
  int64_t max_samples = options.max_samples;
  if (options.group != nullptr) {
    RETURN_IF_ERROR(options.group
                        ->AllReduce(&max_samples, &max_samples, 1, collectives::DataType::kInt64,
                                    collectives::ReduceOp::kMax)
                        ->Wait());
  }
  objective->capacity_ = (static_cast<size_t>(max_samples) + 1) / 2 * 2;
  if (objective->capacity_ * objective->ranks() > kMaxSamples) {
    return absl::InvalidArgumentError(
        absl::StrCat("nt_xent: too many samples: ", objective->ranks(), " ranks with ", max_samples,
                     " samples each; at most ", kMaxSamples));
  }
  RETURN_IF_ERROR(objective->Allocate());
  return objective;
}

absl::Status NtXentObjective::Allocate() {
  kernels::NtXentShape largest = shape_;
  largest.anchors = static_cast<int64_t>(capacity_);
  largest.samples = static_cast<int64_t>(capacity_ * ranks());
  RETURN_IF_ERROR(Annotate(AllocateArrays(largest),
                           absl::StrCat("nt_xent: cannot allocate memory for ", capacity_, " x ",
                                        largest.samples, " similarities")));
  ASSIGN_OR_RETURN(result_, device_.Allocate(sizeof(nn::LossResult), "the loss"));
  if (ranks() == 1) return absl::OkStatus();
  const size_t elements = (1 + ranks()) * (block_elements() + capacity_);
  ASSIGN_OR_RETURN(shared_memory_, group_->Allocate(elements * sizeof(float)));
  block_ = static_cast<float*>(shared_memory_->data());
  blocks_ = block_ + block_elements();
  log_sums_ = blocks_ + ranks() * block_elements();
  all_log_sums_ = log_sums_ + capacity_;
  std::fill_n(block_, elements, 0.0f);
  return absl::OkStatus();
}

absl::Status NtXentObjective::AllocateArrays(const kernels::NtXentShape& largest) {
  const auto allocate = [this](size_t count) {
    return kernels::DeviceFloats::Create(device_, count, "similarities of samples");
  };
  if (ranks() > 1) {
    ASSIGN_OR_RETURN(own_units_, allocate(capacity_ * width_));
    ASSIGN_OR_RETURN(own_log_sums_, allocate(capacity_));
  }
  ASSIGN_OR_RETURN(inverse_norms_, allocate(capacity_));
  ASSIGN_OR_RETURN(units_, allocate(capacity_ * ranks() * width_));
  ASSIGN_OR_RETURN(logits_, allocate(largest.logits_elements()));
  ASSIGN_OR_RETURN(group_log_sums_, allocate(largest.row_stride()));
  ASSIGN_OR_RETURN(loss_, device_.MakeNtXentLoss(largest));
  return absl::OkStatus();
}

absl::Status NtXentObjective::Queue(nn::Execution& model, uint32_t samples, uint64_t global_samples,
                                    bool training, nn::LossResult* result) {
  const absl::Span<const float> embeddings = model.logits(samples);
  if (embeddings.size() != samples * width_) {
    return absl::InvalidArgumentError(absl::StrCat("nt_xent: expected ", samples, " embeddings of ",
                                                   width_, " elements, got ", embeddings.size(),
                                                   " elements"));
  }
  return Run(embeddings.data(), samples, GradientScale(global_samples),
             training ? model.output_gradient() : nullptr, result);
}

absl::StatusOr<nn::LossResult> NtXentObjective::Compute(const float* embeddings, uint32_t samples,
                                                        double scale, float* gradients) {
  nn::LossResult loss;
  RETURN_IF_ERROR(Run(embeddings, samples, scale, gradients, result_.as<nn::LossResult>()));
  device_.CopyToHost(&loss, result_.data(), sizeof(loss));
  return loss;
}

absl::Status NtXentObjective::Run(const float* embeddings, uint32_t samples, double scale,
                                  float* gradients, nn::LossResult* result) {
  if (samples % 2 != 0 || samples > capacity_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "nt_xent: the number of samples must be even and at most ", capacity_, ", not ", samples));
  }
  const bool alone = ranks() == 1;
  float* const own_units = alone ? units_.get() : own_units_.get();
  float* const own_log_sums = alone ? group_log_sums_.get() : own_log_sums_.get();
  {
    const Stopwatch stopwatch(kernel_time_);
    kernels_.l2_normalize_forward(samples, shape_.width, embeddings, own_units,
                                  inverse_norms_.get());
  }
  if (alone) {
    shape_.first = 0;
    shape_.anchors = shape_.samples = samples;
  } else {
    RETURN_IF_ERROR(GatherUnits(samples));
  }
  {
    const Stopwatch stopwatch(kernel_time_);
    loss_->Forward(shape_, units_.get(), logits_.get(), own_log_sums, result);
  }
  if (gradients == nullptr) return absl::OkStatus();
  if (!alone) RETURN_IF_ERROR(GatherLogSums(samples));
  const Stopwatch stopwatch(kernel_time_);
  loss_->Backward(shape_, scale, loss_scale(), units_.get(), group_log_sums_.get(), logits_.get(),
                  gradients);
  kernels_.l2_normalize_backward(samples, shape_.width, units_.get() + shape_.first * shape_.width,
                                 inverse_norms_.get(), gradients, gradients);
  return absl::OkStatus();
}

absl::Status NtXentObjective::GatherUnits(uint32_t samples) {
  device_.CopyToHost(block_, own_units_.get(), samples * width_ * sizeof(float));
  block_[capacity_ * width_] = static_cast<float>(samples);
  RETURN_IF_ERROR(AllGather(block_, blocks_, block_elements()));
  return Compact();
}

absl::Status NtXentObjective::AllGather(const float* send, float* receive, size_t count) {
  return group_->AllGather(send, receive, count, collectives::DataType::kFloat32)->Wait();
}

absl::Status NtXentObjective::Compact() {
  size_t samples = 0;
  for (uint32_t from = 0; from < ranks(); ++from) {
    const float* block = blocks_ + from * block_elements();
    const float count = block[capacity_ * width_];
    if (!(count >= 0 && count <= static_cast<float>(capacity_))) {
      return absl::DataLossError(absl::StrCat(
          "nt_xent: rank ", from, " sent a block with an invalid sample count ", count));
    }
    samples_of_[from] = static_cast<size_t>(count);
    if (from == rank()) shape_.first = static_cast<int64_t>(samples);
    device_.CopyToDevice(units_.get() + samples * width_, block,
                         samples_of_[from] * width_ * sizeof(float));
    samples += samples_of_[from];
  }
  shape_.anchors = static_cast<int64_t>(samples_of_[rank()]);
  shape_.samples = static_cast<int64_t>(samples);
  return absl::OkStatus();
}

absl::Status NtXentObjective::GatherLogSums(uint32_t samples) {
  device_.CopyToHost(log_sums_, own_log_sums_.get(), samples * sizeof(float));
  RETURN_IF_ERROR(AllGather(log_sums_, all_log_sums_, capacity_));
  float* to = group_log_sums_.get();
  for (uint32_t from = 0; from < ranks(); ++from) {
    device_.CopyToDevice(to, all_log_sums_ + from * capacity_, samples_of_[from] * sizeof(float));
    to += samples_of_[from];
  }
  return absl::OkStatus();
}

}  // namespace muster::train

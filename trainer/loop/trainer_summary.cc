// The summary of a training.
#include <sys/resource.h>

#include "common/status.h"
#include "trainer/loop/trainer.h"

namespace muster::train {
namespace {

uint64_t PeakMemoryBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace

absl::StatusOr<v1::TrainSummary> Trainer::Summarize() {
  auto peak_memory_bytes = static_cast<double>(PeakMemoryBytes());
  RETURN_IF_ERROR(world_
                      .AllReduce(&peak_memory_bytes, &peak_memory_bytes, 1,
                                 collectives::DataType::kFloat64, collectives::ReduceOp::kMax)
                      ->Wait());
  v1::TrainSummary summary = record_;
  summary.set_steps(step_);
  summary.set_epochs(Epochs());
  const StepTimes median = statistics_.TypicalMedian();
  if (median.step > absl::ZeroDuration()) {
    summary.set_images_per_second(spec_.global_batch() / absl::ToDoubleSeconds(median.step));
  }
  summary.set_median_step_seconds(absl::ToDoubleSeconds(median.step));
  summary.set_data_wait_seconds(absl::ToDoubleSeconds(median.data_wait));
  summary.set_exposed_communication_seconds(absl::ToDoubleSeconds(median.exposed_communication));
  if (strategy_->device().host_memory()) {
    summary.set_kernel_seconds(absl::ToDoubleSeconds(median.kernels));
  } else {
    summary.set_queue_seconds(absl::ToDoubleSeconds(median.kernels));
  }
  summary.set_strategy(spec_.strategy().name().empty() ? "ddp" : spec_.strategy().name());
  summary.set_precision(PrecisionText(strategy_->precision()));
  summary.set_device(kernels::NameFor(strategy_->device(), strategy_->precision().plan.compute));
  if (const LossScaleState* const scale = strategy_->loss_scale(); scale != nullptr) {
    summary.set_loss_scale(scale->scale);
    summary.set_skipped_steps(scale->skipped_steps);
  }
  summary.set_test_accuracy(evaluation_.accuracy);
  summary.set_test_loss(evaluation_.loss);
  summary.set_peak_memory_bytes(static_cast<uint64_t>(peak_memory_bytes));
  RETURN_IF_ERROR(strategy_->Summarize(summary));
  summary.set_resumed_from_step(options_.resume.has_value() ? first_step_ : 0);
  summary.set_already_complete(record_.first_loss_step() > step_);
  if (newest_.has_value()) {
    summary.set_checkpoint(options_.checkpoints->FolderPath(newest_->name));
  }
  if (progress_.progress().has_first_step_time()) {
    *summary.mutable_first_step_time() = progress_.progress().first_step_time();
  }
  return summary;
}

}  // namespace muster::train

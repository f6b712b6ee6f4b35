// dp: one process drives all devices of a node, each with a replica of the model, as in PyTorch's
// DataParallel. Each device computes a share of the batch; the loss, the gradient sums and the
// update are computed on the first. The step is ddp's (ddp/step.cc) with Replicas (replicas.h)
// instead of a single plan.
//
// hybrid runs dp on each of several nodes and all-reduces the gradient sums between the ranks, as
// ddp does.
#ifndef MUSTER_TRAINER_STRATEGY_DP_DP_H_
#define MUSTER_TRAINER_STRATEGY_DP_DP_H_

#include <array>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/strategy/ddp/step.h"
#include "trainer/strategy/dp/replicas.h"

namespace muster::train {

// Also adds the step's phases and each device's memory and compute time to the summary.
class DataParallel final : public DataParallelStrategy {
 public:
  // Collective.
  static absl::StatusOr<std::unique_ptr<Strategy>> Create(const StrategyContext& context,
                                                          std::unique_ptr<Replicas> replicas,
                                                          std::unique_ptr<Optimizer> optimizer);

  std::vector<kernels::Device*> devices() const override { return devices_->devices(); }
  absl::Status Step(const data::Batch& batch, uint64_t step, StepTimes& times) override;

 private:
  // Phase names, in the order of the summary.
  static constexpr std::array<const char*, 10> kPhases = {
      "scatter",          "replicate", "forward", "gather",   "loss",
      "scatter_gradient", "backward",  "reduce",  "exchange", "update"};
  using PhaseTimes = std::array<absl::Duration, kPhases.size()>;

  DataParallel(const StrategyContext& context, std::unique_ptr<Replicas> replicas,
               std::unique_ptr<Optimizer> optimizer, ModelState state);

  void DescribeRank(v1::TrainSummary& own) const override;
  void MergeRanks(const std::vector<v1::TrainSummary>& ranks, v1::TrainSummary& summary) override;
  // Total times since the replicas were compiled.
  PhaseTimes TimesSoFar() const;
  std::vector<absl::Duration> BusySoFar() const;

  const std::unique_ptr<Replicas> devices_;
  DurationStatistics phase_statistics_{kPhases.size()};
  DurationStatistics busy_statistics_;  // by device
};

// Sets up dp or hybrid: compiles the replicas for setup.devices. Returns the errors of
// Replicas::Compile and Optimizer::Create.
absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpDp(const ModelSetup& setup);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_DP_DP_H_

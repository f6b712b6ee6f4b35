// Captures the phases of a step that issue the same device calls in every step as CUDA graphs, and
// launches the graphs in later steps. If a rank cannot capture a phase, all ranks make the calls
// directly from then on.
#ifndef MUSTER_TRAINER_STRATEGY_STEP_GRAPHS_H_
#define MUSTER_TRAINER_STRATEGY_STEP_GRAPHS_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "kernels/device.h"

namespace muster::train {

// Used by one training thread.
class StepGraphs {
 public:
  // Identifies a phase, including everything in it that may vary between steps.
  using Key = std::array<uint64_t, 3>;

  // If not `enabled`, which is the same on all ranks, Run always makes the calls directly. The
  // device and `world`, the communicator of all ranks, outlive the graphs.
  StepGraphs(kernels::Device& device, collectives::Communicator& world, bool enabled)
      : device_(device), world_(world), enabled_(enabled) {}

  bool enabled() const { return enabled_; }

  // On the first call with a key, runs `calls` directly, so that kernels can select algorithms and
  // allocate memory. On the second call, captures and launches them; later calls only launch the
  // graph. `calls` must therefore have no effects other than device calls. Collective when it
  // captures, which is in the same call on all ranks. Returns the errors of `calls`, of the device
  // and of `world`.
  absl::Status Run(const Key& key, absl::FunctionRef<absl::Status()> calls);

 private:
  absl::StatusOr<std::unique_ptr<kernels::DeviceGraph>> Capture(
      absl::FunctionRef<absl::Status()> calls);
  // Collective. Whether all ranks have captured.
  absl::StatusOr<bool> AllCaptured(bool own);

  kernels::Device& device_;
  collectives::Communicator& world_;
  bool enabled_;
  std::map<Key, std::unique_ptr<kernels::DeviceGraph>> graphs_;  // null: run once, not captured yet
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_STEP_GRAPHS_H_

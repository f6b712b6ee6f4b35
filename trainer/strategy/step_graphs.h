// Captures the phases of a step that issue the same device calls in every step as CUDA graphs, and
// launches the graphs in later steps.
#ifndef MUSTER_TRAINER_STRATEGY_STEP_GRAPHS_H_
#define MUSTER_TRAINER_STRATEGY_STEP_GRAPHS_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/device.h"

namespace muster::train {

// Used by one training thread.
class StepGraphs {
 public:
  // Identifies a phase, including everything in it that may vary between steps.
  using Key = std::array<uint64_t, 3>;

  // If not `enabled`, Run always makes the calls directly. The device outlives the graphs.
  StepGraphs(kernels::Device& device, bool enabled) : device_(device), enabled_(enabled) {}

  bool enabled() const { return enabled_; }

  // On the first call with a key, runs `calls` directly, so that kernels can select algorithms and
  // allocate memory. On the second call, captures and launches them; later calls only launch the
  // graph. `calls` must therefore have no effects other than device calls. Returns its errors and
  // the device's.
  absl::Status Run(const Key& key, absl::FunctionRef<absl::Status()> calls);

 private:
  kernels::Device& device_;
  const bool enabled_;
  std::map<Key, std::unique_ptr<kernels::DeviceGraph>> graphs_;  // null: run once, not captured yet
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_STEP_GRAPHS_H_

// The phases of a step that call a device alike in every step: where the device captures CUDA
// graphs, they are captured once and launched from then on.
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

// For one training thread.
class StepGraphs {
 public:
  // Identifies a phase, with all of it that may differ from step to step.
  using Key = std::array<uint64_t, 3>;

  // Without `enabled` every call is made each time. The device outlives the graphs.
  StepGraphs(kernels::Device& device, bool enabled) : device_(device), enabled_(enabled) {}

  bool enabled() const { return enabled_; }

  // The first time with a key `calls` just runs: kernels choose their plans and take memory then.
  // The second time what it calls is captured and launched, and later it is only launched: `calls`
  // must do nothing else that counts. Its errors; the device's.
  absl::Status Run(const Key& key, absl::FunctionRef<absl::Status()> calls);

 private:
  kernels::Device& device_;
  const bool enabled_;
  std::map<Key, std::unique_ptr<kernels::DeviceGraph>> graphs_;  // null: was called once
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_STEP_GRAPHS_H_

// The parts of a step that call a device alike in every step: where the device records calls, they
// are made once and launched from then on.
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
  // What tells the parts apart, and all of a part that may differ from step to step.
  using Key = std::array<uint64_t, 3>;

  // Without `records` every call is made each time. The device outlives the graphs.
  StepGraphs(kernels::Device& device, bool records) : device_(device), records_(records) {}

  bool records() const { return records_; }

  // The first time with a key `calls` just runs: kernels choose their plans and take memory then.
  // The second time what it calls is recorded and launched, and later it is only launched: `calls`
  // must do nothing else that counts. Its errors; the device's.
  absl::Status Run(const Key& key, absl::FunctionRef<absl::Status()> calls);

 private:
  kernels::Device& device_;
  const bool records_;
  std::map<Key, std::unique_ptr<kernels::DeviceGraph>> graphs_;  // null: was called once
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_STEP_GRAPHS_H_

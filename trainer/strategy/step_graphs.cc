#include "trainer/strategy/step_graphs.h"

#include <utility>

#include "absl/status/statusor.h"
#include "common/status.h"

namespace muster::train {

absl::Status StepGraphs::Run(const Key& key, absl::FunctionRef<absl::Status()> calls) {
  if (!enabled_) return calls();
  const auto [place, is_new] = graphs_.try_emplace(key);
  if (is_new) return calls();
  if (place->second == nullptr) {
    RETURN_IF_ERROR(device_.StartCapture());
    const absl::Status called = calls();
    absl::StatusOr<std::unique_ptr<kernels::DeviceGraph>> graph = device_.FinishCapture();
    RETURN_IF_ERROR(called);
    if (!graph.ok()) return graph.status();
    place->second = *std::move(graph);
  }
  place->second->Launch();
  return absl::OkStatus();
}

}  // namespace muster::train

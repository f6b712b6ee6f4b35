#include "trainer/strategy/step_graphs.h"

#include <utility>

#include "common/status.h"
#include "glog/logging.h"

namespace muster::train {

absl::Status StepGraphs::Run(const Key& key, absl::FunctionRef<absl::Status()> calls) {
  if (!enabled_) return calls();
  const auto [place, is_new] = graphs_.try_emplace(key);
  if (is_new) return calls();
  if (place->second == nullptr) {
    absl::StatusOr<std::unique_ptr<kernels::DeviceGraph>> graph = Capture(calls);
    // A device that has failed cannot run the calls without a graph either.
    RETURN_IF_ERROR(device_.error());
    ASSIGN_OR_RETURN(const bool all_captured, AllCaptured(graph.ok()));
    if (!all_captured) {
      LOG(WARNING) << device_.name() << ": training without CUDA graphs, which is slower: "
                   << (graph.ok() ? "another rank cannot capture its step"
                                  : graph.status().message());
      enabled_ = false;
      graphs_.clear();
      return calls();
    }
    place->second = *std::move(graph);
  }
  place->second->Launch();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<kernels::DeviceGraph>> StepGraphs::Capture(
    absl::FunctionRef<absl::Status()> calls) {
  RETURN_IF_ERROR(device_.StartCapture());
  const absl::Status called = calls();
  absl::StatusOr<std::unique_ptr<kernels::DeviceGraph>> graph = device_.FinishCapture();
  RETURN_IF_ERROR(called);
  return graph;
}

absl::StatusOr<bool> StepGraphs::AllCaptured(bool own) {
  if (world_.size() == 1) return own;
  int32_t captured = own ? 1 : 0;
  RETURN_IF_ERROR(world_
                      .AllReduce(&captured, &captured, 1, collectives::DataType::kInt32,
                                 collectives::ReduceOp::kMin)
                      ->Wait());
  return captured != 0;
}

}  // namespace muster::train

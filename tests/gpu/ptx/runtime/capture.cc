#include "tests/gpu/ptx/runtime/capture.h"

#include <algorithm>
#include <utility>

namespace muster::ptx {

void Capture::Add(std::shared_ptr<Work> work, Stream& stream) {
  graph_->nodes.push_back({std::move(work), std::move(stream.frontier), stream.priority});
  stream.frontier = {graph_->nodes.size() - 1};
}

bool Capture::IsJoined(const std::vector<size_t>& frontier) const {
  std::vector<bool> reached(graph_->nodes.size());
  for (const size_t node : frontier) reached[node] = true;
  // Dependencies are earlier nodes.
  for (size_t node = reached.size(); node-- > 0;) {
    if (!reached[node]) return false;
    for (const size_t earlier : graph_->nodes[node].after) reached[earlier] = true;
  }
  return true;
}

std::shared_ptr<const Graph> Capture::End() {
  state_ = CaptureState::kEnded;
  return std::move(graph_);
}

void JoinFrontier(const std::vector<size_t>& more, std::vector<size_t>& frontier) {
  for (const size_t node : more) {
    if (std::find(frontier.begin(), frontier.end(), node) == frontier.end()) {
      frontier.push_back(node);
    }
  }
}

}  // namespace muster::ptx

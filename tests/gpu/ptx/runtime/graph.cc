#include "tests/gpu/ptx/runtime/graph.h"

#include <algorithm>
#include <utility>

#include "common/status.h"

namespace muster::ptx {
namespace {

class GraphWork final : public Work {
 public:
  GraphWork(std::shared_ptr<const Graph> graph, std::function<size_t(size_t)> choose)
      : graph_(std::move(graph)), choose_(std::move(choose)), done_(graph_->nodes.size()) {}

  absl::StatusOr<Progress> Step() override {
    std::vector<size_t> ready = Ready();
    if (ready.empty()) return Progress::kFinished;
    std::swap(ready.front(), ready[choose_(ready.size())]);
    bool advanced = false;
    for (const size_t node : ready) {
      ASSIGN_OR_RETURN(const Progress progress, graph_->nodes[node].work->Step());
      done_[node] = progress == Progress::kFinished;
      advanced = progress != Progress::kBlocked;
      if (advanced) break;
    }
    if (!advanced) return Progress::kBlocked;
    return Ready().empty() ? Progress::kFinished : Progress::kAdvanced;
  }

 private:
  std::vector<size_t> Ready() const {
    std::vector<size_t> ready;
    for (size_t node = 0; node < done_.size(); ++node) {
      const auto& after = graph_->nodes[node].after;
      const bool may_run =
          std::all_of(after.begin(), after.end(), [&](size_t earlier) { return done_[earlier]; });
      if (!done_[node] && may_run) ready.push_back(node);
    }
    return ready;
  }

  const std::shared_ptr<const Graph> graph_;
  const std::function<size_t(size_t)> choose_;
  std::vector<bool> done_;
};

}  // namespace

std::shared_ptr<Work> MakeGraphWork(std::shared_ptr<const Graph> graph,
                                    std::function<size_t(size_t)> choose) {
  return std::make_shared<GraphWork>(std::move(graph), std::move(choose));
}

}  // namespace muster::ptx

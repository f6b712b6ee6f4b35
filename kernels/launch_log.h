// Records the kernels, copies and memsets of a device without a GPU, to count the nodes of a step's
// CUDA graph and the bytes that they move.
#ifndef MUSTER_KERNELS_LAUNCH_LOG_H_
#define MUSTER_KERNELS_LAUNCH_LOG_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace muster::kernels {

// A kernel, a copy or a memset: one node of a CUDA graph.
struct Launch {
  double bytes = 0;  // read and written; an array that a kernel reads twice counts once
  double flops = 0;  // operations of products with weights; two per multiplication
};

// Records the launches of the calling thread while it exists. Logs nest: only the innermost
// records.
class LaunchLog {
 public:
  LaunchLog() : outer_(std::exchange(active_, this)) {}
  ~LaunchLog() { active_ = outer_; }
  LaunchLog(const LaunchLog&) = delete;
  LaunchLog& operator=(const LaunchLog&) = delete;

  const std::vector<Launch>& launches() const { return launches_; }

  // States the work of the operation that the thread launches next. If that takes several launches,
  // the first one counts as doing all of it.
  static void State(const Launch& work) {
    if (active_ != nullptr) active_->stated_ = work;
  }
  // Records one launch.
  static void Record() {
    if (active_ != nullptr) active_->launches_.push_back(std::exchange(active_->stated_, {}));
  }

 private:
  static inline thread_local LaunchLog* active_ = nullptr;
  LaunchLog* const outer_;
  Launch stated_;
  std::vector<Launch> launches_;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_LAUNCH_LOG_H_

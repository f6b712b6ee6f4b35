// Records the kernels, copies and memsets of a device without a GPU, to count the nodes of a step's
// CUDA graph and the bytes that they move.
#ifndef MUSTER_KERNELS_LAUNCH_LOG_H_
#define MUSTER_KERNELS_LAUNCH_LOG_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::kernels {

// A kernel, a copy or a memset: one node of a CUDA graph.
struct Launch {
  double bytes = 0;  // read and written; an array that a kernel reads twice counts once
  double flops = 0;  // operations of products with weights; two per multiplication
  // Name as a profiler of the GPU prints it, without namespaces and parameters:
  // "BlockKernel<PixelSumsBody<...>>", "memcpy", "memset", or a library's call, "cudnn forward".
  std::string kernel;
};

// Text of a type, with namespaces.
template <typename T>
constexpr std::string_view TypeText() {
  const std::string_view text = __PRETTY_FUNCTION__;
  const size_t begin = text.find("T = ") + 4;
  return text.substr(begin, text.find_first_of(";]", begin) - begin);
}

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
  // Records one launch, of a kernel that is a template of `body` if that is not empty.
  static void Record(const char* kernel, std::string_view body = {}) {
    if (active_ == nullptr) return;
    Launch launch = std::exchange(active_->stated_, {});
    launch.kernel = kernel;
    if (!body.empty()) launch.kernel += "<" + WithoutNamespaces(body) + ">";
    active_->launches_.push_back(std::move(launch));
  }

 private:
  static std::string WithoutNamespaces(std::string_view type) {
    std::string text(type);
    for (const std::string_view name :
         {"muster::kernels::", "(anonymous namespace)::", "cuda_counted::", "cuda_on_host::"}) {
      for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at)) {
        text.erase(at, name.size());
      }
    }
    return text;
  }

  static inline thread_local LaunchLog* active_ = nullptr;
  LaunchLog* const outer_;
  Launch stated_;
  std::vector<Launch> launches_;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_LAUNCH_LOG_H_

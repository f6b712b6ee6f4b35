// What autotuning chose, kept on disk: the next process need not measure again.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_PLAN_CACHE_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_PLAN_CACHE_H_

#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace muster::kernels::cuda {

// $XDG_CACHE_HOME/muster/cuda, or that of ~/.cache; empty where neither is known.
std::string DefaultPlanFolder();

// One file per machine, of a line per operation with a checksum: a line that does not agree with
// its own is passed over, and so is a file that cannot be read or written. Processes may share the
// folder: whoever writes takes in what the file holds by then, and replaces it at once. Of two that
// do so in the same moment one's last line may be lost, to be measured again. For one thread.
class PlanCache {
 public:
  // machine: all that plans depend on. An empty folder keeps them in memory alone.
  PlanCache(const std::string& folder, absl::string_view machine);

  // Neither text may have tabs or line ends.
  std::optional<std::string> Find(const std::string& operation) const;
  void Put(const std::string& operation, const std::string& plan);

  const std::string& path() const { return path_; }  // empty: none

 private:
  void Read();
  void Write() const;

  std::string path_;
  std::map<std::string, std::string> plans_;
};

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_PLAN_CACHE_H_

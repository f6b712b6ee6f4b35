// A cache of autotuning results on disk, so that later processes need not measure again.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_PLAN_CACHE_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_PLAN_CACHE_H_

#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace muster::kernels::cuda {

// $XDG_CACHE_HOME/muster/cuda or $HOME/.cache/muster/cuda; empty if neither variable is an absolute
// path.
std::string DefaultPlanFolder();

// Maps operations to plans. Stored in one file per machine, with one line per operation and a
// checksum per line. Lines with a wrong checksum are ignored, and so are errors of reading or
// writing the file. Processes may share the folder: Put reads the file again, adds its line, and
// replaces the file atomically. If two processes do so at the same time, one of the new lines may
// be lost; its operation is then measured again. Not thread-safe.
class PlanCache {
 public:
  // machine: names everything that plans depend on. If the folder is empty, plans are kept in
  // memory only.
  PlanCache(const std::string& folder, absl::string_view machine);

  // Operations and plans must not contain tabs or newlines.
  std::optional<std::string> Find(const std::string& operation) const;
  void Put(const std::string& operation, const std::string& plan);

  const std::string& path() const { return path_; }  // empty if in memory only

 private:
  void Read();
  void Write() const;

  std::string path_;
  std::map<std::string, std::string> plans_;
};

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_PLAN_CACHE_H_

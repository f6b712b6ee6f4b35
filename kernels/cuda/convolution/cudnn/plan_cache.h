// A cache of autotuning results on disk, so that later processes need not measure again.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_PLAN_CACHE_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_PLAN_CACHE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace muster::kernels::cuda {

// $XDG_CACHE_HOME/muster/cuda or $HOME/.cache/muster/cuda; empty if neither variable is an absolute
// path.
std::string DefaultPlanFolder();

// Maps operations to plans. A plan is forgotten 30 days after it was measured, because it may have
// been a bad choice, for example while another program used the GPU. Stored in one file per
// machine, with one line per operation: checksum, operation, plan, and the day, counted from 1970.
// Lines with a wrong checksum are ignored, and so are errors of reading or writing the file.
// Processes may share the folder: Put reads the file again, adds its line, and replaces the file
// atomically. If two processes do so at the same time, one of the new lines may be lost; its
// operation is then measured again. Not thread-safe.
class PlanCache {
 public:
  static constexpr absl::Duration kKept = absl::Hours(30 * 24);

  // machine: names everything that plans depend on. If the folder is empty, plans are kept in
  // memory only.
  PlanCache(const std::string& folder, absl::string_view machine, absl::Time now = absl::Now());

  // Operations and plans must not contain tabs or newlines.
  std::optional<std::string> Find(const std::string& operation) const;
  void Put(const std::string& operation, const std::string& plan);

  const std::string& path() const { return path_; }  // empty if in memory only

 private:
  struct Entry {
    std::string plan;
    int64_t day = 0;
  };

  void Read();
  void Write() const;

  const int64_t today_;
  std::string path_;
  std::map<std::string, Entry> plans_;
};

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_PLAN_CACHE_H_

#include "cli/local/local_job.h"

#include <algorithm>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/exit_code.h"

namespace muster::cli {

void FitToJob(const v1::JobSpec& defaulted, LocalClusterOptions& options) {
  uint32_t devices = 1;  // also for "all": a rank then uses the devices that exist
  if (!absl::SimpleAtoi(defaulted.resources().devices_per_rank(), &devices)) devices = 1;
  options.nodes = std::max(options.nodes, defaulted.resources().nodes().max());
  options.slots = std::max(options.slots, defaulted.resources().ranks_per_node() * devices);
}

void NoteSharedCores(const LocalClusterOptions& options, Console& console) {
  const uint64_t slots = uint64_t{options.nodes} * options.slots;
  const unsigned cores = std::thread::hardware_concurrency();
  if (slots <= cores) return;
  console.Note(absl::StrCat(slots, " slots on ", cores, cores == 1 ? " core" : " cores",
                            ": ranks share cores and run slower"));
}

int ExitCodeOfStart(const absl::Status& status) {
  if (absl::IsPermissionDenied(status)) return kExitCannotCreate;
  return absl::IsNotFound(status) ? kExitNoInput : kExitFailure;
}

}  // namespace muster::cli

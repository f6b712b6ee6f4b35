#include "collectives/mpi/mpi_processes.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collectives/peer_status.h"
#include "common/deadline.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

// The launcher's name for the MPI job, or "" if it provides none.
std::string MpiJob() {
  for (const char* const name : {"PMIX_NAMESPACE", "PMI_JOBID"}) {
    if (const char* const value = std::getenv(name); value != nullptr) return value;
  }
  return "";
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> FindMpiProcesses(const GroupOptions& options,
                                                       const MpiProgressThread& thread) {
  const auto key = [&options](uint32_t rank) {
    return absl::StrCat(options.name, "/", options.id, "/", rank);
  };
  RETURN_IF_ERROR(
      options.store->Put(key(options.rank), absl::StrCat(thread.rank(), " ", MpiJob())));
  const Deadline deadline(options.connect_timeout);
  std::vector<uint32_t> processes;
  std::vector<uint32_t> missing;
  for (uint32_t i = 0; i < options.size; ++i) {
    const auto value = options.store->Get(key(i), deadline.left());
    if (absl::IsDeadlineExceeded(value.status())) {
      missing.push_back(options.members[i]);
      continue;
    }
    RETURN_IF_ERROR(value.status());
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(*value, absl::MaxSplits(' ', 1));
    uint32_t process = 0;
    if (!absl::SimpleAtoi(parts.first, &process) || process >= thread.size() ||
        parts.second != MpiJob()) {
      return absl::FailedPreconditionError(absl::StrCat(
          options.name, ": ranks ", options.members[i], " and ", options.members[options.rank],
          " belong to different MPI jobs; start all ranks with one mpirun"));
    }
    processes.push_back(process);
  }
  if (!missing.empty()) return PeersMissing(options.name, missing, options.connect_timeout);
  std::vector<uint32_t> sorted = processes;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.name,
        ": two ranks share one process; the mpi backend requires one process per rank"));
  }
  return processes;
}

}  // namespace muster::collectives

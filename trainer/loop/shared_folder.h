// Checks whether the ranks of a job see the same directory. The spec does not determine this: equal
// paths may be different directories on different nodes.
#ifndef MUSTER_TRAINER_LOOP_SHARED_FOLDER_H_
#define MUSTER_TRAINER_LOOP_SHARED_FOLDER_H_

#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"

namespace muster::train {

// Collective. Rank 0 creates a folder with `create`, whose error it logs, while the others wait as
// in RunOnOneRank, with this `interval`; `path` is the folder's path on this rank. Returns on all
// ranks whether all of them see the folder, or an error of `world`.
absl::StatusOr<bool> CreateSharedFolder(
    collectives::Communicator& world, const std::string& path, absl::Duration interval,
    absl::FunctionRef<absl::Status(const std::function<void()>& on_progress)> create);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_SHARED_FOLDER_H_

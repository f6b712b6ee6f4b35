// The operations on a checkpoint directory that other processes can see. Generations of a job share
// the directory without locks (trainer/checkpoint/retention.h), so tests interleave these.
#ifndef MUSTER_TRAINER_CHECKPOINT_DIRECTORY_OPERATIONS_H_
#define MUSTER_TRAINER_CHECKPOINT_DIRECTORY_OPERATIONS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/checkpoint/checkpoint_files.h"

namespace muster::train {

// Thread-safe. Statuses are those of errno with the path.
class DirectoryOperations {
 public:
  virtual ~DirectoryOperations() = default;
  // Names in the directory; none if it does not exist.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) const = 0;
  // State of the checkpoint in `folder`. NOT_FOUND if the folder does not exist; otherwise the
  // errors of train::ReadState.
  virtual absl::StatusOr<CheckpointState> ReadState(const std::string& folder) const = 0;
  virtual absl::Status Create(const std::string& folder) const = 0;
  // Returns 0 or errno: ENOTEMPTY or EEXIST if `to` is a folder that is not empty.
  virtual int Rename(const std::string& from, const std::string& to) const = 0;
  // Deletes the folder with its contents. A missing folder is not an error.
  virtual absl::Status Delete(const std::string& folder) const = 0;
  // Makes the entries of the directory durable.
  virtual absl::Status Sync(const std::string& directory) const = 0;
};

// The operations on real directories.
const DirectoryOperations& RealDirectoryOperations();

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_DIRECTORY_OPERATIONS_H_

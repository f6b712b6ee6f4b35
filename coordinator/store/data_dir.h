// The coordinator's data directory, which one process at a time may use.
#ifndef MUSTER_COORDINATOR_STORE_DATA_DIR_H_
#define MUSTER_COORDINATOR_STORE_DATA_DIR_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/security/private_file.h"

namespace muster::store {

// Holds an exclusive flock on DIR/lock, which the kernel releases when the process ends. The file
// contains the owner's pid.
class DataDir {
 public:
  // Makes the directory private and locks it. Errors: FAILED_PRECONDITION when another coordinator
  // holds it; otherwise those of security::MakePrivateDirectory and OpenOwnFile.
  static absl::StatusOr<std::unique_ptr<DataDir>> Acquire(const std::string& path);

  std::string PathTo(const std::string& name) const { return path_ + "/" + name; }

 private:
  DataDir(std::string path, security::OwnedFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  const std::string path_;
  const security::OwnedFd lock_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_DATA_DIR_H_

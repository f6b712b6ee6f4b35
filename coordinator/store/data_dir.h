// The coordinator's data directory, which one process at a time may use.
#ifndef MUSTER_COORDINATOR_STORE_DATA_DIR_H_
#define MUSTER_COORDINATOR_STORE_DATA_DIR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace muster::store {

// Holds an exclusive flock on DIR/lock, which the kernel releases when the process ends. The file
// contains the owner's pid.
class DataDir {
 public:
  // Creates the directory (mode 0700) and its parents, and locks it. Errors: FAILED_PRECONDITION
  // when another coordinator holds it; otherwise the system's error, with the path.
  static absl::StatusOr<std::unique_ptr<DataDir>> Acquire(const std::string& path);
  ~DataDir();

  DataDir(const DataDir&) = delete;
  DataDir& operator=(const DataDir&) = delete;

  std::string PathTo(const std::string& name) const { return path_ + "/" + name; }

 private:
  DataDir(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}

  const std::string path_;
  const int lock_fd_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_DATA_DIR_H_

// The coordinator's data directory, held by one process at a time.
#ifndef MUSTER_COORDINATOR_STORE_DATA_DIR_H_
#define MUSTER_COORDINATOR_STORE_DATA_DIR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace muster::store {

// Owns an exclusive flock on DIR/lock, which ends with the process however that ends. The file
// holds the owner's pid.
class DataDir {
 public:
  // Makes the directory (mode 0700) and those above it.
  // Errors: FAILED_PRECONDITION when another coordinator has it; otherwise what the system says,
  // with the path.
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

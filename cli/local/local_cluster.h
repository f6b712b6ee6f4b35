// A coordinator and its workers on this machine, for as long as one command runs.
#ifndef MUSTER_CLI_LOCAL_LOCAL_CLUSTER_H_
#define MUSTER_CLI_LOCAL_LOCAL_CLUSTER_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace muster::cli {

struct LocalClusterOptions {
  uint32_t nodes = 1;
  uint32_t slots = 1;  // of each node
  // Empty: beside this program.
  std::string coordinator_binary;
  std::string worker_binary;
  // Where data, logs and sockets are put, and stay. Empty: a directory that is removed at the end.
  std::string keep_directory;
};

// Everything is on loopback, on free ports, under a token of its own.
class LocalCluster {
 public:
  // Ready when it returns. To be called before the process has a second thread. Errors: NOT_FOUND
  // for a daemon's binary, PERMISSION_DENIED when no directory can be made, INTERNAL with a
  // daemon's own words when it does not start.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(const LocalClusterOptions& options);

  // Ends the daemons, and whatever they started, and waits until all of it is gone.
  ~LocalCluster();

  const std::string& address() const { return address_; }
  const std::string& directory() const { return directory_; }

  // From now on `on_failure` is called, on a thread of this class, should a daemon end. Once.
  void Watch(std::function<void()> on_failure);
  // What ended; OK while all live.
  absl::Status status() const;

 private:
  LocalCluster(std::string directory, int socket, pid_t guardian)
      : directory_(std::move(directory)), socket_(socket), guardian_(guardian) {}
  // The guardian's next line; empty when it has gone or the time is over.
  std::string ReadLine(int timeout_ms);

  const std::string directory_;
  const int socket_;
  const pid_t guardian_;
  std::string address_;
  std::thread watcher_;
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOCAL_LOCAL_CLUSTER_H_

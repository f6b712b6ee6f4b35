// A coordinator and its workers on this machine, for the duration of one command.
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
#include "cli/output/console.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

struct LocalClusterOptions {
  uint32_t nodes = 1;
  uint32_t slots = 1;  // per node
  // Paths; empty: next to this program.
  std::string coordinator_binary;
  std::string worker_binary;
  // Directory for data, logs and sockets, which is kept. Empty: a directory that is removed at the
  // end.
  std::string keep_directory;
  // Absolute path of the directory for checkpoints; empty: they are removed at the end.
  std::string checkpoint_directory;
};

// The daemons listen on free ports of loopback and use a token of their own.
class LocalCluster {
 public:
  // Starts the cluster and returns when it is ready. Must be called before the process has a second
  // thread. Errors: NOT_FOUND for a daemon's binary, PERMISSION_DENIED if no directory can be
  // created, INTERNAL with the daemon's output if it does not start.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(const LocalClusterOptions& options);

  // Ends the daemons and all processes that they started, and waits until they are gone.
  ~LocalCluster();

  const std::string& address() const { return address_; }
  const std::string& directory() const { return directory_; }

  // Calls `on_failure` once, on a thread of this class, if a daemon ends.
  void Watch(std::function<void()> on_failure);
  // OK while all daemons are alive; otherwise names the one that ended.
  absl::Status status() const;

 private:
  LocalCluster(std::string directory, int socket, pid_t guardian)
      : directory_(std::move(directory)), socket_(socket), guardian_(guardian) {}
  // The guardian's next line; empty if it has exited or after the timeout.
  std::string ReadLine(int timeout_ms);

  const std::string directory_;
  const int socket_;
  const pid_t guardian_;
  std::string address_;
  std::thread watcher_;
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

// Sets the numbers of nodes and slots that the job needs. `defaulted` is a spec with its defaults.
void FitToJob(const v1::JobSpec& defaulted, LocalClusterOptions& options);

// Prints a note to stderr if there are more slots than cores.
void NoteSharedCores(const LocalClusterOptions& options, Console& console);

// Exit code for an error of LocalCluster::Start.
int ExitCodeOfStart(const absl::Status& status);

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOCAL_LOCAL_CLUSTER_H_

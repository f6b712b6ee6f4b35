// A thread for blocking file operations, so that gRPC's threads and the core never wait for a disk.
#ifndef MUSTER_COORDINATOR_FILES_FILE_THREAD_H_
#define MUSTER_COORDINATOR_FILES_FILE_THREAD_H_

#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace muster::files {

class FileThread {
 public:
  using Task = absl::AnyInvocable<void()>;

  FileThread() : thread_([this] { Run(); }) {}
  // Runs what was posted before, then ends the thread.
  ~FileThread();
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;

  // Thread-safe. Tasks run one at a time, in the order of the calls.
  void Post(Task task);

 private:
  void Run();
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || !tasks_.empty(); }

  absl::Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace muster::files

#endif  // MUSTER_COORDINATOR_FILES_FILE_THREAD_H_

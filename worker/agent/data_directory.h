// Where a worker keeps what must outlive it.
//
//   lock                                    held by the running worker
//   run/rank.sock                           the ranks' service
//   cache/                                  unpacked data sets, shared by all ranks
//   jobs/JOB/generation-K/launch.pb         what was asked for; world.pb once it is known; of a
//                                           command job, master: the port held for it
//   jobs/JOB/generation-K/rank-0007/        one shim: instructions, shim.sock, report.pb, exit; of
//   a
//                                           command job also error.json and progress
//   jobs/JOB/logs/generation-K/rank-0007.stderr and .stdout
//   jobs/JOB/work/rank-0007/                the rank's working directory unless the job names one
//   jobs/JOB/checkpoint/                    for a command's own checkpoints
//
// A generation's directory goes when the coordinator has recorded it, the rest as retention.h says.
#ifndef MUSTER_WORKER_AGENT_DATA_DIRECTORY_H_
#define MUSTER_WORKER_AGENT_DATA_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::agent {

// Thread-safe: paths only, but for Open.
class DataDirectory {
 public:
  // Creates what is missing and takes the lock. FAILED_PRECONDITION when another worker has it,
  // INVALID_ARGUMENT when the path is too long for a unix socket below it.
  static absl::StatusOr<std::unique_ptr<DataDirectory>> Open(const std::string& path);
  ~DataDirectory();
  DataDirectory(const DataDirectory&) = delete;
  DataDirectory& operator=(const DataDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string RankSocket() const;
  std::string Cache() const;
  std::string Jobs() const;
  std::string Job(const std::string& job_id) const;
  std::string Generation(const std::string& job_id, uint64_t generation) const;
  std::string Rank(const std::string& job_id, uint64_t generation, uint32_t rank) const;
  // Of a command's rank: its account of its failure, and of its progress.
  std::string ErrorFile(const std::string& job_id, uint64_t generation, uint32_t rank) const;
  std::string ProgressFile(const std::string& job_id, uint64_t generation, uint32_t rank) const;
  std::string LaunchFile(const std::string& job_id, uint64_t generation) const;
  std::string Logs(const std::string& job_id, uint64_t generation) const;
  std::string Log(const std::string& job_id, uint64_t generation, uint32_t rank,
                  v1::LogStream stream) const;
  std::string Work(const std::string& job_id, uint32_t rank) const;
  std::string Checkpoint(const std::string& job_id) const;

  // Every (job, generation) that has left a directory behind.
  std::vector<std::pair<std::string, uint64_t>> Generations() const;

 private:
  DataDirectory(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}

  const std::string path_;
  const int lock_fd_;
};

// A job id comes from outside and becomes part of a path: INVALID_ARGUMENT for one that is no plain
// name.
absl::Status CheckJobId(absl::string_view job_id);

// With its parents, for this user only.
absl::Status MakeDirectories(const std::string& path);

absl::Status WriteMessage(const std::string& path, const google::protobuf::MessageLite& message,
                          bool sync);
// NOT_FOUND, DATA_LOSS.
absl::Status ReadMessage(const std::string& path, google::protobuf::MessageLite& message);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_DATA_DIRECTORY_H_

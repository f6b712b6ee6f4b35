// Layout of the directory in which a worker stores state that must outlive it.
//
//   lock                                    locked by the running worker
//   run/rank.sock                           socket of the rank service
//   cluster.pb                              see session/membership.h
//   machine-id                              on machines without an id, see
//   common/process/machine_id.h cache/                                  unpacked datasets, shared
//   by all ranks self-test                               written and removed by each self-test, see
//   self_test.h peers                                   addresses of the coordinator and of other
//   workers, see
//                                           lease/leases.h
//   promises                                see lease/promises.h
//   files/                                  contents of jobs' files, see files/file_cache.h
//   jobs/JOB/launch.pb                      the newest launch, with the job's directories
//   jobs/JOB/generation-K/launch.pb         the launch; world.pb once the world is known; for a
//                                           command job, master: its endpoint; rendezvous.pb: keys
//                                           that its ranks have put, barriers that they have passed
//   jobs/JOB/generation-K/rank-0007/        one shim: instructions, shim.sock, report.pb, exit; for
//                                           a command job also error.json and progress
//   jobs/JOB/generation-K/c10d-store/       on node rank 0 of a job with a hosted c10d store: the
//                                           files of its shim, and status
//   jobs/JOB/logs/generation-K/rank-0007.stderr and .stdout, each with .times: the times of its
//   lines jobs/JOB/work/rank-0007/                working directory, unless the job sets one
//   jobs/JOB/checkpoint/                    for the job's checkpoints
//
// With --job-user, a job's user owns what its ranks write, and the rest is the worker's: see
// user_files.h.
//
//   cache/UID/                              the cache of one user
//   jobs/JOB/generation-K/rank-0007/user/   error.json, progress, or launch.pb for a train job
//   jobs/JOB/generation-K/c10d-store/user/  status
//
// A generation's directory is removed when the coordinator has recorded its end, the other files as
// described in retention.h.
#ifndef MUSTER_WORKER_AGENT_STORAGE_DATA_DIRECTORY_H_
#define MUSTER_WORKER_AGENT_STORAGE_DATA_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/security/private_file.h"
#include "google/protobuf/message.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::agent {

// Builds the paths below the directory. Thread-safe.
class DataDirectory {
 public:
  // Makes the directories private and takes the lock. FAILED_PRECONDITION if another worker holds
  // it, INVALID_ARGUMENT if the path is too long for a unix socket below it; otherwise the errors
  // of security::MakePrivateDirectory and OpenOwnFile. `has_job_users`: other users can pass
  // through to the directories of their jobs.
  static absl::StatusOr<std::unique_ptr<DataDirectory>> Open(const std::string& path,
                                                             bool has_job_users = false);

  const std::string& path() const { return path_; }
  std::string RankSocket() const;
  std::string Cluster() const;
  std::string MachineId() const;
  std::string Cache() const;
  std::string Peers() const;
  std::string Promises() const;
  std::string Files() const;
  std::string Jobs() const;
  std::string Job(const std::string& job_id) const;
  std::string Generation(const std::string& job_id, uint64_t generation) const;
  std::string Rank(const std::string& job_id, uint64_t generation, uint32_t rank) const;
  // Files of a command's rank in which it reports its failure and its progress.
  std::string ErrorFile(const std::string& job_id, uint64_t generation, uint32_t rank) const;
  std::string ProgressFile(const std::string& job_id, uint64_t generation, uint32_t rank) const;
  // With --job-user: the rank's directory for these two files and its copy of the launch.
  std::string UserFiles(const std::string& job_id, uint64_t generation, uint32_t rank) const;
  std::string LaunchFile(const std::string& job_id, uint64_t generation) const;
  std::string NewestLaunchFile(const std::string& job_id) const;
  std::string Logs(const std::string& job_id, uint64_t generation) const;
  std::string Log(const std::string& job_id, uint64_t generation, uint32_t rank,
                  v1::LogStream stream) const;
  // Parent of the working directories of the job's ranks.
  std::string WorkDirectories(const std::string& job_id) const;
  std::string Work(const std::string& job_id, uint32_t rank) const;
  std::string Checkpoint(const std::string& job_id) const;

  // Every (job, generation) that has a directory.
  std::vector<std::pair<std::string, uint64_t>> Generations() const;

 private:
  DataDirectory(std::string path, security::OwnedFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  const std::string path_;
  const security::OwnedFd lock_;
};

// Validates a job id, which comes from outside and becomes part of a path: INVALID_ARGUMENT unless
// it is a plain name.
absl::Status CheckJobId(absl::string_view job_id);

// Creates the directory and its parents, accessible to this user only.
absl::Status MakeDirectories(const std::string& path);

absl::Status WriteMessage(const std::string& path, const google::protobuf::MessageLite& message,
                          bool sync);
// Appends a message, which is merged into the file's message; nothing is appended on failure.
absl::Status AppendMessage(const std::string& path, const google::protobuf::MessageLite& message);
// NOT_FOUND, DATA_LOSS.
absl::Status ReadMessage(const std::string& path, google::protobuf::MessageLite& message);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_STORAGE_DATA_DIRECTORY_H_

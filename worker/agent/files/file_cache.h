// Contents of jobs' files on this node, named by their SHA-256 digests: DIRECTORY/abcdef…. The
// least recently used files are removed when all of them exceed a limit.
#ifndef MUSTER_WORKER_AGENT_FILES_FILE_CACHE_H_
#define MUSTER_WORKER_AGENT_FILES_FILE_CACHE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/muster/v1/job.pb.h"
#include "worker/agent/job_user.h"

namespace muster::agent {

// Must be used on one thread at a time.
class FileCache {
 public:
  using Files = google::protobuf::RepeatedPtrField<v1::FileSpec>;
  // Writes the content of the file to `path`, which does not exist. The cache checks the content.
  using Fetch = std::function<absl::Status(const v1::FileSpec& file, const std::string& path)>;

  // Creates the directory and removes incomplete files. Between calls, the files have at most
  // `max_bytes`; during a call, the files that it places are kept as well.
  static absl::StatusOr<std::unique_ptr<FileCache>> Open(std::string directory, uint64_t max_bytes,
                                                         Fetch fetch);
  FileCache(const FileCache&) = delete;
  FileCache& operator=(const FileCache&) = delete;

  // Copies the files into each directory, and fetches those that are not cached. Replaces existing
  // files, which an earlier generation may have modified. `files` must be valid
  // (spec::CheckUploadedFiles). With `user`, who then owns the directories, writes with the rights
  // of the user: links that a job has placed there lead nowhere else. Errors name the path;
  // DATA_LOSS for content of another digest.
  absl::Status Place(const Files& files, const std::vector<std::string>& directories,
                     const std::optional<JobUser>& user = std::nullopt);

 private:
  FileCache(std::string directory, uint64_t max_bytes, Fetch fetch)
      : directory_(std::move(directory)), max_bytes_(max_bytes), fetch_(std::move(fetch)) {}
  std::string PathOf(const std::string& digest) const;
  absl::Status Ensure(const v1::FileSpec& file);
  // Removes the least recently used files, except `used`, until the rest is within the limit.
  void Trim(const Files& used);

  const std::string directory_;
  const uint64_t max_bytes_;
  const Fetch fetch_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_FILES_FILE_CACHE_H_

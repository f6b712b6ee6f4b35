// The contents of jobs' files, named by their SHA-256 digests: DIRECTORY/ab/abcdef….
//
// A file is complete and on disk before it has its name, so a stored file survives any crash. Files
// that no job references are removed by CollectGarbage.
//
// A digest gives no right to a file: only those who have uploaded its content may use it. Beside
// the file, DIGEST.OWNER, an empty file, is the proof of a recent upload; OWNER is the SHA-256 of
// the owner's name. Proofs expire like files; rights to the files of jobs follow from the jobs.
//
// The bytes of an owner's files are limited, to DiskLimits if no job of the owner names them and to
// half of the disk in all, so that no owner can stop the uploads and submissions of others.
#ifndef MUSTER_COORDINATOR_FILES_FILE_STORE_H_
#define MUSTER_COORDINATOR_FILES_FILE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/sha256.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::files {

// How long an uploaded file may wait for the job that uses it.
inline constexpr absl::Duration kKeepUnreferenced = absl::Hours(1);
// Uploads beyond this number are refused.
inline constexpr size_t kUploads = 64;
// The files that an owner may have uploaded without using them for kKeepUnreferenced.
inline constexpr size_t kProofsPerOwner = 65536;
struct DiskLimits {
  // Free space that uploads leave on the disk, because the coordinator cannot continue without
  // space for its state.
  uint64_t reserved_bytes = 128 << 20;
  // The most bytes of one owner's files that no job of the owner names.
  uint64_t unused_bytes = 1 << 30;
};

// Digests of the files of jobs.
using FilesByOwner = std::map<std::string, absl::flat_hash_set<std::string>>;

// One owner's files in the store. Content that several owners have counts for each of them.
struct OwnerFiles {
  size_t proofs = 0;
  uint64_t unused_bytes = 0;  // of files with a proof that none of the owner's jobs names
  uint64_t used_bytes = 0;    // of files that the owner's jobs name
  uint64_t uploading_bytes = 0;
};

// RESOURCE_EXHAUSTED if the owner may not store `bytes` more. `free_bytes`: what is free for files.
absl::Status CheckShare(const std::string& owner, const OwnerFiles& files, uint64_t bytes,
                        uint64_t free_bytes, uint64_t unused_limit);

// A stored file that is being read. It stays readable if it is removed from the store.
class FileReader {
 public:
  explicit FileReader(int fd) : fd_(fd) {}
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  // The next bytes, at most `max_bytes`; empty at the end.
  absl::StatusOr<std::string> Read(size_t max_bytes);

 private:
  const int fd_;
};

// The owner of a call, and the files that it may use whoever uploaded them: see
// core::UsableFiles.
struct FileUser {
  std::string owner;
  absl::flat_hash_set<std::string> of_jobs = {};  // digests
};

// Must be used on one thread at a time, uploads included.
class FileStore {
 public:
  // A file that is being received. Destroying it without Finish discards it.
  class Upload {
   public:
    ~Upload();
    Upload(const Upload&) = delete;
    Upload& operator=(const Upload&) = delete;

    // Errors: INVALID_ARGUMENT beyond the announced size; RESOURCE_EXHAUSTED if the disk is full.
    absl::Status Append(absl::string_view data);
    // Adds the file and the owner's right to the store. INVALID_ARGUMENT if size or digest differ
    // from those announced; RESOURCE_EXHAUSTED beyond kProofsPerOwner.
    absl::Status Finish(absl::Time now);

   private:
    friend class FileStore;
    Upload(FileStore& store, std::string owner, std::string digest, uint64_t size_bytes,
           std::string path, int fd);

    FileStore& store_;
    const std::string owner_;
    const std::string digest_;
    const uint64_t size_bytes_;
    const std::string path_;
    const int fd_;
    uint64_t received_bytes_ = 0;
    Sha256 sha256_;
  };

  // Creates the directory and removes incomplete uploads. If `directory` is empty, the store is a
  // temporary directory that the destructor removes. Until Count, all files count as unused.
  static absl::StatusOr<std::unique_ptr<FileStore>> Open(const std::string& directory,
                                                         const DiskLimits& limits = {});
  ~FileStore();
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // The given digests that are not stored or that the user may not use; the two are not
  // distinguished. The others are kept for another kKeepUnreferenced.
  std::vector<std::string> Missing(absl::Span<const std::string> digests, const FileUser& user,
                                   absl::Time now);
  // FAILED_PRECONDITION if a file of the spec is Missing, INVALID_ARGUMENT if its size differs;
  // both name the path. The files are kept for another kKeepUnreferenced.
  absl::Status CheckStored(const v1::JobSpec& spec, const FileUser& user, absl::Time now);

  // The size of the files of the spec that are Missing.
  uint64_t MissingBytes(const v1::JobSpec& spec, const FileUser& user, absl::Time now);
  // RESOURCE_EXHAUSTED if the disk has no space for `bytes` more of the owner, as of the last
  // Count.
  absl::Status CheckSpace(const std::string& owner, uint64_t bytes) const;

  // `digest` must be valid (spec::IsSha256) here and below. RESOURCE_EXHAUSTED beyond kUploads or
  // limits::kFilesBytes, and if there is no space; uploads in progress count.
  absl::StatusOr<std::unique_ptr<Upload>> StartUpload(const std::string& owner,
                                                      const std::string& digest,
                                                      uint64_t size_bytes);
  // NOT_FOUND.
  absl::StatusOr<std::unique_ptr<FileReader>> Read(const std::string& digest) const;

  // Removes files that no job names and that have not been used for kKeepUnreferenced, and proofs
  // of uploads that have not been used for as long. Counts the others. Returns the number of
  // removed files.
  size_t CollectGarbage(const FilesByOwner& of_jobs, absl::Time now);
  // Counts what each owner has.
  void Count(const FilesByOwner& of_jobs);

  const std::string& directory() const { return directory_; }

 private:
  FileStore(std::string directory, bool temporary, const DiskLimits& limits)
      : directory_(std::move(directory)), temporary_(temporary), limits_(limits) {}
  std::string PathOf(absl::string_view digest) const;
  std::string ProofPath(absl::string_view digest, absl::string_view owner) const;
  uint64_t SizeOf(absl::string_view digest) const;  // 0 if it is not stored
  // Calls `visit` for each stored file, and for each proof with the SHA-256 of its owner's name.
  void ForEach(const std::function<void(const std::string& path, const std::string& digest,
                                        const std::string& owner)>& visit) const;
  // Records that the owner has uploaded the content of the digest.
  absl::Status Prove(const std::string& digest, uint64_t size_bytes, const std::string& owner,
                     absl::Time now);
  // Whether the user may use the file and it is stored. If so, it is kept.
  bool Use(const std::string& digest, const FileUser& user, absl::Time now);
  // The free space of the disk without the reserve. RESOURCE_EXHAUSTED if there is none.
  absl::StatusOr<uint64_t> FreeSpace() const;

  const std::string directory_;
  const bool temporary_;
  const DiskLimits limits_;
  size_t uploads_ = 0;
  uint64_t unwritten_bytes_ = 0;              // that the uploads in progress have announced
  std::map<std::string, OwnerFiles> owners_;  // by OWNER
};

}  // namespace muster::files

#endif  // MUSTER_COORDINATOR_FILES_FILE_STORE_H_

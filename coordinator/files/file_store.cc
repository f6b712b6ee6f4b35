#include "coordinator/files/file_store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"
#include "common/random_id.h"
#include "common/status.h"
#include "spec/files.h"

namespace muster::files {
namespace {

constexpr char kUploadFolder[] = "uploads";

absl::Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("create ", path));
}

absl::Status Sync(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("open ", directory));
  const auto closer = absl::MakeCleanup([fd] { close(fd); });
  if (fsync(fd) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", directory));
  return absl::OkStatus();
}

absl::StatusOr<std::string> MakeTemporaryDirectory() {
  const char* const named = getenv("TMPDIR");
  std::string path = absl::StrCat(named == nullptr || *named == '\0' ? "/tmp" : named,
                                  "/muster-coordinator.XXXXXX");
  if (mkdtemp(path.data()) != nullptr) return path;
  return ErrnoStatus(errno, absl::StrCat("create ", path));
}

// The time of the last use is the file's modification time.
bool Touch(const std::string& path, absl::Time now) {
  const timespec times[] = {absl::ToTimespec(now), absl::ToTimespec(now)};
  return utimensat(AT_FDCWD, path.c_str(), times, 0) == 0;
}

// `held`: bytes, of what.
absl::Status BeyondLimit(const std::string& owner, uint64_t held, absl::string_view what,
                         uint64_t bytes, uint64_t limit, absl::string_view remedy) {
  return absl::ResourceExhaustedError(absl::StrCat(
      owner.empty() ? "the caller" : owner, " has ", held >> 10, " KiB of ", what, ", and ",
      bytes >> 10, " KiB more would exceed the limit of ", limit >> 10, " KiB", remedy));
}

}  // namespace

absl::Status CheckShare(const std::string& owner, const OwnerFiles& files, uint64_t bytes,
                        uint64_t free_bytes, uint64_t unused_limit) {
  const uint64_t unused = files.unused_bytes + files.uploading_bytes;
  if (unused + bytes > unused_limit) {
    return BeyondLimit(owner, unused, "uploaded files that no job of that owner uses", bytes,
                       unused_limit,
                       "; submit the jobs that use them, or try again an hour after their upload");
  }
  const uint64_t held = unused + files.used_bytes;
  const uint64_t share = (held + free_bytes) / 2;
  if (held + bytes <= share) return absl::OkStatus();
  return BeyondLimit(owner, held, "files on the coordinator's disk", bytes, share,
                     ", half of the space for files; remove finished jobs with muster rm and try "
                     "again in an hour, or use --workdir with a directory that all nodes share");
}

FileReader::~FileReader() { close(fd_); }

absl::StatusOr<std::string> FileReader::Read(size_t max_bytes) {
  std::string data(max_bytes, '\0');
  ssize_t size;
  do {
    size = read(fd_, data.data(), data.size());
  } while (size < 0 && errno == EINTR);
  if (size < 0) return ErrnoStatus(errno, "read a stored file");
  data.resize(static_cast<size_t>(size));
  return data;
}

FileStore::Upload::Upload(FileStore& store, std::string owner, std::string digest,
                          uint64_t size_bytes, std::string path, int fd)
    : store_(store),
      owner_(std::move(owner)),
      digest_(std::move(digest)),
      size_bytes_(size_bytes),
      path_(std::move(path)),
      fd_(fd) {
  ++store_.uploads_;
  store_.unwritten_bytes_ += size_bytes_;
  store_.owners_[Sha256Hex(owner_)].uploading_bytes += size_bytes_;
}

FileStore::Upload::~Upload() {
  close(fd_);
  unlink(path_.c_str());  // fails after Finish, which has renamed it
  --store_.uploads_;
  store_.unwritten_bytes_ -= size_bytes_ - received_bytes_;
  store_.owners_[Sha256Hex(owner_)].uploading_bytes -= size_bytes_;
}

absl::Status FileStore::Upload::Append(absl::string_view data) {
  if (data.size() > size_bytes_ - received_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the content has more than the announced ", size_bytes_, " bytes"));
  }
  RETURN_IF_ERROR(store_.FreeSpace().status());
  received_bytes_ += data.size();
  store_.unwritten_bytes_ -= data.size();
  sha256_.Update(data);
  while (!data.empty()) {
    const ssize_t written = write(fd_, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "store an uploaded file");
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status FileStore::Upload::Finish(absl::Time now) {
  const std::string digest = sha256_.HexDigest();
  if (received_bytes_ != size_bytes_ || digest != digest_) {
    return absl::InvalidArgumentError(absl::StrCat("the content has ", received_bytes_,
                                                   " bytes and SHA-256 ", digest, ", not ",
                                                   size_bytes_, " bytes and ", digest_));
  }
  const std::string target = store_.PathOf(digest_);
  const std::string folder = std::filesystem::path(target).parent_path().string();
  RETURN_IF_ERROR(MakeDirectory(folder));
  if (fsync(fd_) != 0) return ErrnoStatus(errno, "sync an uploaded file");
  Touch(path_, now);
  RETURN_IF_ERROR(store_.Prove(digest_, size_bytes_, owner_, now));
  if (rename(path_.c_str(), target.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename to ", target));
  }
  RETURN_IF_ERROR(Sync(folder));
  return Sync(store_.directory_);
}

absl::StatusOr<std::unique_ptr<FileStore>> FileStore::Open(const std::string& directory,
                                                           const DiskLimits& limits) {
  std::string path = directory;
  if (directory.empty()) {
    ASSIGN_OR_RETURN(path, MakeTemporaryDirectory());
  } else {
    RETURN_IF_ERROR(MakeDirectory(path));
  }
  std::unique_ptr<FileStore> store(new FileStore(std::move(path), directory.empty(), limits));
  const std::string uploads = absl::StrCat(store->directory_, "/", kUploadFolder);
  std::error_code error;
  std::filesystem::remove_all(uploads, error);
  RETURN_IF_ERROR(MakeDirectory(uploads));
  store->Count({});
  return store;
}

FileStore::~FileStore() {
  std::error_code error;
  if (temporary_) std::filesystem::remove_all(directory_, error);
}

std::string FileStore::PathOf(absl::string_view digest) const {
  return absl::StrCat(directory_, "/", digest.substr(0, 2), "/", digest);
}

std::string FileStore::ProofPath(absl::string_view digest, absl::string_view owner) const {
  return absl::StrCat(PathOf(digest), ".", Sha256Hex(owner));
}

uint64_t FileStore::SizeOf(absl::string_view digest) const {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(PathOf(digest), error);
  return error ? 0 : size;
}

absl::Status FileStore::Prove(const std::string& digest, uint64_t size_bytes,
                              const std::string& owner, absl::Time now) {
  const std::string path = ProofPath(digest, owner);
  if (Touch(path, now)) return absl::OkStatus();
  OwnerFiles& files = owners_[Sha256Hex(owner)];
  if (files.proofs >= kProofsPerOwner) {
    return absl::ResourceExhaustedError(
        absl::StrCat(owner, " has uploaded ", kProofsPerOwner, " files in the last ",
                     absl::FormatDuration(kKeepUnreferenced), ", the limit; try again later"));
  }
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("create ", path));
  close(fd);
  Touch(path, now);
  ++files.proofs;
  files.unused_bytes += size_bytes;
  return absl::OkStatus();
}

bool FileStore::Use(const std::string& digest, const FileUser& user, absl::Time now) {
  // The file itself is looked at last, so that the time reveals nothing about others' files.
  const bool proven = Touch(ProofPath(digest, user.owner), now);
  return (proven || user.of_jobs.contains(digest)) && Touch(PathOf(digest), now);
}

std::vector<std::string> FileStore::Missing(absl::Span<const std::string> digests,
                                            const FileUser& user, absl::Time now) {
  std::vector<std::string> missing;
  for (const std::string& digest : digests) {
    if (!Use(digest, user, now)) missing.push_back(digest);
  }
  return missing;
}

absl::Status FileStore::CheckStored(const v1::JobSpec& spec, const FileUser& user, absl::Time now) {
  for (const v1::FileSpec& file : spec.files()) {
    struct stat info;
    if (!Use(file.sha256(), user, now) || stat(PathOf(file.sha256()).c_str(), &info) != 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("files: ", file.path(), " has not been uploaded by ",
                       user.owner.empty() ? "the caller" : user.owner,
                       "; submit the job with `muster submit` or `muster run`"));
    }
    if (static_cast<uint64_t>(info.st_size) != file.size_bytes()) {
      return absl::InvalidArgumentError(absl::StrCat("files: ", file.path(), " has ", info.st_size,
                                                     " bytes, not ", file.size_bytes()));
    }
  }
  return absl::OkStatus();
}

uint64_t FileStore::MissingBytes(const v1::JobSpec& spec, const FileUser& user, absl::Time now) {
  absl::flat_hash_map<std::string, uint64_t> missing;
  for (const v1::FileSpec& file : spec.files()) {
    if (!Use(file.sha256(), user, now)) missing[file.sha256()] = file.size_bytes();
  }
  uint64_t bytes = 0;
  for (const auto& [digest, size] : missing) bytes += size;
  return bytes;
}

absl::Status FileStore::CheckSpace(const std::string& owner, uint64_t bytes) const {
  ASSIGN_OR_RETURN(const uint64_t free_bytes, FreeSpace());
  const auto files = owners_.find(Sha256Hex(owner));
  return CheckShare(owner, files == owners_.end() ? OwnerFiles() : files->second, bytes,
                    free_bytes - std::min(free_bytes, unwritten_bytes_), limits_.unused_bytes);
}

absl::StatusOr<uint64_t> FileStore::FreeSpace() const {
  struct statvfs disk;
  if (statvfs(directory_.c_str(), &disk) != 0) {
    return ErrnoStatus(errno, absl::StrCat("query the disk of ", directory_));
  }
  const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (free_bytes > limits_.reserved_bytes) return free_bytes - limits_.reserved_bytes;
  return absl::ResourceExhaustedError(absl::StrCat(
      "the coordinator's disk is full: ", free_bytes >> 20, " MiB are free in ", directory_,
      ", which it needs for its state; free space there, or use --workdir "
      "with a directory that all nodes share"));
}

absl::StatusOr<std::unique_ptr<FileStore::Upload>> FileStore::StartUpload(const std::string& owner,
                                                                          const std::string& digest,
                                                                          uint64_t size_bytes) {
  if (uploads_ >= kUploads) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kUploads, " uploads at the same time; try again"));
  }
  if (size_bytes > limits::kFilesBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the file has ", size_bytes, " bytes; the limit is ", limits::kFilesBytes));
  }
  RETURN_IF_ERROR(CheckSpace(owner, size_bytes));
  std::string path = absl::StrCat(directory_, "/", kUploadFolder, "/", RandomHexId(64));
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("create ", path));
  return std::unique_ptr<Upload>(new Upload(*this, owner, digest, size_bytes, std::move(path), fd));
}

absl::StatusOr<std::unique_ptr<FileReader>> FileStore::Read(const std::string& digest) const {
  const int fd = open(PathOf(digest).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) return std::make_unique<FileReader>(fd);
  if (errno == ENOENT) {
    return absl::NotFoundError(absl::StrCat("no file with SHA-256 ", digest, " is stored"));
  }
  return ErrnoStatus(errno, absl::StrCat("open ", PathOf(digest)));
}

void FileStore::ForEach(const std::function<void(const std::string& path, const std::string& digest,
                                                 const std::string& owner)>& visit) const {
  std::error_code error;
  for (const auto& folder : std::filesystem::directory_iterator(directory_, error)) {
    if (folder.path().filename() == kUploadFolder) continue;
    for (const auto& file : std::filesystem::directory_iterator(folder.path(), error)) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(file.path().filename().string(), absl::MaxSplits('.', 1));
      if (spec::IsSha256(parts.first)) visit(file.path().string(), parts.first, parts.second);
    }
  }
}

size_t FileStore::CollectGarbage(const FilesByOwner& of_jobs, absl::Time now) {
  absl::flat_hash_set<std::string> used;
  for (const auto& [owner, digests] : of_jobs) used.insert(digests.begin(), digests.end());
  size_t removed = 0;
  ForEach([&](const std::string& path, const std::string& digest, const std::string& owner) {
    struct stat info;
    if ((owner.empty() && used.contains(digest)) || stat(path.c_str(), &info) != 0) return;
    if (now - absl::TimeFromTimespec(info.st_mtim) < kKeepUnreferenced) return;
    if (unlink(path.c_str()) == 0 && owner.empty()) ++removed;
  });
  Count(of_jobs);
  return removed;
}

void FileStore::Count(const FilesByOwner& of_jobs) {
  std::map<std::string, OwnerFiles> counted;
  for (const auto& [owner, files] : owners_) {
    if (files.uploading_bytes > 0) counted[owner].uploading_bytes = files.uploading_bytes;
  }
  absl::flat_hash_map<std::string, const absl::flat_hash_set<std::string>*> used;
  for (const auto& [name, digests] : of_jobs) {
    const std::string owner = Sha256Hex(name);
    used[owner] = &digests;
    for (const std::string& digest : digests) counted[owner].used_bytes += SizeOf(digest);
  }
  ForEach([&](const std::string& /*path*/, const std::string& digest, const std::string& owner) {
    if (owner.empty()) return;
    OwnerFiles& files = counted[owner];
    ++files.proofs;
    const auto of_owner = used.find(owner);
    if (of_owner == used.end() || !of_owner->second->contains(digest)) {
      files.unused_bytes += SizeOf(digest);
    }
  });
  owners_ = std::move(counted);
}

}  // namespace muster::files

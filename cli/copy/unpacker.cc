#include "cli/copy/unpacker.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

// Offsets in a header of the tar format, which is one block.
constexpr size_t kBlock = 512;
constexpr size_t kSizeAt = 124;
constexpr size_t kSizeLength = 12;
constexpr size_t kTypeAt = 156;
constexpr char kLongName = 'L';  // GNU: the data of this entry is the name of the next one
constexpr char kFile = '0';

// The type of the archive's first entry; NUL if `data` does not contain it.
char FirstType(absl::string_view data) {
  if (data.size() < kBlock || data[kTypeAt] != kLongName) {
    return data.size() < kBlock ? '\0' : data[kTypeAt];
  }
  const std::string digits(data.substr(kSizeAt, kSizeLength));
  const size_t name = std::strtoull(digits.c_str(), nullptr, 8);
  const size_t next = kBlock + (name + kBlock - 1) / kBlock * kBlock;
  return next + kBlock <= data.size() ? data[next + kTypeAt] : '\0';
}

}  // namespace

absl::StatusOr<std::unique_ptr<Unpacker>> Unpacker::Create(const std::string& destination,
                                                           const std::string& name) {
  std::unique_ptr<Unpacker> unpacker(new Unpacker());
  std::error_code error;
  if (fs::is_directory(destination, error)) {
    unpacker->folder_ = destination;
    unpacker->name_ = name;
  } else {
    const fs::path path(destination);
    unpacker->folder_ = path.has_parent_path() ? path.parent_path().string() : ".";
    unpacker->name_ = path.filename().string();
    if (unpacker->name_.empty() || !fs::is_directory(unpacker->folder_, error)) {
      return absl::NotFoundError(absl::StrCat("folder ", unpacker->folder_, " does not exist"));
    }
  }
  std::string pattern = unpacker->folder_ + "/.muster-cp-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("create a folder in ", unpacker->folder_));
  }
  unpacker->temporary_ = pattern;
  RETURN_IF_ERROR(unpacker->StartTar(
      {"tar", "-C", pattern, "--no-same-owner", "--no-same-permissions", "-xf", "-"}));
  return unpacker;
}

absl::StatusOr<std::unique_ptr<Unpacker>> Unpacker::CreateForStdout() {
  std::unique_ptr<Unpacker> unpacker(new Unpacker());
  RETURN_IF_ERROR(unpacker->StartTar({"tar", "-xOf", "-"}));
  return unpacker;
}

Unpacker::~Unpacker() {
  if (tar_ > 0) {
    kill(tar_, SIGKILL);
    waitpid(tar_, nullptr, 0);
  }
  if (archive_ >= 0) close(archive_);
  std::error_code error;
  if (!temporary_.empty()) fs::remove_all(temporary_, error);
}

absl::Status Unpacker::StartTar(const std::vector<std::string>& arguments) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[0], STDIN_FILENO);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int error = posix_spawnp(&tar_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[0]);
  archive_ = pipe_ends[1];
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "start tar");
}

absl::Status Unpacker::Write(absl::string_view data) {
  if (!std::exchange(started_, true) && temporary_.empty() && FirstType(data) != kFile) {
    return absl::InvalidArgumentError("only a file can be written to stdout; this is a folder");
  }
  while (!data.empty()) {
    const ssize_t n = write(archive_, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write to tar");
    data.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status Unpacker::EndTar() {
  close(std::exchange(archive_, -1));
  int status = 0;
  while (waitpid(tar_, &status, 0) < 0 && errno == EINTR) {
  }
  tar_ = -1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError("tar failed to unpack the copy");
}

absl::StatusOr<std::string> Unpacker::Finish() {
  RETURN_IF_ERROR(EndTar());
  if (temporary_.empty()) return "";
  std::error_code error;
  const fs::directory_iterator entries(temporary_, error);
  if (error || entries == fs::directory_iterator()) {
    return absl::InternalError("the node sent an empty archive");
  }
  const fs::path unpacked = entries->path();
  const std::string target =
      fs::path(folder_) / (name_.empty() ? unpacked.filename() : fs::path(name_));
  if (rename(unpacked.c_str(), target.c_str()) == 0) return target;
  if (errno == ENOTEMPTY || errno == EEXIST || errno == EISDIR || errno == ENOTDIR) {
    return absl::AlreadyExistsError(
        absl::StrCat(target, " exists; delete it or choose another destination"));
  }
  return ErrnoStatus(errno, absl::StrCat("move the copy to ", target));
}

}  // namespace muster::cli

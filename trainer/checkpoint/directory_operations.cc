#include "trainer/checkpoint/directory_operations.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/files/replace_file.h"
#include "common/status.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

class RealOperations final : public DirectoryOperations {
 public:
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) const override {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator it(directory, error), end; !error && it != end;
         it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
    if (error && error != std::errc::no_such_file_or_directory) {
      return ErrnoStatus(error.value(), absl::StrCat("list ", directory));
    }
    return names;
  }

  absl::StatusOr<CheckpointState> ReadState(const std::string& folder) const override {
    auto state = train::ReadState(folder);
    if (state.ok()) return state;
    std::error_code error;
    if (!fs::exists(folder, error) && !error) {
      return absl::NotFoundError(absl::StrCat(folder, " does not exist"));
    }
    return absl::IsNotFound(state.status()) ? absl::DataLossError(state.status().message())
                                            : state.status();
  }

  absl::Status Create(const std::string& folder) const override {
    std::error_code error;
    fs::create_directory(folder, error);
    return error ? ErrnoStatus(error.value(), absl::StrCat("create ", folder)) : absl::OkStatus();
  }

  int Rename(const std::string& from, const std::string& to) const override {
    return rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
  }

  absl::Status Delete(const std::string& folder) const override {
    std::error_code error;
    fs::remove_all(folder, error);
    return error ? ErrnoStatus(error.value(), absl::StrCat("remove ", folder)) : absl::OkStatus();
  }

  absl::Status Sync(const std::string& directory) const override {
    return SyncDirectory(directory) ? absl::OkStatus()
                                    : ErrnoStatus(errno, absl::StrCat("sync ", directory));
  }
};

}  // namespace

const DirectoryOperations& RealDirectoryOperations() {
  static const RealOperations operations;
  return operations;
}

}  // namespace muster::train

// A folder for the files of a fuzz target's inputs.
#ifndef MUSTER_TESTS_FUZZ_TEMPORARY_FOLDER_H_
#define MUSTER_TESTS_FUZZ_TEMPORARY_FOLDER_H_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/string_view.h"
#include "tests/fuzz/check.h"

namespace muster::fuzz {

// Deleted with the object; in memory, where the machine has a file system there.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp") +
                          std::string("/muster-fuzz.XXXXXX");
    Check(mkdtemp(pattern.data()) != nullptr, "the test can create a folder", pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(absl::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes a file and returns its path.
  std::string Write(absl::string_view name, absl::string_view contents) const {
    std::string path = Path(name);
    std::ofstream(path, std::ios::binary).write(contents.data(), contents.size());
    // Files with tokens must be private.
    std::filesystem::permissions(
        path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return path;
  }

 private:
  std::string path_;
};

}  // namespace muster::fuzz

#endif  // MUSTER_TESTS_FUZZ_TEMPORARY_FOLDER_H_

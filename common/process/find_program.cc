#include "common/process/find_program.h"

#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/process/program_folder.h"

namespace muster {
namespace {

bool IsProgram(const std::string& path) { return access(path.c_str(), X_OK) == 0; }

}  // namespace

absl::StatusOr<std::string> FindProgram(const std::string& given, const std::string& folder,
                                        const std::string& name, const std::string& flag) {
  if (!given.empty()) {
    if (IsProgram(given)) return given;
    return absl::NotFoundError(absl::StrCat(flag, "=", given, " is not an executable file"));
  }
  const std::filesystem::path own = ProgramFolder();
  for (const std::filesystem::path& path : {own / name, own.parent_path() / folder / name}) {
    if (IsProgram(path)) return path.string();
  }
  return absl::NotFoundError(absl::StrCat(name, " not found in ", own.string(), "; set ", flag));
}

}  // namespace muster

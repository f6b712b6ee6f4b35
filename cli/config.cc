#include "cli/config.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status.h"
#include "spec/nearest.h"

namespace muster::cli {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string DefaultConfigPath() {
  if (const std::string home = Environment("XDG_CONFIG_HOME"); !home.empty()) {
    return home + "/muster/config";
  }
  if (const std::string home = Environment("HOME"); !home.empty()) {
    return home + "/.config/muster/config";
  }
  return "";
}

absl::StatusOr<std::vector<std::string>> ReadConfig(const std::string& path,
                                                    const std::vector<std::string>& names) {
  std::ifstream file(path);
  // A directory opens, and then gives nothing.
  if (!file || file.peek() == std::ifstream::traits_type::eof()) {
    const int error = errno;
    if (!file.is_open() || file.bad()) {
      return absl::NotFoundError(ErrnoStatus(error, absl::StrCat("read ", path)).message());
    }
  }
  std::vector<std::string> flags;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text[0] == '#') continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    const std::string name(absl::StripAsciiWhitespace(parts[0]));
    const std::string where = absl::StrCat(path, ":", number, ": ");
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return absl::InvalidArgumentError(absl::StrCat(where, spec::Quoted(name),
                                                     " is not an option; did you mean '",
                                                     spec::Nearest(name, names), "'?"));
    }
    if (parts.size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat(where, "expected ", name, "=VALUE"));
    }
    flags.push_back(absl::StrCat("--", name, "=", absl::StripAsciiWhitespace(parts[1])));
  }
  return flags;
}

}  // namespace muster::cli

#include "cli/spec/job_env.h"

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/spec/spec_file.h"
#include "common/nearest.h"
#include "common/status.h"
#include "spec/utf8.h"

namespace muster::cli {
namespace {

absl::Status AddFile(const std::string& path, v1::JobSpec& spec) {
  ASSIGN_OR_RETURN(const std::string text, ReadSpecText(path));
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    absl::ConsumeSuffix(&line, "\r");
    line = absl::StripLeadingAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos || !spec::IsUtf8(line)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": expected NAME=VALUE in UTF-8"));
    }
    (*spec.mutable_env())[std::string(line.substr(0, equals))] =
        std::string(line.substr(equals + 1));
  }
  return absl::OkStatus();
}

absl::Status AddEntry(const std::string& entry, v1::JobSpec& spec) {
  const size_t equals = entry.find('=');
  const std::string name = entry.substr(0, equals);
  const char* const own = std::getenv(name.c_str());
  if (equals == std::string::npos && own == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--env ", Quoted(name), ": is not set here; give ", name, "=VALUE"));
  }
  const std::string value = equals == std::string::npos ? own : entry.substr(equals + 1);
  if (!spec::IsUtf8(name) || !spec::IsUtf8(value)) {
    return absl::InvalidArgumentError(absl::StrCat("--env ", Quoted(name), ": is not UTF-8"));
  }
  (*spec.mutable_env())[name] = value;
  return absl::OkStatus();
}

}  // namespace

absl::Status AddVariables(const std::vector<std::string>& files,
                          const std::vector<std::string>& entries, v1::JobSpec& spec) {
  for (const std::string& file : files) RETURN_IF_ERROR(AddFile(file, spec));
  for (const std::string& entry : entries) RETURN_IF_ERROR(AddEntry(entry, spec));
  return absl::OkStatus();
}

}  // namespace muster::cli

#include "cli/spec/spec_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "common/limits.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

absl::Status NotReadable(const std::string& path, int error_number) {
  return absl::NotFoundError(ErrnoStatus(error_number, absl::StrCat("read ", path)).message());
}

}  // namespace

absl::StatusOr<std::string> ReadSpecText(const std::string& path) {
  const bool standard_input = path == "-";
  const int fd = standard_input ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NotReadable(path, errno);
  const auto closer = absl::MakeCleanup([fd, standard_input] {
    if (!standard_input) close(fd);
  });
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t size = read(fd, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return NotReadable(path, errno);
    if (size == 0) break;
    text.append(buffer, size);
    // Stop reading: the file exceeds the limit, however long it is.
    if (text.size() > limits::kSpecBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": larger than ", limits::kSpecBytes, " bytes, the limit for a spec"));
    }
  }
  return text;
}

absl::StatusOr<v1::JobSpec> ReadSpecFile(const std::string& path,
                                         const std::vector<std::string>& overrides,
                                         spec::Amendment amend) {
  ASSIGN_OR_RETURN(const std::string text, ReadSpecText(path));
  return spec::ParseReportingAll(text, path == "-" ? "standard input" : path, overrides, amend);
}

void PrintSpec(const Context& context, const v1::JobSpec& spec, const std::string& text) {
  if (context.output == Output::kJson) return context.Print(ToJson(spec));
  context.console.Out(context.output == Output::kName ? spec.name() + "\n" : text);
}

int SpecExitCode(const absl::Status& status) {
  return status.code() == absl::StatusCode::kNotFound ? kExitNoInput : kExitBadSpec;
}

}  // namespace muster::cli

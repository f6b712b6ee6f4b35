#include "spec/files.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/text/nearest.h"

namespace muster::spec {
namespace {

constexpr size_t kPathBytes = 1024;
constexpr size_t kPartBytes = 255;
constexpr size_t kDigestDigits = 64;

absl::Status CheckFile(const v1::FileSpec& file) {
  if (!IsFilePath(file.path())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "files: ", Quoted(file.path()), " is not a relative path of a file without '.' and '..'"));
  }
  if (!IsSha256(file.sha256())) {
    return absl::InvalidArgumentError(
        absl::StrCat("files: ", file.path(),
                     " has no SHA-256 digest; submit the job with `muster submit` or `muster run`, "
                     "which upload its files"));
  }
  return absl::OkStatus();
}

// `paths` is sorted by part, so that everything below a path follows it.
absl::Status CheckDistinct(const std::set<std::vector<std::string>>& paths) {
  const std::vector<std::string>* before = nullptr;
  for (const std::vector<std::string>& parts : paths) {
    if (before != nullptr && before->size() < parts.size() &&
        std::equal(before->begin(), before->end(), parts.begin())) {
      return absl::InvalidArgumentError(absl::StrCat("files: ", absl::StrJoin(*before, "/"),
                                                     " is both a file and the folder of ",
                                                     absl::StrJoin(parts, "/")));
    }
    before = &parts;
  }
  return absl::OkStatus();
}

}  // namespace

bool IsFilePath(absl::string_view path) {
  if (path.size() > kPathBytes || absl::c_any_of(path, absl::ascii_iscntrl)) return false;
  return absl::c_all_of(absl::StrSplit(path, '/'), [](absl::string_view part) {
    return !part.empty() && part != "." && part != ".." && part.size() <= kPartBytes;
  });
}

bool IsSha256(absl::string_view text) {
  return text.size() == kDigestDigits && absl::c_all_of(text, [](unsigned char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

absl::Status CheckUploadedFiles(const v1::JobSpec& spec) {
  if (static_cast<size_t>(spec.files_size()) > limits::kFiles) {
    return absl::InvalidArgumentError(
        absl::StrCat("files: ", spec.files_size(), " files; the limit is ", limits::kFiles));
  }
  uint64_t bytes = 0;
  std::set<std::vector<std::string>> paths;
  for (const v1::FileSpec& file : spec.files()) {
    RETURN_IF_ERROR(CheckFile(file));
    if (!paths.insert(absl::StrSplit(file.path(), '/')).second) {
      return absl::InvalidArgumentError(absl::StrCat("files: ", file.path(), " is given twice"));
    }
    // Checked one by one, so that the sum cannot overflow.
    if (file.size_bytes() > limits::kFilesBytes - bytes) {
      return absl::InvalidArgumentError(absl::StrCat("files: more than ", limits::kFilesBytes,
                                                     " bytes in all, with ", file.path()));
    }
    bytes += file.size_bytes();
  }
  return CheckDistinct(paths);
}

}  // namespace muster::spec

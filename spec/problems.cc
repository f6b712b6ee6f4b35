#include "spec/problems.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/nearest.h"
#include "spec/utf8.h"

namespace muster::spec {

void Problems::Add(absl::string_view path, absl::string_view text) {
  lines_.push_back(absl::StrCat(path, ": ", text));
}

void Problems::Require(bool good, absl::string_view path, absl::string_view must_be) {
  if (!good) Add(path, absl::StrCat("must be ", must_be));
}

void Problems::RequireText(absl::string_view path, absl::string_view value) {
  if (value.find('\0') != absl::string_view::npos) Add(path, "contains a NUL character");
  if (!IsUtf8(value)) Add(path, "is not UTF-8");
}

void Problems::RequireAbsolutePath(absl::string_view path, const std::string& value) {
  if (!absl::StartsWith(value, "/")) {
    Add(path, absl::StrCat("must be an absolute path on the node, not ", Quoted(value)));
  }
  RequireText(path, value);
}

absl::Status Problems::status() const {
  if (lines_.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(lines_, "\n"));
}

}  // namespace muster::spec

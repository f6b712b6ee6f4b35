#include "spec/rules/problems.h"

#include <cstdint>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/text/nearest.h"

namespace muster::spec {
namespace {

// Whether `path` is `outer` or a field or element inside of it.
bool IsWithin(absl::string_view path, absl::string_view outer) {
  return absl::ConsumePrefix(&path, outer) && (path.empty() || path[0] == '.' || path[0] == '[');
}

absl::string_view SectionOf(absl::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == absl::string_view::npos ? absl::string_view() : path.substr(0, dot);
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const unsigned char lead = text[i++];
    if (lead < 0x80) continue;
    const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || i + more > text.size()) return false;
    uint32_t code = lead & (0x3F >> more);
    for (int k = 0; k < more; ++k, ++i) {
      const unsigned char next = text[i];
      if ((next & 0xC0) != 0x80) return false;
      code = code << 6 | (next & 0x3F);
    }
    constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (code < kLeast[more] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return false;
  }
  return true;
}

void Problems::RequireText(absl::string_view path, absl::string_view value) {
  if (value.find('\0') != absl::string_view::npos) Add(path, "contains a NUL character");
  if (!IsUtf8(value)) Add(path, "is not UTF-8");
}

void Problems::RequireAbsolutePath(absl::string_view path, const std::string& value) {
  if (!absl::StartsWith(value, "/")) {
    Add(path, "must be an absolute path on the node, not ", Quoted(value));
  }
  RequireText(path, value);
}

absl::Status Problems::status() const {
  if (problems_.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(LinesBesides({}), "\n"));
}

std::vector<std::string> Problems::LinesBesides(const UnreadFields& unread) const {
  std::vector<std::string> lines;
  for (const Problem& problem : problems_) {
    const auto concerns = [&problem](const std::string& path) {
      return IsWithin(problem.path, path) || IsWithin(path, problem.path);
    };
    // The misspelt name of a field that seems to be missing.
    const auto misspelt = [&problem](const std::string& section) {
      return problem.missing && (problem.path == section || SectionOf(problem.path) == section);
    };
    if (absl::c_any_of(unread.paths, concerns) || absl::c_any_of(unread.sections, misspelt)) {
      continue;
    }
    lines.push_back(absl::StrCat(problem.path, ": ", problem.text));
  }
  return lines;
}

}  // namespace muster::spec

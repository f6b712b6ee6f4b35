// Collects the problems of a spec, each with the path of its field.
#ifndef MUSTER_SPEC_RULES_PROBLEMS_H_
#define MUSTER_SPEC_RULES_PROBLEMS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace muster::spec {

// Whether `text` is valid UTF-8 as protobuf requires for strings: shortest forms only, no
// surrogates, code points up to U+10FFFF.
bool IsUtf8(absl::string_view text);

// Paths of fields that were given but could not be read.
struct UnreadFields {
  std::vector<std::string> paths;
  std::vector<std::string> sections;  // sections with unknown fields; "": the spec itself
};

class Problems {
 public:
  // Adds "path: text"; `parts` are the text.
  template <typename... Parts>
  void Add(absl::string_view path, const Parts&... parts) {
    problems_.push_back({std::string(path), absl::StrCat(parts...)});
  }
  // As Add, for a problem of a field that is not given.
  template <typename... Parts>
  void AddMissing(absl::string_view path, const Parts&... parts) {
    problems_.push_back({std::string(path), absl::StrCat(parts...), /*missing=*/true});
  }
  // Adds "path: must be …" unless `good`.
  template <typename... Parts>
  void Require(bool good, absl::string_view path, const Parts&... must_be) {
    if (!good) Add(path, "must be ", must_be...);
  }
  // Adds a problem unless the text is UTF-8 without NUL, as process arguments and environment
  // require.
  void RequireText(absl::string_view path, absl::string_view value);
  void RequireAbsolutePath(absl::string_view path, const std::string& value);

  // OK, or INVALID_ARGUMENT with one line per problem.
  absl::Status status() const;

  // One line per problem, without those that may result from unread fields.
  std::vector<std::string> LinesBesides(const UnreadFields& unread) const;

 private:
  struct Problem {
    std::string path;
    std::string text;
    bool missing = false;
  };
  std::vector<Problem> problems_;
};

}  // namespace muster::spec

#endif  // MUSTER_SPEC_RULES_PROBLEMS_H_

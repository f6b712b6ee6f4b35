// Collects the problems of a spec, each with the path of its field.
#ifndef MUSTER_SPEC_PROBLEMS_H_
#define MUSTER_SPEC_PROBLEMS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace muster::spec {

// Paths of fields that were given but could not be read.
struct UnreadFields {
  std::vector<std::string> paths;
  std::vector<std::string> sections;  // sections with unknown fields; "": the spec itself
};

class Problems {
 public:
  void Add(absl::string_view path, absl::string_view text);
  // Adds "path: text", a problem of a field that is not given.
  void AddMissing(absl::string_view path, absl::string_view text);
  // Adds "path: must be …" unless `good`.
  void Require(bool good, absl::string_view path, absl::string_view must_be);
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

#endif  // MUSTER_SPEC_PROBLEMS_H_

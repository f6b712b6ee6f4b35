// Collects the problems of a spec, each with the path of its field.
#ifndef MUSTER_SPEC_PROBLEMS_H_
#define MUSTER_SPEC_PROBLEMS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace muster::spec {

class Problems {
 public:
  void Add(absl::string_view path, absl::string_view text);
  // Adds "path: must be …" unless `good`.
  void Require(bool good, absl::string_view path, absl::string_view must_be);
  // Adds a problem unless the text is UTF-8 without NUL, as process arguments and environment
  // require.
  void RequireText(absl::string_view path, absl::string_view value);
  void RequireAbsolutePath(absl::string_view path, const std::string& value);

  // OK, or INVALID_ARGUMENT with one line per problem.
  absl::Status status() const;

 private:
  std::vector<std::string> lines_;
};

}  // namespace muster::spec

#endif  // MUSTER_SPEC_PROBLEMS_H_

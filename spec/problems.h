// What is wrong with a spec, collected by field path.
#ifndef MUSTER_SPEC_PROBLEMS_H_
#define MUSTER_SPEC_PROBLEMS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/duration.pb.h"

namespace muster::spec {

class Problems {
 public:
  void Add(absl::string_view path, absl::string_view text);
  // Adds "path: must be …" unless `good`.
  void Require(bool good, absl::string_view path, absl::string_view must_be);
  // One of `built_in`; a word of `known` gets told that this build is without it, any other the
  // nearest word.
  void RequireWord(absl::string_view path, const std::string& word,
                   absl::Span<const std::string> built_in,
                   absl::Span<const std::string> known = {});
  // Adds "path: is an option of …" unless `good`: it is not given, or given where it belongs.
  void RequireOption(bool good, absl::string_view path, absl::string_view owner);
  // Within [low, high] and finite.
  void RequireRange(absl::string_view path, double value, double low, double high);
  // A valid message within [1 s or zero, 10 years].
  void RequireDuration(absl::string_view path, const google::protobuf::Duration& duration,
                       bool zero_allowed);
  // Something that a process can be given: UTF-8 without NUL.
  void RequireText(absl::string_view path, absl::string_view value);
  void RequireAbsolutePath(absl::string_view path, const std::string& value);

  // OK, or INVALID_ARGUMENT with a line for each problem.
  absl::Status status() const;

 private:
  std::vector<std::string> lines_;
};

}  // namespace muster::spec

#endif  // MUSTER_SPEC_PROBLEMS_H_

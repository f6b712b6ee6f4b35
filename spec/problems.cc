#include "spec/problems.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/proto_time.h"
#include "spec/nearest.h"
#include "spec/utf8.h"

namespace muster::spec {
namespace {

constexpr absl::Duration kLongest = absl::Hours(24 * 3650);

bool Contains(absl::Span<const std::string> words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

void Problems::Add(absl::string_view path, absl::string_view text) {
  lines_.push_back(absl::StrCat(path, ": ", text));
}

void Problems::Require(bool good, absl::string_view path, absl::string_view must_be) {
  if (!good) Add(path, absl::StrCat("must be ", must_be));
}

void Problems::RequireOption(bool good, absl::string_view path, absl::string_view owner) {
  if (!good) Add(path, absl::StrCat("is an option of ", owner));
}

void Problems::RequireWord(absl::string_view path, const std::string& word,
                           absl::Span<const std::string> built_in,
                           absl::Span<const std::string> known) {
  if (Contains(built_in, word)) return;
  const std::string choices = absl::StrJoin(built_in, ", ");
  if (word.empty()) {
    Add(path, absl::StrCat("is missing; one of: ", choices));
  } else if (Contains(known, word)) {
    Add(path, absl::StrCat(word, " is not built in; built in: ", choices));
  } else {
    const std::string nearest = Nearest(word, built_in);
    Add(path, absl::StrCat("unknown ", Quoted(word), "; did you mean '", nearest,
                           "'? Built in: ", choices));
  }
}

void Problems::RequireRange(absl::string_view path, double value, double low, double high) {
  // Written so that NaN is refused.
  if (value >= low && value <= high) return;
  Add(path, absl::StrCat("must be from ", low, " to ", high, ", not ", value));
}

void Problems::RequireDuration(absl::string_view path, const google::protobuf::Duration& duration,
                               bool zero_allowed) {
  const bool in_range = duration.seconds() >= 0 && duration.nanos() >= 0 &&
                        duration.nanos() < 1'000'000'000 &&
                        duration.seconds() <= absl::ToInt64Seconds(kLongest);
  const absl::Duration least = zero_allowed ? absl::ZeroDuration() : absl::Seconds(1);
  Require(in_range && FromProto(duration) >= least, path,
          absl::StrCat("from ", zero_allowed ? "0s" : "1s", " to ten years"));
}

void Problems::RequireText(absl::string_view path, absl::string_view value) {
  if (value.find('\0') != absl::string_view::npos) Add(path, "holds a NUL character");
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

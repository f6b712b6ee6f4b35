// Names of secrets.
#ifndef MUSTER_COMMON_SECRET_NAME_H_
#define MUSTER_COMMON_SECRET_NAME_H_

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/limits.h"

namespace muster {

// Whether the text can be the name of a file in a folder of secrets: letters, digits, '-', '_' and
// '.', not at the beginning, at most limits::kNameLength of them.
inline bool IsSecretName(absl::string_view name) {
  if (name.empty() || name.size() > limits::kNameLength || name.front() == '.') return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.') {
      return false;
    }
  }
  return true;
}

// Errors: INVALID_ARGUMENT.
inline absl::Status CheckSecretName(absl::string_view name) {
  if (IsSecretName(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "secret '", absl::CHexEscape(name.substr(0, 100)),
      "': a name consists of 1 to ", limits::kNameLength,
      " letters, digits, '-', '_' and '.', and does not begin with '.'"));
}

}  // namespace muster

#endif  // MUSTER_COMMON_SECRET_NAME_H_

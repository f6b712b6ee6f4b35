#include "worker/agent/generation/rank_token.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker/shim/mark.h"

namespace muster::agent {

std::string TokenIn(const shim::Instructions& instructions) {
  for (const std::string& entry : instructions.environment) {
    if (absl::StartsWith(entry, kTokenVariable)) {
      return std::string(absl::StripPrefix(entry, kTokenVariable));
    }
  }
  return "";
}

std::string ShimEntry(const shim::Instructions& instructions) {
  if (instructions.mark != 0) return shim::MarkEntry(instructions.mark);
  return absl::StrCat(kTokenVariable, TokenIn(instructions));
}

bool SameToken(const std::string& a, const std::string& b) {
  if (a.size() != b.size() || a.empty()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace muster::agent

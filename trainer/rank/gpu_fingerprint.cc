#include "trainer/rank/gpu_fingerprint.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/limits.h"
#include "common/sha256.h"

namespace muster::rank {
namespace {

bool MustBeEqual(absl::string_view variable) {
  const absl::string_view name = variable.substr(0, variable.find('='));
  return absl::StartsWith(name, "NCCL_") && !absl::StartsWith(name, "NCCL_DEBUG") &&
         name != "NCCL_HOSTID" && name != "NCCL_SOCKET_IFNAME";
}

// Truncates text to the maximum length of an entry, with a digest of the full text at the end.
std::string Bounded(const std::string& text) {
  constexpr size_t kShownDigits = 16;
  constexpr absl::string_view kCut = "... sha256 ";
  if (text.size() <= limits::kLabelBytes) return text;
  return absl::StrCat(text.substr(0, limits::kLabelBytes - kCut.size() - kShownDigits), kCut,
                      Sha256Hex(text).substr(0, kShownDigits));
}

std::string VariablesText(const char* const* environment) {
  std::vector<std::string> variables;
  for (; *environment != nullptr; ++environment) {
    // Escaped, because the environment may contain unprintable text.
    if (MustBeEqual(*environment)) variables.push_back(absl::CHexEscape(*environment));
  }
  std::sort(variables.begin(), variables.end());
  return Bounded(absl::StrJoin(variables, " "));
}

}  // namespace

std::vector<v1::FingerprintEntry> GpuFingerprint(const std::string& nccl_version,
                                                 const std::string& driver_version,
                                                 const char* const* environment) {
  std::vector<v1::FingerprintEntry> entries;
  const auto add = [&entries](const char* name, const std::string& value) {
    if (value.empty()) return;
    v1::FingerprintEntry& entry = entries.emplace_back();
    entry.set_name(name);
    entry.set_value(value);
  };
  add("NCCL", nccl_version);
  add("driver", driver_version);
  add("NCCL variables", VariablesText(environment));
  return entries;
}

}  // namespace muster::rank

#include "coordinator/core/owners/priority_class.h"

#include <iterator>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace muster::core {
namespace {

constexpr absl::string_view kClasses[] = {"low", "normal", "high", "critical"};

}  // namespace

std::optional<int> RankOfClass(absl::string_view name) {
  if (name.empty()) name = "normal";
  for (size_t i = 0; i < std::size(kClasses); ++i) {
    if (kClasses[i] == name) return static_cast<int>(i);
  }
  return std::nullopt;
}

absl::Status CheckPriorityClass(absl::string_view name, bool is_admin,
                                const SchedulerOptions& options) {
  const std::optional<int> rank = RankOfClass(name);
  if (!rank.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("priority_class: '", absl::CHexEscape(name),
                     "' is not a class; use low, normal, high or critical"));
  }
  const char* const role = is_admin ? "admin" : "submit";
  const auto configured = options.highest_class.find(role);
  const std::string highest =
      configured == options.highest_class.end() ? "normal" : configured->second;
  if (*rank <= RankOfClass(highest).value_or(0)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("priority_class: ", name, " is above ", highest, ", the highest class of role ",
                   role, "; use ", highest,
                   is_admin ? "" : ", or have an admin submit the job"));
}

}  // namespace muster::core

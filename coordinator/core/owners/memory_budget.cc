#include "coordinator/core/owners/memory_budget.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::core {
namespace {

absl::Status CheckLimit(const std::string& whose, size_t used, size_t bytes, size_t limit) {
  if (bytes <= limit && used <= limit - bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      whose, " use ", used, " bytes of the coordinator's memory, and ", bytes,
      " more would exceed the limit of ", limit,
      "; cancel some or wait until some have been finished for a minute, or raise --job-memory of "
      "the coordinator"));
}

}  // namespace

absl::Status MemoryBudget::Check(const std::string& owner, size_t bytes) const {
  const std::string whose =
      owner.empty() ? "the jobs without an owner" : absl::StrCat("the jobs of ", owner);
  RETURN_IF_ERROR(CheckLimit(whose, UsedBy(owner), bytes, limit_ / 2));
  return CheckLimit("the jobs of all owners", used_, bytes, limit_);
}

bool MemoryBudget::OwnerHasRoom(const std::string& owner, size_t bytes) const {
  return UsedBy(owner) + bytes <= limit_ / 2;
}

bool MemoryBudget::IsFarBeyond(const std::string& owner) const {
  const size_t limit = limit_ + limit_ / 8;
  return UsedBy(owner) > limit / 2 || used_ > limit;
}

size_t MemoryBudget::UsedBy(const std::string& owner) const {
  const auto entry = by_owner_.find(owner);
  return entry == by_owner_.end() ? 0 : entry->second;
}

void MemoryBudget::Add(const std::string& owner, size_t bytes) {
  if (bytes == 0) return;
  used_ += bytes;
  by_owner_[owner] += bytes;
}

void MemoryBudget::Remove(const std::string& owner, size_t bytes) {
  if (bytes == 0) return;
  used_ -= bytes;
  const auto entry = by_owner_.find(owner);
  entry->second -= bytes;
  if (entry->second == 0) by_owner_.erase(entry);
}

}  // namespace muster::core

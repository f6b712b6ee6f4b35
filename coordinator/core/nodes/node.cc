#include "coordinator/core/nodes/node.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/version.h"

namespace muster::core {
namespace {

bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= limits::kNameLength &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' ||
                  c == '_';
         });
}

absl::string_view NameOfKind(const v1::Slot& slot) {
  return slot.kind().empty() ? absl::string_view("cpu") : absl::string_view(slot.kind());
}

}  // namespace

bool Node::IsFenced(Incarnation incarnation) const {
  const auto& fenced = record.fenced_incarnations();
  return std::find(fenced.begin(), fenced.end(), incarnation.value()) != fenced.end();
}

bool Node::IsSlotUsable(const v1::Slot& slot) const {
  const bool healthy = slot.unavailable().empty() || slot.returning();
  return healthy && ranks.FindUnkillable(slot.index()) == nullptr;
}

std::vector<v1::SlotCondition> Node::SetConditions(const v1::SlotReport& report) {
  std::map<uint32_t, const v1::SlotCondition*> conditions;
  for (const v1::SlotCondition& condition : report.conditions()) {
    conditions[condition.index()] = &condition;
  }
  std::vector<v1::SlotCondition> unhealthy;
  for (v1::Slot& slot : *hello.mutable_slots()) {
    const auto found = conditions.find(slot.index());
    const v1::SlotCondition condition =
        found == conditions.end() ? v1::SlotCondition() : *found->second;
    const bool is_unhealthy = !condition.unavailable().empty() && !condition.returning();
    if (is_unhealthy && (slot.returning() || slot.unavailable() != condition.unavailable())) {
      unhealthy.push_back(condition);
    }
    slot.set_unavailable(condition.unavailable());
    slot.set_returning(condition.returning());
  }
  return unhealthy;
}

std::string Node::NameOfSlot(uint32_t slot) const {
  for (const v1::Slot& offered : hello.slots()) {
    if (offered.index() != slot || !offered.has_device()) continue;
    return absl::StrCat("GPU ", offered.device().index(), " (", offered.uuid(), ") of ",
                        record.name());
  }
  return absl::StrCat("slot ", slot, " of ", record.name());
}

std::string Node::KindOf(uint32_t slot) const {
  for (const v1::Slot& offered : hello.slots()) {
    if (offered.index() == slot) return std::string(NameOfKind(offered));
  }
  return "";
}

std::string Node::UuidOf(uint32_t slot) const {
  for (const v1::Slot& offered : hello.slots()) {
    if (offered.index() == slot) return offered.uuid();
  }
  return "";
}

std::set<std::string> Node::Kinds() const {
  std::set<std::string> kinds;
  for (const v1::Slot& slot : hello.slots()) kinds.emplace(NameOfKind(slot));
  return kinds;
}

uint32_t Node::SlotCount(absl::string_view kind) const {
  return static_cast<uint32_t>(
      std::count_if(hello.slots().begin(), hello.slots().end(),
                    [kind](const v1::Slot& slot) { return NameOfKind(slot) == kind; }));
}

uint32_t Node::UsableSlots(absl::string_view kind) const {
  return static_cast<uint32_t>(
      std::count_if(hello.slots().begin(), hello.slots().end(), [&](const v1::Slot& slot) {
        return (kind.empty() || NameOfKind(slot) == kind) && IsSlotUsable(slot);
      }));
}

std::optional<FreeNode> Node::Offer(absl::string_view kind, Offers offers) const {
  if (state == v1::LOST || leaving) return std::nullopt;
  const bool takes_ranks = !record.cordoned() && conflict.empty() && !IsCoolingDown();
  if (offers != Offers::kAll && !takes_ranks) return std::nullopt;
  if (offers == Offers::kNow && state != v1::READY) return std::nullopt;
  FreeNode offer;
  offer.name = record.name();
  const auto rack = hello.labels().find("rack");
  if (rack != hello.labels().end()) offer.rack = rack->second;
  offer.address = address;
  offer.incarnation = record.incarnation();
  offer.slots = &hello.slots();
  offer.last_resort = record.failed_launches() > 0;
  for (const v1::Slot& slot : hello.slots()) {
    if (NameOfKind(slot) != kind) continue;
    // Unusable slots are left out, as if the node did not have them.
    if (offers != Offers::kAll && !IsSlotUsable(slot)) continue;
    ++offer.slot_count;
    if (offers == Offers::kNow && (ranks.by_slot().count(slot.index()) != 0 || slot.returning())) {
      continue;
    }
    offer.free_slots.push_back(slot.index());
  }
  std::sort(offer.free_slots.begin(), offer.free_slots.end());
  if (offers == Offers::kNow &&
      (ranks.MayHaveLeftoverOn({}) || ranks.exclusive_job().has_value())) {
    offer.free_slots.clear();
  }
  return offer;
}

absl::Status CheckHello(const v1::Hello& hello) {
  if (CommonProtocolVersion(hello.protocol_version(), hello.newest_protocol_version()) == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the worker uses protocol ", hello.protocol_version(), " (Muster ",
        hello.software_version(), "), but this coordinator uses protocols ", kOldestProtocolVersion,
        " to ", kProtocolVersion, " (Muster ", kSoftwareVersion, ")"));
  }
  if (!IsName(hello.node_name())) {
    return absl::InvalidArgumentError(
        absl::StrCat("node name \"", hello.node_name(), "\" is invalid: it must have 1 to ",
                     limits::kNameLength, " letters, digits, '-', '_' and '.'"));
  }
  if (hello.incarnation() == 0) return absl::InvalidArgumentError("incarnation is missing");
  return absl::OkStatus();
}

std::string CompleteAddress(const std::string& metrics_address, const std::string& address) {
  if (!absl::StartsWith(metrics_address, ":")) return metrics_address;
  const bool bare_ipv6 = absl::StrContains(address, ':') && !absl::StartsWith(address, "[");
  return bare_ipv6 ? absl::StrCat("[", address, "]", metrics_address)
                   : absl::StrCat(address, metrics_address);
}

}  // namespace muster::core

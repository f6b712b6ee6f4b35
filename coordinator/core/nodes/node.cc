#include "coordinator/core/nodes/node.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/time/proto_time.h"
#include "common/version.h"
#include "coordinator/core/steady_clock.h"

namespace muster::core {
namespace {

constexpr int kFencedIncarnations = 16;

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

void Node::Replace(Incarnation incarnation) {
  if (record.incarnation() != 0) {
    auto& fenced = *record.mutable_fenced_incarnations();
    if (fenced.size() == kFencedIncarnations) fenced.erase(fenced.begin());
    fenced.Add(record.incarnation());
  }
  record.set_incarnation(incarnation.value());
}

bool Node::HasLeftover(const RankRef& rank) const {
  const auto entry = leftovers.find({rank.job, rank.generation});
  return entry != leftovers.end() && entry->second.count(rank.rank) != 0;
}

std::vector<uint32_t> Node::SlotsOf(const RankRef& rank) const {
  std::vector<uint32_t> slots;
  for (const auto& [slot, holder] : busy) {
    if (holder == rank) slots.push_back(slot);
  }
  return slots;
}

bool Node::MayHaveLeftoverOn(const std::vector<uint32_t>& slots) const {
  for (const auto& [generation, ranks] : leftovers) {
    for (const uint32_t rank : ranks) {
      const std::vector<uint32_t> held = SlotsOf({generation.first, generation.second, rank});
      if (held.empty()) return true;  // unknown, because its generation has no record
      if (std::find_first_of(held.begin(), held.end(), slots.begin(), slots.end()) != held.end()) {
        return true;
      }
    }
  }
  return false;
}

void Node::Occupy(const RankRef& rank, const std::vector<uint32_t>& slots, bool exclusive) {
  for (const uint32_t slot : slots) busy.emplace(slot, rank);
  if (exclusive) exclusive_job = rank.job;
}

void Node::Vacate(const RankRef& rank) {
  for (auto entry = busy.begin(); entry != busy.end();) {
    entry = entry->second == rank ? busy.erase(entry) : std::next(entry);
  }
  std::erase_if(unkillable, [&rank](const UnkillableRank& held) { return held.rank == rank; });
  const bool is_left = std::any_of(busy.begin(), busy.end(), [this](const auto& entry) {
    return entry.second.job == exclusive_job;
  });
  if (!is_left) exclusive_job.reset();
}

const UnkillableRank* Node::FindUnkillable(uint32_t slot) const {
  const auto [first, end] = busy.equal_range(slot);
  for (const UnkillableRank& held : unkillable) {
    if (std::any_of(first, end, [&held](const auto& entry) { return entry.second == held.rank; })) {
      return &held;
    }
  }
  return nullptr;
}

bool Node::IsSlotUsable(const v1::Slot& slot) const {
  const bool healthy = slot.unavailable().empty() || slot.returning();
  return healthy && FindUnkillable(slot.index()) == nullptr;
}

std::vector<std::pair<JobId, Generation>> Node::PlacedGenerations() const {
  std::set<std::pair<JobId, Generation>> placed;
  for (const auto& [slot, rank] : busy) {
    if (!HasLeftover(rank)) placed.emplace(rank.job, rank.generation);
  }
  return {placed.begin(), placed.end()};
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

FreeNode Node::Describe() const {
  FreeNode described;
  described.name = record.name();
  const auto rack = hello.labels().find("rack");
  if (rack != hello.labels().end()) described.rack = rack->second;
  described.address = address;
  described.incarnation = record.incarnation();
  described.slots = &hello.slots();
  described.last_resort = record.failed_launches() > 0;
  return described;
}

std::optional<FreeNode> Node::IdleOffer(absl::string_view kind) const {
  if (state == v1::LOST || leaving) return std::nullopt;
  FreeNode idle = Describe();
  for (const v1::Slot& slot : hello.slots()) {
    if (NameOfKind(slot) == kind) idle.free_slots.push_back(slot.index());
  }
  std::sort(idle.free_slots.begin(), idle.free_slots.end());
  idle.slot_count = static_cast<uint32_t>(idle.free_slots.size());
  return idle;
}

std::optional<FreeNode> Node::VacantOffer(absl::string_view kind) const {
  if (state == v1::LOST || !TakesRanks()) return std::nullopt;
  FreeNode vacant = Describe();
  for (const v1::Slot& slot : hello.slots()) {
    if (NameOfKind(slot) == kind && IsSlotUsable(slot)) vacant.free_slots.push_back(slot.index());
  }
  std::sort(vacant.free_slots.begin(), vacant.free_slots.end());
  vacant.slot_count = static_cast<uint32_t>(vacant.free_slots.size());
  return vacant;
}

std::optional<FreeNode> Node::Offer(absl::string_view kind) const {
  if (state != v1::READY || !TakesRanks()) return std::nullopt;
  FreeNode free = Describe();
  for (const v1::Slot& slot : hello.slots()) {
    if (NameOfKind(slot) != kind) continue;
    // Unusable slots are left out, as if the node did not have them.
    if (!IsSlotUsable(slot)) continue;
    ++free.slot_count;
    if (busy.count(slot.index()) == 0 && !slot.returning()) free.free_slots.push_back(slot.index());
  }
  std::sort(free.free_slots.begin(), free.free_slots.end());
  if (MayHaveLeftoverOn({}) || exclusive_job.has_value()) free.free_slots.clear();
  return free;
}

v1::Node Node::View(const Time& now) const {
  v1::Node node;
  node.set_name(record.name());
  node.set_state(state);
  node.set_cordoned(record.cordoned());
  node.set_cordon_reason(record.cordon_reason());
  node.set_leaving(leaving);
  node.set_machine_id(record.machine_id());
  node.set_conflict(conflict);
  node.set_incarnation(record.incarnation());
  node.set_address(address);
  node.set_metrics_address(metrics_address);
  *node.mutable_labels() = hello.labels();
  node.set_software_version(hello.software_version());
  node.set_cpu_count(hello.cpu_count());
  node.set_memory_bytes(hello.memory_bytes());
  if (seen) *node.mutable_heartbeat_age() = ToProto(now.steady - last_heard);
  node.set_failed_launches(record.failed_launches());
  if (IsCoolingDown()) {
    *node.mutable_cool_down() =
        ToProto(std::max(FromStored(record.cool_down_until()) - now.steady, absl::ZeroDuration()));
  }
  node.set_launch_failure(record.launch_failure());
  node.set_limits_unavailable(hello.limits_unavailable());
  node.set_cordoned_by_health(record.cordoned_by_health());
  if (record.has_drain_until() && !busy.empty()) {
    *node.mutable_drain_deadline() =
        ToProto(std::max(FromStored(record.drain_until()) - now.steady, absl::ZeroDuration()));
  }
  const bool is_tested = !self_test.report.checks().empty();
  if (self_test.running || is_tested) node.mutable_self_test()->set_running(self_test.running);
  if (is_tested) {
    *node.mutable_self_test()->mutable_checks() = self_test.report.checks();
    *node.mutable_self_test()->mutable_age() = ToProto(now.steady - self_test.answered);
    *node.mutable_self_test()->mutable_duration() = self_test.report.duration();
  }
  for (const v1::Slot& offered : hello.slots()) {
    v1::Slot& slot = *node.add_slots();
    slot.set_index(offered.index());
    slot.set_kind(offered.kind());
    slot.set_uuid(offered.uuid());
    slot.set_unavailable(offered.unavailable());
    slot.set_returning(offered.returning());
    if (offered.has_device()) *slot.mutable_device() = offered.device();
    if (const UnkillableRank* const held = FindUnkillable(offered.index())) {
      slot.set_unavailable(core::Describe(*held));
      slot.set_returning(false);
    }
    const auto holder = busy.find(offered.index());
    if (holder == busy.end()) continue;
    slot.set_job_id(holder->second.job.value());
    slot.set_generation(holder->second.generation.value());
    slot.set_rank(holder->second.rank);
  }
  return node;
}

std::string Describe(const UnkillableRank& held) {
  return absl::StrCat("unkillable rank ", held.rank.rank, " of ", held.rank.job.value(),
                      held.pid > 0 ? absl::StrCat(", pid ", held.pid) : "");
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

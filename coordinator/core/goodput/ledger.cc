#include "coordinator/core/goodput/ledger.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "common/time/proto_time.h"

namespace muster::core {
namespace {

void AddTimes(const Ledger::Entry& from, Ledger::Entry& to) {
  to.wall_time += from.wall_time;
  to.slot_time += from.slot_time;
}

}  // namespace

std::string NameOf(v1::TimeCause cause) {
  const std::string name = v1::TimeCause_Name(cause);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "TIME_"));
}

Ledger::Ledger(const Records& records) {
  for (const v1::TimeAccountRecord::Entry& record : records) {
    if (!v1::TimeCause_IsValid(record.cause())) continue;
    Add({record.cause(), record.node(), FromProto(record.wall_time()),
         FromProto(record.slot_time())});
  }
}

void Ledger::Add(Entry added) {
  if (added.wall_time == absl::ZeroDuration() && added.slot_time == absl::ZeroDuration()) return;
  const auto place = [this](const Entry& entry) {
    return std::lower_bound(entries_.begin(), entries_.end(), entry,
                            [](const Entry& a, const Entry& b) {
                              return std::tie(a.cause, a.node) < std::tie(b.cause, b.node);
                            });
  };
  const auto is_at = [&](std::vector<Entry>::iterator at) {
    return at != entries_.end() && at->cause == added.cause && at->node == added.node;
  };
  auto at = place(added);
  if (!is_at(at) && !added.node.empty()) {
    const auto nodes = std::count_if(entries_.begin(), entries_.end(),
                                     [](const Entry& entry) { return !entry.node.empty(); });
    if (nodes >= static_cast<std::ptrdiff_t>(kNodes)) {
      added.node.clear();
      at = place(added);
    }
  }
  if (is_at(at)) {
    AddTimes(added, *at);
  } else {
    entries_.insert(at, std::move(added));
  }
}

void Ledger::Add(const Ledger& other) {
  for (const Entry& entry : other.entries_) Add(entry);
}

Ledger::Entry Ledger::Of(v1::TimeCause cause) const {
  Entry sum;
  sum.cause = cause;
  for (const Entry& entry : entries_) {
    if (entry.cause == cause) AddTimes(entry, sum);
  }
  return sum;
}

Ledger::Entry Ledger::Total() const {
  Entry sum;
  for (const Entry& entry : entries_) AddTimes(entry, sum);
  return sum;
}

Ledger::Records Ledger::ToRecords() const {
  Records records;
  for (const Entry& entry : entries_) {
    v1::TimeAccountRecord::Entry& record = *records.Add();
    record.set_cause(entry.cause);
    record.set_node(entry.node);
    *record.mutable_wall_time() = ToProto(entry.wall_time);
    *record.mutable_slot_time() = ToProto(entry.slot_time);
  }
  return records;
}

}  // namespace muster::core

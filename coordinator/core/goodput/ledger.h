// Time by cause: wall time, and slot time, which is wall time multiplied by the slots held.
#ifndef MUSTER_COORDINATOR_CORE_GOODPUT_LEDGER_H_
#define MUSTER_COORDINATOR_CORE_GOODPUT_LEDGER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "google/protobuf/repeated_field.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

// "preparing_data" for TIME_PREPARING_DATA: the name in the API, in metrics and in reports.
std::string NameOf(v1::TimeCause cause);

class Ledger {
 public:
  struct Entry {
    v1::TimeCause cause = v1::TIME_CAUSE_UNSPECIFIED;
    std::string node;  // TIME_LOST_TO_NODE only
    absl::Duration wall_time;
    absl::Duration slot_time;
  };
  using Records = google::protobuf::RepeatedPtrField<v1::TimeAccountRecord::Entry>;

  // Nodes with entries of their own; time lost to further nodes is added up under the name "".
  static constexpr size_t kNodes = 64;

  Ledger() = default;
  // Ignores causes that this version does not know.
  explicit Ledger(const Records& records);

  // No entry is added for no time.
  void Add(Entry added);
  void Add(const Ledger& other);

  // By cause and node.
  const std::vector<Entry>& entries() const { return entries_; }
  // The sum over all nodes.
  Entry Of(v1::TimeCause cause) const;
  // The sum over all causes.
  Entry Total() const;
  Records ToRecords() const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_GOODPUT_LEDGER_H_

#include "coordinator/core/steady_clock.h"

#include <algorithm>

#include "common/time/proto_time.h"

namespace muster::core {

void SteadyClock::Continue(const v1::CommitRecord& last, Time machine) {
  SteadyTime now(machine.wall - absl::UnixEpoch());
  if (last.has_time()) {
    const SteadyTime committed(FromProto(last.machine_time()));
    const bool same_boot =
        !boot_id_.empty() && last.boot_id() == boot_id_ && committed <= machine.steady;
    const absl::Duration elapsed = same_boot
                                       ? machine.steady - committed
                                       : std::clamp(machine.wall - FromProto(last.wall_time()),
                                                    absl::ZeroDuration(), kLongestDowntime);
    now = FromStored(last.time()) + elapsed;
  }
  offset_ = now - machine.steady;
}

void SteadyClock::Note(Time now, v1::CommitRecord& commit) const {
  *commit.mutable_time() = ToStored(now.steady);
  *commit.mutable_wall_time() = ToProto(now.wall);
  commit.set_boot_id(boot_id_);
  *commit.mutable_machine_time() = ToProto(OnMachine(now.steady).since_start());
}

google::protobuf::Timestamp ToStored(SteadyTime time) {
  return ToProto(absl::UnixEpoch() + time.since_start());
}

SteadyTime FromStored(const google::protobuf::Timestamp& time) {
  return SteadyTime(FromProto(time) - absl::UnixEpoch());
}

}  // namespace muster::core

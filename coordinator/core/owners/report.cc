// OwnerTable: reports the use of the cluster.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/time/proto_time.h"
#include "coordinator/core/owners/owner_table.h"
#include "coordinator/core/owners/wait_histogram.h"

namespace muster::core {
namespace {

using Row = v1::GetReportResponse::Owner;

// An owner's part of the report, or the total.
struct Part {
  Row row;
  WaitCounts waits;
  std::map<v1::TimeCause, double> causes;  // slot-seconds
};

void Add(const Owner::Day& day, Part& part) {
  Row& row = part.row;
  row.set_cpu_slot_seconds(row.cpu_slot_seconds() + day.cpu_slot_seconds());
  row.set_gpu_slot_seconds(row.gpu_slot_seconds() + day.gpu_slot_seconds());
  row.set_jobs_submitted(row.jobs_submitted() + day.jobs_submitted());
  row.set_jobs_succeeded(row.jobs_succeeded() + day.jobs_succeeded());
  row.set_jobs_failed(row.jobs_failed() + day.jobs_failed());
  row.set_jobs_cancelled(row.jobs_cancelled() + day.jobs_cancelled());
  row.set_jobs_timed_out(row.jobs_timed_out() + day.jobs_timed_out());
  MergeWaits(day.waits(), part.waits);
  for (const auto& time : day.causes()) part.causes[time.cause()] += time.slot_seconds();
}

Row Complete(Part part) {
  const std::optional<absl::Duration> median = WaitPercentile(part.waits, 0.5);
  if (median.has_value()) {
    *part.row.mutable_median_wait() = ToProto(*median);
    *part.row.mutable_wait_p95() = ToProto(*WaitPercentile(part.waits, 0.95));
    *part.row.mutable_longest_wait() = ToProto(*WaitPercentile(part.waits, 1));
  }
  double all = 0;
  for (const auto& [cause, slot_seconds] : part.causes) {
    Row::Cause& time = *part.row.add_causes();
    time.set_cause(NameOf(cause));
    time.set_slot_seconds(slot_seconds);
    all += slot_seconds;
  }
  if (all > 0) part.row.set_goodput_ratio(part.causes[v1::TIME_PRODUCTIVE] / all);
  return std::move(part.row);
}

double Ratio(double used, uint32_t slots, absl::Duration time) {
  const double present = slots * absl::ToDoubleSeconds(time);
  return present > 0 ? used / present : 0;
}

}  // namespace

v1::GetReportResponse OwnerTable::Report(uint32_t days, const std::vector<Unstarted>& unstarted,
                                         const std::vector<Running>& running,
                                         const SlotCount& present, Time now) const {
  const uint32_t today = DayOf(now.steady);
  const uint32_t first = today - std::min(today, std::max(days, 1u) - 1);
  uint32_t oldest = today;  // with use or jobs
  std::map<std::string, Part> parts;
  Part total;
  const auto add = [&](const std::string& owner, const Owner::Day& day) {
    if (day.day() < first || day.day() > today) return;
    oldest = std::min(oldest, day.day());
    Add(day, parts[owner]);
    Add(day, total);
  };
  std::map<std::string, std::vector<const Running*>> generations;
  for (const Running& generation : running) generations[generation.owner].push_back(&generation);
  for (const auto& [name, owner] : owners_) {
    Owner charged = owner;
    charged.Charge(now.steady);
    for (const Running* const generation : generations[name]) {
      charged.AddCauses(generation->spent, generation->begin, now.steady);
    }
    for (const auto& [number, day] : charged.days()) add(name, day);
  }
  for (const Unstarted& job : unstarted) {
    Owner::Day day;
    day.set_day(DayOf(job.submitted));
    day.set_jobs_submitted(1);
    add(job.owner, day);
  }

  v1::GetReportResponse response;
  for (auto& [name, part] : parts) {
    part.row.set_owner(name);
    *response.add_owners() = Complete(std::move(part));
  }
  *response.mutable_total() = Complete(std::move(total));
  const absl::Duration reported = now.steady - StartOfDay(oldest);
  *response.mutable_since() = ToProto(now.wall - reported);
  response.set_cpu_utilization_ratio(
      Ratio(response.total().cpu_slot_seconds(), present.cpu, reported));
  response.set_gpu_utilization_ratio(
      Ratio(response.total().gpu_slot_seconds(), present.gpu, reported));
  return response;
}

}  // namespace muster::core

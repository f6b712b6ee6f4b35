#include "coordinator/core/owners/visibility.h"

#include <utility>

#include "absl/strings/match.h"

namespace muster::core {

void HidePrivate(const Actor& actor, v1::Job& job) {
  if (MayUse(job, actor)) return;
  for (auto& [name, value] : *job.mutable_spec()->mutable_env()) {
    value.clear();
    job.set_environment_hidden(true);
  }
  for (v1::ArrayValue& value : *job.mutable_array_values()) {
    if (!absl::StartsWith(value.field(), "env")) continue;
    value.clear_value();
    job.set_environment_hidden(true);
  }
  if (job.first_failure().has_exit()) {
    job.mutable_first_failure()->mutable_exit()->clear_stderr_tail();
  }
  for (v1::FirstFailure& failure : *job.mutable_past_failures()) {
    if (failure.has_exit()) failure.mutable_exit()->clear_stderr_tail();
  }
  for (v1::RankStatus& rank : *job.mutable_ranks()) {
    if (rank.has_exit()) rank.mutable_exit()->clear_stderr_tail();
  }
}

std::shared_ptr<const v1::Job> VisibleTo(const Actor& actor, std::shared_ptr<const v1::Job> job) {
  if (MayUse(*job, actor)) return job;
  auto visible = std::make_shared<v1::Job>(*job);
  HidePrivate(actor, *visible);
  return visible;
}

}  // namespace muster::core

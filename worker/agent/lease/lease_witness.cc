#include "worker/agent/lease/lease_witness.h"

#include <utility>

#include "common/proto_time.h"

namespace muster::agent {

void LeaseWitness::Ask(const v1::LeaseQuestion& question, absl::Duration fresh) {
  if (outside_.now() - keeper_.acknowledged() <= fresh) return outside_.forward(question);
  outside_.probe([this, question](std::optional<SteadyTime> refused) {
    v1::PeerAnswer answer;
    if (refused.has_value()) keeper_.OnRefused(*refused);
    if (refused.has_value() && question.coordinator_address() == outside_.address()) {
      *answer.mutable_refused() = ToProto(outside_.now() - *refused);
    } else {
      answer = Vouch(question);
    }
    answer.set_node_name(node_name_);
    outside_.answer(question.id(), std::move(answer));
  });
}

v1::PeerAnswer LeaseWitness::Vouch(const v1::LeaseQuestion& question) {
  const SteadyTime now = outside_.now();
  v1::LeaseQuestion overdue;
  overdue.set_node_name(question.node_name());
  for (const v1::LeasedGeneration& asked : question.generations()) {
    // A worker that has newer evidence of its own is about to pass it on.
    if (now - keeper_.newest_evidence() < FromProto(asked.lease()) / 3) continue;
    *overdue.add_generations() = asked;
  }
  v1::PeerAnswer answer;
  for (v1::LeasedGeneration& vouched : promises_.Vouch(overdue, now)) {
    *answer.add_vouched() = std::move(vouched);
  }
  return answer;
}

}  // namespace muster::agent

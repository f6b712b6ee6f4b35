// Builders for the unit tests of single parts.
#ifndef MUSTER_COORDINATOR_CORE_TESTING_PARTS_H_
#define MUSTER_COORDINATOR_CORE_TESTING_PARTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/nodes/nodes.h"
#include "coordinator/core/reasons.h"

namespace muster::core::testing {

// Returns a context at a fixed time.
inline Context MakeContext(Options options = {}) {
  Context context(std::move(options));
  context.now = {SteadyTime(absl::Seconds(1'700'000'000)), absl::FromUnixSeconds(1'700'000'000)};
  context.store.starts.push_back({"start", 1});
  return context;
}

inline void Advance(Context& context, absl::Duration by) {
  context.now = {context.now.steady + by, context.now.wall + by};
}

inline SessionOpened MakeSession(uint64_t session, const std::string& node, uint32_t slots = 1,
                                 uint64_t incarnation = 1) {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_node_name(node);
  hello.set_incarnation(incarnation);
  for (uint32_t i = 0; i < slots; ++i) hello.add_slots()->set_index(i);
  return {SessionId(session), hello, "10.0.0.1"};
}

inline const Node* Open(NodeSessions& nodes, const SessionOpened& session) {
  return nodes.Open(session, [](const NodeName&) { return false; });
}

inline Job& Submit(Jobs& jobs, const std::string& id, v1::JobSpec spec = {}) {
  return *jobs.submission.Submit({RequestId(1), JobId(id), std::move(spec), ""})->job;
}

// Starts the job's next generation with rank i on nodes[i].
inline void Start(Jobs& jobs, Job& job, const std::vector<std::string>& nodes,
                  uint64_t incarnation = 1) {
  v1::GenerationRecord record;
  record.set_job_id(job.status.job_id());
  record.set_generation(job.status.generation() + 1);
  record.set_world_size(nodes.size());
  for (uint32_t rank = 0; rank < nodes.size(); ++rank) {
    if (record.nodes().empty() || record.nodes().rbegin()->node() != nodes[rank]) {
      record.add_nodes()->set_node(nodes[rank]);
    }
    v1::NodePlacement& node = *record.mutable_nodes(record.nodes_size() - 1);
    node.set_incarnation(incarnation);
    node.add_ranks()->set_rank(rank);
    node.mutable_ranks(node.ranks_size() - 1)->add_slots(node.ranks_size() - 1);
  }
  jobs.states.BeginGeneration(job, std::move(record));
  jobs.states.Transition(job, v1::STARTING, reasons::kRendezvous, "");
}

// The messages of one kind that the step sent to the session.
inline std::vector<v1::CoordinatorMessage> Sent(const Context& context, uint64_t session,
                                                v1::CoordinatorMessage::KindCase kind) {
  std::vector<v1::CoordinatorMessage> sent;
  for (const Send& send : context.effects.sends) {
    if (send.session == SessionId(session) && send.message.kind_case() == kind) {
      sent.push_back(send.message);
    }
  }
  return sent;
}

}  // namespace muster::core::testing

#endif  // MUSTER_COORDINATOR_CORE_TESTING_PARTS_H_

// The state of a generation's rendezvous, the waits of its ranks, and the notices that report the
// waits every few seconds.
#ifndef MUSTER_COORDINATOR_CORE_RENDEZVOUS_WAITS_H_
#define MUSTER_COORDINATOR_CORE_RENDEZVOUS_WAITS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/rendezvous/agreement.h"
#include "coordinator/core/rendezvous/barriers.h"
#include "coordinator/core/rendezvous/keys.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

// A wait in the hosted c10d store.
struct StoreWait {
  std::string what;
  SteadyTime since;
  std::vector<uint32_t> missing;
  std::string reason;  // what it waits for, if no rank is known to be missing
};

// A wait of the job's ranks for its phase, a barrier or the c10d store.
struct OpenWait {
  std::string what;
  SteadyTime since;
  uint32_t missing = 0;
  std::optional<v1::BarrierId> barrier;  // no value: the rendezvous or the communicators
  std::vector<uint32_t> named;           // the ranks to describe; empty: all that are missing
  std::optional<StoreWait> store = std::nullopt;  // replaces `barrier` and `named`
};

// State of Rendezvous per living generation.
struct RendezvousState {
  RendezvousState(uint32_t world_size, MemoryBudget& memory, const std::string& owner)
      : keys(memory, owner), barriers(world_size), joins(world_size) {}

  KeyTable keys;
  BarrierTable barriers;
  std::vector<std::optional<v1::JoinInfo>> joins;  // by rank
  std::optional<Agreement> agreement;              // once all ranks have joined
  std::set<uint32_t> world_sent;  // node ranks whose current session has received the world
  // The phase that ranks have yet to reach, and the time since which they are awaited.
  v1::RankPhase awaited = v1::STARTED;
  SteadyTime awaited_since;
  SteadyTime noticed_until;  // notices due by this time have been sent
  std::vector<StoreWait> store_waits;
};

// The open waits of the job, that of its phase first.
std::vector<OpenWait> OpenWaits(const Job& job, const RendezvousState& state);
// Arms the job's wait timer for a wait that begins now.
void ArmWaitTimer(const Job& job, Context& context);
// Sends a notice of the wait to the generation's nodes and logs it. Returns the wait as sent.
v1::Wait SendNotice(const Job& job, const RendezvousState& state, const OpenWait& open,
                    bool timed_out, NodeTable& nodes, Context& context);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RENDEZVOUS_WAITS_H_

// A job as the core holds it: its record, and of a generation that lives, what its ranks are doing.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_JOB_H_
#define MUSTER_COORDINATOR_CORE_JOBS_JOB_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/rendezvous/barriers.h"
#include "coordinator/core/jobs/first_failure.h"
#include "coordinator/core/rendezvous/keys.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

// The whole table of job states; nothing else happens.
//
//   submit          placed              connected
//  ───────▶ QUEUED ─────────▶ STARTING ───────────▶ RUNNING
//            │ ▲ ▲              ▲   │                  │
//       hold │ │ │              │   ▼                  ▼
//            ▼ │ │              └─ STOPPING ◀──────────┘
//           HELD └─────────────────┘   │
//            │                         │
//            ▼                         ▼
//        CANCELLED                 SUCCEEDED, FAILED, CANCELLED, TIMED_OUT
//
//  from               to         when
//  QUEUED, HELD       each other hold, release
//  QUEUED, HELD       CANCELLED  cancel
//  QUEUED             STARTING   placed: generation + 1, on record with its rank map
//  QUEUED             FAILED     the nodes that there are could never take it: see RefuseSharing
//  STARTING           RUNNING    every rank is connected (command job: started)
//  STARTING, RUNNING  STOPPING   cancel, time limit, first failure, lost node, requeue, drain
//  RUNNING            STOPPING   the last rank exited with code 0
//  STOPPING           STARTING   nothing of the generation is left; restart, with capacity
//  STOPPING           QUEUED     the same, without capacity, or requeued or drained: at the head
//                                of its priority
//  STOPPING           terminal   nothing of the generation is left
bool IsAllowed(v1::JobState from, v1::JobState to);
bool IsTerminal(v1::JobState state);
// STARTING, RUNNING, STOPPING: the job has a generation that lives.
bool IsActive(v1::JobState state);

struct RankState {
  uint32_t rank = 0;
  uint32_t node_rank = 0;
  v1::RankPhase phase = v1::PLACED;
  int64_t pid = 0;
  bool started = false;  // as opposed to one that could not be launched
  std::optional<v1::JoinInfo> join;
  std::optional<v1::FailureReport> failure;
  std::optional<v1::Progress> progress;
  bool lost = false;     // went with its node
  bool accused = false;  // a peer says that it lost this one
  SteadyTime last_seen;

  // Nothing of it is left that could matter.
  bool gone() const { return lost || phase == v1::EXITED; }
};

// What the ranks' JoinInfos add up to. The same JoinInfos give the same agreement, also after a
// restart.
struct Agreement {
  std::optional<uint32_t> resume_rank;
  uint64_t resume_step = 0;
  bool canonical_layout = false;
};

// The generation of an active job.
struct GenerationState {
  // Phases and losses as the record has them.
  GenerationState(v1::GenerationRecord generation_record, SteadyTime now);

  // The place of a node in the rank map.
  std::optional<uint32_t> NodeRank(const NodeName& node) const;
  const v1::NodePlacement& placement(uint32_t node_rank) const { return record.nodes(node_rank); }
  v1::RankRecord& RecordOf(const RankState& rank);
  const v1::RankRecord& RecordOf(const RankState& rank) const;
  // The ranks of one node, as [first, end).
  std::pair<uint32_t, uint32_t> RanksOf(uint32_t node_rank) const;
  bool HasLiveRanks(uint32_t node_rank) const;

  // Raises the rank's phase; a clean exit counts as having been through all of them. EXITED needs
  // its record first.
  void Reach(RankState& rank, v1::RankPhase phase);
  void MarkLost(RankState& rank);
  bool EveryRankReached(v1::RankPhase phase) const;
  bool NothingLeft() const { return gone == ranks.size(); }
  bool EveryRankExitedCleanly() const { return clean_exits == ranks.size(); }
  // Ranks that are not there yet, lost and failed ones included.
  std::vector<uint32_t> RanksBefore(v1::RankPhase phase) const;

  v1::GenerationRecord record;
  std::vector<RankState> ranks;  // by number
  std::map<std::string, uint32_t> node_ranks;
  std::array<uint32_t, v1::RankPhase_ARRAYSIZE> reached{};
  uint32_t gone = 0;
  uint32_t clean_exits = 0;
  bool any_accused = false;
  size_t exit_text_bytes = 0;  // of all exits on record

  KeyTable keys;
  BarrierTable barriers;
  FailureLog failures;
  // Node ranks whose present session has had the World.
  std::set<uint32_t> world_sent;
  std::optional<Agreement> agreement;  // once every rank has joined
  // The phase of the rendezvous that is under way, and since when.
  v1::RankPhase awaited = v1::STARTED;
  SteadyTime awaited_since;
  SteadyTime stopping_since;
  SteadyTime noticed_until;  // who waits has been told of what was due by then
  // Why the job is to go elsewhere though nothing failed: a worker ended a rank of its own accord.
  std::optional<std::string> displaced;
};

// What a rank left in words.
size_t ExitTextBytes(const v1::ExitInfo& exit);

// The slots of a rank on `node`; empty when the generation has no such rank there.
std::vector<uint32_t> SlotsOf(const v1::GenerationRecord& record, const NodeName& node,
                              uint32_t rank);

struct Job {
  v1::JobRecord record;
  std::optional<GenerationState> generation;  // while active
  std::map<Generation, v1::GenerationRecord> past;
  std::deque<v1::JobEvent> events;  // oldest first
  SteadyTime state_since;
  // Wants to be placed again, at the end of this step: the restart of a generation that has just
  // ended.
  bool restarting = false;
  std::optional<SteadyTime> failed_at;  // until it runs again

  const v1::Job& job() const { return record.job(); }
  JobId id() const { return JobId(record.job().job_id()); }
  v1::JobState state() const { return record.job().state(); }
  bool is_train() const { return record.job().spec().command().empty(); }
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_JOB_H_

// The living generation of an active job: the placement of its ranks and the phase of each.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_GENERATION_H_
#define MUSTER_COORDINATOR_CORE_JOBS_GENERATION_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

struct RankState {
  uint32_t rank = 0;
  uint32_t node_rank = 0;
  v1::RankPhase phase = v1::PLACED;
  int64_t pid = 0;
  bool started = false;         // false for a rank that could not be launched
  bool exited_cleanly = false;  // exited without a failure
  std::optional<v1::FailureReport> failure;
  std::optional<v1::Progress> progress;
  uint64_t memory_bytes = 0;  // as last reported; 0: unknown
  bool lost = false;          // lost with its node
  bool prepares_data = false;
  SteadyTime last_seen;
  SteadyTime last_progress;  // when it last reported that its work had advanced

  // Returns whether the rank has exited or was lost.
  bool gone() const { return lost || phase == v1::EXITED; }
};

struct GenerationState {
  // Restores phases and losses from the record.
  GenerationState(v1::GenerationRecord generation_record, SteadyTime now);

  Generation number() const { return Generation(record.generation()); }
  // The index of the node in the rank map; nullopt when the node has no ranks of this generation.
  std::optional<uint32_t> NodeRank(const NodeName& node) const;
  const v1::NodePlacement& placement(uint32_t node_rank) const { return record.nodes(node_rank); }
  v1::RankRecord& RecordOf(const RankState& rank);
  const v1::RankRecord& RecordOf(const RankState& rank) const;
  // The ranks of one node, as [first, end).
  std::pair<uint32_t, uint32_t> RanksOf(uint32_t node_rank) const;
  bool HasLiveRanks(uint32_t node_rank) const;

  // Raises the rank's phase; a clean exit counts as having reached every phase. Record an exit
  // before the phase becomes EXITED.
  void Reach(RankState& rank, v1::RankPhase phase);
  void MarkLost(RankState& rank);
  // Keeps the rank's progress. Until it joins, it may prepare its data.
  void SetProgress(RankState& rank, const v1::Progress& progress);
  bool EveryRankReached(v1::RankPhase phase) const { return reached[phase] == ranks.size(); }
  bool NothingLeft() const { return gone == ranks.size(); }
  bool EveryRankExitedCleanly() const { return clean_exits == ranks.size(); }
  // The bytes of text that the exit of a further rank of this node may have, so that the store's
  // records stay small. CountExitText counts those of a recorded exit.
  size_t ExitTextRoom(uint32_t node_rank) const;
  void CountExitText(uint32_t node_rank, const v1::ExitInfo& exit);
  // Ranks that have not reached the phase, lost and failed ones included.
  std::vector<uint32_t> RanksBefore(v1::RankPhase phase) const;

  v1::GenerationRecord record;
  std::vector<RankState> ranks;  // indexed by rank
  std::map<std::string, uint32_t> node_ranks;
  std::array<uint32_t, v1::RankPhase_ARRAYSIZE> reached{};
  uint32_t gone = 0;
  uint32_t preparing_data = 0;  // ranks
  uint32_t clean_exits = 0;
  std::vector<size_t> exit_text_bytes;  // of all recorded exits, by node rank
  SteadyTime stopping_since;
  SteadyTime grace_end;     // once the job stops: SIGKILL follows
  absl::Duration run_time;  // time in state RUNNING, set once the job stops

 private:
  void SetPreparing(RankState& rank, bool prepares_data);
};

// The size of the text in a rank's exit, in bytes.
size_t ExitTextBytes(const v1::ExitInfo& exit);

// The record of a rank on `node`; null when the generation has no such rank there.
const v1::RankRecord* FindRank(const v1::GenerationRecord& record, const NodeName& node,
                               uint32_t rank);
// The slots of a rank on `node`; empty when the generation has no such rank there.
std::vector<uint32_t> SlotsOf(const v1::GenerationRecord& record, const NodeName& node,
                              uint32_t rank);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_GENERATION_H_

#include "coordinator/core/jobs/generation.h"

#include <algorithm>
#include <numeric>

#include "common/limits.h"
#include "coordinator/core/jobs/first_failure.h"
#include "coordinator/core/jobs/job_record.h"

namespace muster::core {
namespace {

// The phase of a rank's progress in which it prepares its data.
constexpr char kLoadingData[] = "loading-data";
// The most text of exits in the record of a node's ranks.
constexpr size_t kExitTextBytesPerNode = 512 << 10;

}  // namespace

GenerationState::GenerationState(v1::GenerationRecord generation_record, SteadyTime now)
    : record(std::move(generation_record)), stopping_since(now) {
  ranks.resize(record.world_size());
  exit_text_bytes.resize(record.nodes_size());
  for (int node = 0; node < record.nodes_size(); ++node) {
    node_ranks[record.nodes(node).node()] = node;
    for (const v1::RankRecord& rank_record : record.nodes(node).ranks()) {
      RankState& rank = ranks[rank_record.rank()];
      rank.rank = rank_record.rank();
      rank.node_rank = node;
      rank.last_seen = rank.last_progress = now;
      ++reached[v1::PLACED];
      if (rank_record.exited()) Reach(rank, v1::EXITED);
      CountExitText(node, FromRecord(rank_record.exit()));
      if (rank_record.lost()) MarkLost(rank);
    }
  }
}

size_t GenerationState::ExitTextRoom(uint32_t node_rank) const {
  const size_t used = std::accumulate(exit_text_bytes.begin(), exit_text_bytes.end(), size_t{0});
  const size_t on_node = std::min(exit_text_bytes[node_rank], kExitTextBytesPerNode);
  return std::min(
      limits::kExitTextBytesPerGeneration - std::min(used, limits::kExitTextBytesPerGeneration),
      kExitTextBytesPerNode - on_node);
}

void GenerationState::CountExitText(uint32_t node_rank, const v1::ExitInfo& exit) {
  exit_text_bytes[node_rank] += ExitTextBytes(exit);
}

std::optional<uint32_t> GenerationState::NodeRank(const NodeName& node) const {
  const auto entry = node_ranks.find(node.value());
  if (entry == node_ranks.end()) return std::nullopt;
  return entry->second;
}

v1::RankRecord& GenerationState::RecordOf(const RankState& rank) {
  v1::NodePlacement& node = *record.mutable_nodes(rank.node_rank);
  return *node.mutable_ranks(rank.rank - node.ranks(0).rank());
}

const v1::RankRecord& GenerationState::RecordOf(const RankState& rank) const {
  const v1::NodePlacement& node = record.nodes(rank.node_rank);
  return node.ranks(rank.rank - node.ranks(0).rank());
}

std::pair<uint32_t, uint32_t> GenerationState::RanksOf(uint32_t node_rank) const {
  const v1::NodePlacement& node = record.nodes(node_rank);
  const uint32_t first = node.ranks(0).rank();
  return {first, first + node.ranks_size()};
}

bool GenerationState::HasLiveRanks(uint32_t node_rank) const {
  const auto [first, end] = RanksOf(node_rank);
  for (uint32_t rank = first; rank < end; ++rank) {
    if (!ranks[rank].gone()) return true;
  }
  return false;
}

void GenerationState::Reach(RankState& rank, v1::RankPhase phase) {
  if (phase <= rank.phase) return;
  const bool clean = phase == v1::EXITED && !IsFailure(FromRecord(RecordOf(rank).exit()));
  for (int passed = rank.phase + 1; passed < phase; ++passed) {
    if (phase != v1::EXITED || clean) ++reached[passed];
  }
  ++reached[phase];
  rank.phase = phase;
  if (phase >= v1::JOINED) SetPreparing(rank, false);
  if (phase != v1::EXITED) return;
  if (!rank.lost) ++gone;
  rank.exited_cleanly = clean;
  if (clean) ++clean_exits;
}

void GenerationState::MarkLost(RankState& rank) {
  if (rank.gone()) return;
  rank.lost = true;
  ++gone;
  SetPreparing(rank, false);
}

void GenerationState::SetProgress(RankState& rank, const v1::Progress& progress) {
  rank.progress = progress;
  SetPreparing(rank, !rank.gone() && rank.phase < v1::JOINED && progress.phase() == kLoadingData);
}

void GenerationState::SetPreparing(RankState& rank, bool prepares_data) {
  if (rank.prepares_data == prepares_data) return;
  rank.prepares_data = prepares_data;
  preparing_data += prepares_data ? 1 : -1;
}

std::vector<uint32_t> GenerationState::RanksBefore(v1::RankPhase phase) const {
  std::vector<uint32_t> before;
  for (const RankState& rank : ranks) {
    const bool failed = rank.phase == v1::EXITED && !rank.exited_cleanly;
    if (rank.phase < phase || failed) before.push_back(rank.rank);
  }
  return before;
}

size_t ExitTextBytes(const v1::ExitInfo& exit) {
  return exit.stderr_tail().size() + exit.failure().message().size();
}

const v1::RankRecord* FindRank(const v1::GenerationRecord& record, const NodeName& node,
                               uint32_t rank) {
  for (const v1::NodePlacement& placement : record.nodes()) {
    if (placement.node() != node.value()) continue;
    for (const v1::RankRecord& candidate : placement.ranks()) {
      if (candidate.rank() == rank) return &candidate;
    }
  }
  return nullptr;
}

std::vector<uint32_t> SlotsOf(const v1::GenerationRecord& record, const NodeName& node,
                              uint32_t rank) {
  const v1::RankRecord* const found = FindRank(record, node, rank);
  if (found == nullptr) return {};
  return {found->slots().begin(), found->slots().end()};
}

}  // namespace muster::core

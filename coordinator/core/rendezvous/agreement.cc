#include "coordinator/core/rendezvous/agreement.h"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster::core {
namespace {

std::string TextOf(const v1::FingerprintEntry& entry) {
  return absl::StrCat(entry.name(), " ", entry.value());
}

// Returns null if the rank does not report the entry.
const v1::FingerprintEntry* FindEntry(const v1::JoinInfo& join, const std::string& name) {
  const auto& entries = join.fingerprint();
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&name](const auto& entry) { return entry.name() == name; });
  return found == entries.end() ? nullptr : &*found;
}

// The entries of `one` that differ from those of `other`, as text.
std::vector<std::string> Differing(const v1::JoinInfo& one, const v1::JoinInfo& other) {
  std::vector<std::string> texts;
  for (const v1::FingerprintEntry& entry : one.fingerprint()) {
    const v1::FingerprintEntry* const same = FindEntry(other, entry.name());
    if (same == nullptr || same->value() != entry.value()) texts.push_back(TextOf(entry));
  }
  for (const v1::FingerprintEntry& entry : other.fingerprint()) {
    if (FindEntry(one, entry.name()) == nullptr) {
      texts.push_back(absl::StrCat("no ", entry.name()));
    }
  }
  return texts;
}

// More than any job has.
constexpr uint32_t kMostParts = 1 << 16;

// The lowest rank that has each part of a state in memory, by part; nullopt if no rank has it.
using Parts = std::vector<std::optional<uint32_t>>;

// A generation has one number of parts.
struct StateKey {
  uint64_t generation;
  uint64_t step;
  uint32_t parts;

  bool operator>(const StateKey& other) const {
    return std::tie(generation, step, parts) > std::tie(other.generation, other.step, other.parts);
  }
};

// States in memory, newest first.
using States = std::map<StateKey, Parts, std::greater<>>;

States StatesInMemory(const Joins& joins) {
  States states;
  for (uint32_t rank = 0; rank < joins.size(); ++rank) {
    for (const v1::MemoryState& state : joins[rank]->memory()) {
      if (state.part() >= state.parts() || state.parts() > kMostParts) continue;
      Parts& parts = states[{state.generation(), state.step(), state.parts()}];
      parts.resize(state.parts());
      if (!parts[state.part()].has_value()) parts[state.part()] = rank;
    }
  }
  return states;
}

// Replaces the checkpoint on disk by the newest complete state in memory, unless that is older.
void PreferMemory(const States& states, const std::string& job_id, Agreement& agreement) {
  const bool own = agreement.resume_rank.has_value() && agreement.resume_job_id == job_id;
  for (const auto& [key, parts] : states) {
    if (own && std::tie(key.generation, key.step) <
                   std::tie(agreement.resume_generation, agreement.resume_step)) {
      return;
    }
    const auto lost = std::find(parts.begin(), parts.end(), std::nullopt);
    if (lost != parts.end()) {
      if (agreement.incomplete.has_value()) continue;
      agreement.incomplete = {key.step, key.parts, static_cast<uint32_t>(lost - parts.begin())};
      continue;
    }
    for (const std::optional<uint32_t>& rank : parts) agreement.memory_ranks.push_back(*rank);
    agreement.resume_rank = agreement.memory_ranks.front();
    agreement.resume_generation = key.generation;
    agreement.resume_step = key.step;
    agreement.resume_path.clear();
    agreement.resume_job_id = job_id;
    return;
  }
}

// "4 steps are lost, because no node has part 2 of 2 of the state of step 9 in memory"; empty if
// none is.
std::string LostSteps(const Agreement& agreement, uint64_t reached) {
  if (agreement.incomplete.has_value()) reached = std::max(reached, agreement.incomplete->step);
  if (reached <= agreement.resume_step) return "";
  const uint64_t lost = reached - agreement.resume_step;
  std::string text = absl::StrCat(lost, lost == 1 ? " step is lost" : " steps are lost");
  if (agreement.incomplete.has_value()) {
    absl::StrAppend(&text, ", because no node has part ", agreement.incomplete->lost_part + 1,
                    " of ", agreement.incomplete->parts, " of the state of step ",
                    agreement.incomplete->step, " in memory");
  } else if (agreement.memory_ranks.empty()) {
    absl::StrAppend(&text, ", because no node has a newer state in memory");
  }
  return text;
}

}  // namespace

std::optional<Mismatch> FindMismatch(const Joins& joins, const GenerationState& generation) {
  const auto line = [&](uint32_t rank, uint32_t other) {
    return absl::StrCat("node ", generation.placement(generation.ranks[rank].node_rank).node(),
                        " (rank ", rank,
                        "): ", absl::StrJoin(Differing(*joins[rank], *joins[other]), "; "));
  };
  // Rank 0 agrees with itself, even if it gives a name two values.
  for (uint32_t rank = 1; rank < joins.size(); ++rank) {
    if (Differing(*joins[rank], *joins[0]).empty()) continue;
    return Mismatch{rank, absl::StrCat(line(0, rank), "\n", line(rank, 0))};
  }
  return std::nullopt;
}

std::optional<Agreement> Agree(const Joins& joins, const std::string& job_id) {
  Agreement agreement;
  for (uint32_t rank = 0; rank < joins.size(); ++rank) {
    const std::optional<v1::JoinInfo>& join = joins[rank];
    if (!join.has_value()) return std::nullopt;
    if (join->layout_digest() != joins.front()->layout_digest()) agreement.canonical_layout = true;
    if (!join->has_checkpoint()) continue;
    const auto order = [&job_id](const std::string& writer, uint64_t generation, uint64_t step) {
      return std::make_tuple(writer == job_id, generation, step);
    };
    if (!agreement.resume_rank.has_value() ||
        order(join->checkpoint_job_id(), join->checkpoint_generation(), join->checkpoint_step()) >
            order(agreement.resume_job_id, agreement.resume_generation, agreement.resume_step)) {
      agreement.resume_rank = rank;
      agreement.resume_generation = join->checkpoint_generation();
      agreement.resume_step = join->checkpoint_step();
      agreement.resume_path = join->checkpoint_path();
      agreement.resume_job_id = join->checkpoint_job_id();
    }
  }
  PreferMemory(StatesInMemory(joins), job_id, agreement);
  return agreement;
}

std::string Describe(const Agreement& agreement, const std::string& job_id, uint64_t reached) {
  std::string text = "no rank has a checkpoint";
  if (agreement.memory_ranks.size() > 1) {
    text =
        absl::StrCat("ranks ", absl::StrJoin(agreement.memory_ranks, ", "),
                     " have the parts of the state of step ", agreement.resume_step, " in memory");
  } else if (agreement.memory_ranks.size() == 1) {
    text = absl::StrCat("rank ", *agreement.resume_rank, " has the state of step ",
                        agreement.resume_step, " in memory");
  } else if (agreement.resume_rank.has_value()) {
    text = absl::StrCat("rank ", *agreement.resume_rank, " reads the checkpoint of step ",
                        agreement.resume_step);
  }
  if (agreement.resume_rank.has_value() && agreement.resume_job_id != job_id) {
    absl::StrAppend(&text, " of job ", agreement.resume_job_id, ", ", agreement.resume_path);
  } else if (const std::string lost = LostSteps(agreement, reached); !lost.empty()) {
    absl::StrAppend(&text, "; ", lost);
  }
  if (agreement.canonical_layout) {
    absl::StrAppend(&text, "; layouts differ, using the canonical layout");
  }
  return text;
}

}  // namespace muster::core

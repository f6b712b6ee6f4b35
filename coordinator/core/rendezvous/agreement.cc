#include "coordinator/core/rendezvous/agreement.h"

#include <algorithm>
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

}  // namespace

std::optional<Mismatch> FindMismatch(const Joins& joins, const GenerationState& generation) {
  const auto line = [&](uint32_t rank, uint32_t other) {
    return absl::StrCat("node ", generation.placement(generation.ranks[rank].node_rank).node(),
                        " (rank ", rank,
                        "): ", absl::StrJoin(Differing(*joins[rank], *joins[other]), "; "));
  };
  for (uint32_t rank = 0; rank < joins.size(); ++rank) {
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
      agreement.resume_in_memory = join->checkpoint_in_memory();
    }
  }
  return agreement;
}

std::string Describe(const Agreement& agreement, const std::string& job_id) {
  std::string text = "no rank has a checkpoint";
  if (agreement.resume_rank.has_value()) {
    text = agreement.resume_in_memory
               ? absl::StrCat("rank ", *agreement.resume_rank, " has the state of step ",
                              agreement.resume_step, " in memory")
               : absl::StrCat("rank ", *agreement.resume_rank, " reads the checkpoint of step ",
                              agreement.resume_step);
  }
  if (agreement.resume_rank.has_value() && agreement.resume_job_id != job_id) {
    absl::StrAppend(&text, " of job ", agreement.resume_job_id, ", ", agreement.resume_path);
  }
  if (agreement.canonical_layout) {
    absl::StrAppend(&text, "; layouts differ, using the canonical layout");
  }
  return text;
}

}  // namespace muster::core

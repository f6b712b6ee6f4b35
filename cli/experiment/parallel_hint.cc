#include "cli/experiment/parallel_hint.h"

#include <algorithm>
#include <cstdint>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "spec/spec.h"

namespace muster::cli {
namespace {

uint64_t FreeSlots(const v1::Node& node) {
  if (node.state() != v1::READY || !node.conflict().empty()) return 0;
  return absl::c_count_if(node.slots(), [](const v1::Slot& slot) {
    return slot.job_id().empty() && slot.unavailable().empty();
  });
}

}  // namespace

std::string ParallelHint(const std::vector<Cell>& cells, absl::Span<const v1::Node> nodes) {
  uint64_t free = 0;
  for (const v1::Node& node : nodes) free += FreeSlots(node);
  uint64_t jobs = 0;
  uint64_t ranks = 1;  // of the largest job
  for (const Cell& cell : cells) {
    if (!cell.skip_reason.empty()) continue;
    ++jobs;
    ranks = std::max<uint64_t>(ranks, spec::MaxWorldSize(cell.defaulted));
  }
  const uint64_t at_a_time = std::min(jobs, free / ranks);
  if (at_a_time < 2) return "";
  return absl::StrCat(free, " slots are free: --parallel ", at_a_time, " runs up to ", at_a_time,
                      " jobs at a time; their times are then not comparable");
}

}  // namespace muster::cli

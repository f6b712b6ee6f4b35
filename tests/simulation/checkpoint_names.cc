#include "tests/simulation/checkpoint_names.h"

#include "trainer/checkpoint/retention.h"

namespace muster::simulation {
namespace {

using train::Folder;

constexpr char kJob[] = "job";  // a directory has the checkpoints of one job

// Newest first.
std::vector<Folder> FoldersOf(const std::vector<std::string>& names) {
  std::vector<Folder> folders;
  for (const std::string& name : names) {
    const auto [generation, step] = OrderOf(name);
    folders.push_back({.name = name, .step = step, .generation = generation, .job_id = kJob});
  }
  train::SortNewestFirst(folders, kJob);
  return folders;
}

}  // namespace

std::string CheckpointName(uint64_t step, uint64_t generation) {
  return train::FormatFolderName({.step = step, .generation = generation});
}

CheckpointOrder OrderOf(const std::string& name) {
  const auto parsed = train::ParseFolderName(name);
  return parsed.has_value() ? CheckpointOrder(parsed->generation, parsed->step) : CheckpointOrder();
}

std::string NewestCheckpoint(const std::vector<std::string>& names) {
  const std::vector<Folder> folders = FoldersOf(names);
  return folders.empty() ? "" : folders.front().name;
}

std::vector<std::string> CheckpointsToRemove(const std::vector<std::string>& names,
                                             uint64_t own_generation, uint64_t newest_step,
                                             uint32_t keep) {
  return train::FoldersToRemove(FoldersOf(names), {.job_id = kJob, .generation = own_generation},
                                newest_step, {.keep = keep});
}

}  // namespace muster::simulation

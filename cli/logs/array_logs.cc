#include "cli/logs/array_logs.h"

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace muster::cli {
namespace {

LogOptions OptionsFor(const v1::Job& task, LogOptions options) {
  options.job_id = task.job_id();
  options.task = task.array_index();
  return options;
}

}  // namespace

absl::Status PrintArrayLogs(ClusterClient& client, const v1::GetArrayResponse& array,
                            const LogOptions& options, Stopper& stopper, Console& console) {
  absl::Status first;
  if (!options.follow) {
    for (const v1::Job& task : array.tasks()) {
      if (task.generation() == 0) continue;
      first.Update(PrintLogs(client, OptionsFor(task, options), stopper, console));
      if (stopper.stopped()) break;
    }
    return first;
  }
  if (array.tasks_size() > kFollowedTasks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot follow ", array.tasks_size(), " tasks at once (limit: ", kFollowedTasks,
        "); follow a single task, as in muster logs ", array.tasks(0).job_id(), " -f"));
  }
  std::vector<absl::Status> statuses(array.tasks_size());
  std::vector<std::thread> threads;
  for (int i = 0; i < array.tasks_size(); ++i) {
    threads.emplace_back([&, i] {
      statuses[i] = PrintLogs(client, OptionsFor(array.tasks(i), options), stopper, console);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) first.Update(status);
  return first;
}

}  // namespace muster::cli

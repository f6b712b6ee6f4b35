#include "cli/node_text.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/output/table.h"
#include "cli/output/words.h"
#include "common/proto_time.h"

namespace muster::cli {

std::string NodeTable(absl::Span<const v1::Node> nodes, bool wide) {
  std::vector<std::string> heads = {"NODE", "STATE", "SLOTS", "FREE", "ADDRESS", "HEARTBEAT"};
  if (wide) {
    for (const char* head : {"CPUS", "MEMORY", "METRICS", "VERSION", "LABELS", "JOBS"}) {
      heads.push_back(head);
    }
  }
  Table table(heads);
  for (const v1::Node& node : nodes) {
    const auto free = std::count_if(node.slots().begin(), node.slots().end(),
                                    [](const v1::Slot& slot) { return slot.job_id().empty(); });
    std::string state = v1::NodeState_Name(node.state());
    if (node.cordoned()) state += ",CORDONED";
    std::vector<std::string> row = {
        node.name(),
        state,
        absl::StrCat(node.slots_size()),
        absl::StrCat(free),
        node.address(),
        node.has_heartbeat_age() ? absl::StrCat(Age(FromProto(node.heartbeat_age())), " ago") : ""};
    if (wide) {
      const std::map<std::string, std::string> labels(node.labels().begin(), node.labels().end());
      std::vector<std::string> jobs;
      for (const v1::Slot& slot : node.slots()) {
        if (!slot.job_id().empty()) jobs.push_back(slot.job_id());
      }
      std::sort(jobs.begin(), jobs.end());
      jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
      row.push_back(absl::StrCat(node.cpu_count()));
      row.push_back(Bytes(node.memory_bytes()));
      row.push_back(node.metrics_address());
      row.push_back(node.software_version());
      row.push_back(absl::StrJoin(labels, ",", absl::PairFormatter("=")));
      row.push_back(absl::StrJoin(jobs, ","));
    }
    table.AddRow(std::move(row));
  }
  return table.Text();
}

}  // namespace muster::cli

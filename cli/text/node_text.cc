#include "cli/text/node_text.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/output/table.h"
#include "cli/output/words.h"
#include "common/time/proto_time.h"

namespace muster::cli {
namespace {

// Column of the values of a description.
constexpr size_t kValueColumn = 13;

std::vector<std::string> JobsOn(const v1::Node& node) {
  std::set<std::string> jobs;
  for (const v1::Slot& slot : node.slots()) {
    if (!slot.job_id().empty()) jobs.insert(slot.job_id());
  }
  return std::vector<std::string>(jobs.begin(), jobs.end());
}

// A node that is lost or in conflict has no free slots.
int64_t FreeSlots(const v1::Node& node) {
  if (node.state() == v1::LOST || !node.conflict().empty()) return 0;
  return std::count_if(node.slots().begin(), node.slots().end(), [](const v1::Slot& slot) {
    return slot.job_id().empty() && slot.unavailable().empty();
  });
}

int64_t TakenSlots(const v1::Node& node) {
  return std::count_if(node.slots().begin(), node.slots().end(),
                       [](const v1::Slot& slot) { return !slot.job_id().empty(); });
}

bool HasGpus(const v1::Node& node) {
  return std::any_of(node.slots().begin(), node.slots().end(),
                     [](const v1::Slot& slot) { return slot.has_device(); });
}

// "4 gpu, 2 cpu".
std::string KindsText(const v1::Node& node) {
  std::map<std::string, int> counts;
  for (const v1::Slot& slot : node.slots()) ++counts[slot.kind().empty() ? "cpu" : slot.kind()];
  std::vector<std::string> parts;
  for (auto kind = counts.rbegin(); kind != counts.rend(); ++kind) {
    parts.push_back(absl::StrCat(kind->second, " ", kind->first));
  }
  return absl::StrJoin(parts, ", ");
}

// "1: 4 NVLinks; 2: host bridge; 4 links to a switch".
std::string LinksText(const v1::Device& device) {
  std::vector<std::string> parts;
  for (const v1::DeviceLink& link : device.links()) {
    const std::string nvlinks =
        absl::StrCat(link.nvlinks(), link.nvlinks() == 1 ? " NVLink" : " NVLinks");
    parts.push_back(absl::StrCat(link.index(), ": ", link.nvlinks() > 0 ? nvlinks : link.path()));
  }
  if (device.nvswitch_links() > 0) {
    parts.push_back(absl::StrCat(device.nvswitch_links(), " NVLinks to NVSwitches"));
  }
  return absl::StrJoin(parts, "; ");
}

std::string GpuTable(const v1::Node& node) {
  Table table({"GPU", "SLOT", "NAME", "MEMORY", "PCI", "NUMA", "CPUS", "LINKS"});
  for (const v1::Slot& slot : node.slots()) {
    if (!slot.has_device()) continue;
    const v1::Device& device = slot.device();
    table.AddRow({absl::StrCat(device.index()), absl::StrCat(slot.index()), device.name(),
                  Bytes(device.memory_bytes()), device.pci_bus_id(),
                  device.has_numa_node() ? absl::StrCat(device.numa_node()) : "", device.cpus(),
                  LinksText(device)});
  }
  return table.Text();
}

// "READY,CORDONED".
std::string StateCell(const v1::Node& node) {
  std::string state = v1::NodeState_Name(node.state());
  if (node.cordoned()) state += ",CORDONED";
  if (node.has_cool_down()) state += ",COOLING_DOWN";
  if (node.leaving()) state += ",LEAVING";
  if (!node.conflict().empty()) state += ",CONFLICT";
  return state;
}

// "2 failed in a row; not used for 28s"; empty when the last launch succeeded.
std::string LaunchesText(const v1::Node& node) {
  if (node.failed_launches() == 0) return "";
  std::string text = absl::StrCat(node.failed_launches(), " failed in a row");
  if (node.has_cool_down()) {
    absl::StrAppend(&text, "; not used for ", Age(FromProto(node.cool_down())));
  }
  if (!node.launch_failure().empty()) absl::StrAppend(&text, "; last: ", node.launch_failure());
  return text;
}

// "succeeded 5m ago, in 0.31 s: disk, memory, gpu 0"; otherwise the failures.
std::string SelfTestText(const v1::SelfTest& test) {
  if (test.running()) return "running";
  std::vector<std::string> names, failures;
  for (const v1::SelfTest::Check& check : test.checks()) {
    names.push_back(check.name());
    if (!check.failure().empty()) {
      failures.push_back(absl::StrCat(check.name(), ": ", check.failure()));
    }
  }
  const std::string when = absl::StrCat(" ", Age(FromProto(test.age())), " ago, in ",
                                        Elapsed(FromProto(test.duration())));
  return failures.empty() ? absl::StrCat("succeeded", when, ": ", absl::StrJoin(names, ", "))
                          : absl::StrCat("failed", when, ": ", absl::StrJoin(failures, "; "));
}

std::string LabelsText(const v1::Node& node) {
  const std::map<std::string, std::string> labels(node.labels().begin(), node.labels().end());
  return absl::StrJoin(labels, ",", absl::PairFormatter("="));
}

}  // namespace

std::string NodeTable(absl::Span<const v1::Node> nodes, bool wide) {
  std::vector<std::string> heads = {"NODE", "STATE", "SLOTS", "FREE", "ADDRESS", "HEARTBEAT"};
  if (wide) {
    heads.insert(heads.end(), {"KINDS", "CPUS", "MEMORY", "METRICS", "VERSION", "LABELS", "JOBS",
                               "LAUNCHES", "REASON"});
  }
  Table table(heads);
  for (const v1::Node& node : nodes) {
    std::vector<std::string> row = {
        node.name(),
        StateCell(node),
        absl::StrCat(node.slots_size()),
        absl::StrCat(FreeSlots(node)),
        node.address(),
        node.has_heartbeat_age() ? absl::StrCat(Age(FromProto(node.heartbeat_age())), " ago") : ""};
    if (wide) {
      row.insert(row.end(),
                 {KindsText(node), absl::StrCat(node.cpu_count()), Bytes(node.memory_bytes()),
                  node.metrics_address(), node.software_version(), LabelsText(node),
                  absl::StrJoin(JobsOn(node), ","), LaunchesText(node),
                  node.conflict().empty() ? node.cordon_reason() : node.conflict()});
    }
    table.AddRow(std::move(row));
  }
  return table.Text();
}

std::string NodeDescription(const v1::Node& node) {
  FieldList fields(kValueColumn);
  fields.Add("Node", node.name());
  fields.Add("State", StateCell(node));
  fields.Add("Cordoned", node.cordon_reason());
  if (node.cordoned_by_health()) {
    fields.Add("Returns", "when a self-test succeeds: muster node test " + node.name());
  }
  if (node.has_drain_deadline()) {
    fields.Add("Deadline",
               absl::StrCat("ranks are killed in ", Age(FromProto(node.drain_deadline()))));
  }
  fields.Add("Launches", LaunchesText(node));
  if (node.has_self_test()) fields.Add("Self-test", SelfTestText(node.self_test()));
  fields.Add("Conflict", node.conflict());
  if (node.has_heartbeat_age()) {
    fields.Add("Heartbeat", absl::StrCat(Age(FromProto(node.heartbeat_age())), " ago"));
  }
  fields.Add("Address", node.address());
  fields.Add("Metrics", node.metrics_address());
  fields.Add("Labels", LabelsText(node));
  fields.Add("CPUs", absl::StrCat(node.cpu_count()));
  fields.Add("Memory", Bytes(node.memory_bytes()));
  fields.Add("Not limited",
             node.limits_unavailable().empty()
                 ? ""
                 : absl::StrCat("memory and processes of ranks: ", node.limits_unavailable()));
  fields.Add("Version", node.software_version());
  fields.Add("Machine", node.machine_id());
  fields.Add("Incarnation", HexId(node.incarnation()));
  fields.Add("Slots", absl::StrCat(node.slots_size(), ", ", FreeSlots(node), " free"));
  Table table({"SLOT", "KIND", "UUID", "JOB", "GENERATION", "RANK", "UNAVAILABLE"});
  for (const v1::Slot& slot : node.slots()) {
    const bool taken = !slot.job_id().empty();
    table.AddRow({absl::StrCat(slot.index()), slot.kind(), slot.uuid(), slot.job_id(),
                  taken ? absl::StrCat(slot.generation()) : "",
                  taken ? absl::StrCat(slot.rank()) : "", slot.unavailable()});
  }
  if (node.slots_size() > 0) fields.AddText("\n" + table.Text());
  if (HasGpus(node)) fields.AddText("\n" + GpuTable(node));
  return fields.text();
}

std::string NodeSentence(const v1::Node& node) {
  std::string text =
      absl::StrCat(node.name(), node.cordoned() ? " is cordoned" : " is schedulable");
  if (!node.cordon_reason().empty()) absl::StrAppend(&text, " (", node.cordon_reason(), ")");
  const int64_t taken = TakenSlots(node);
  if (taken == 0) {
    absl::StrAppend(&text, "; no slots in use");
  } else {
    absl::StrAppend(&text, "; ", taken, " of ", node.slots_size(), " slots in use by ",
                    absl::StrJoin(JobsOn(node), ", "));
  }
  return Printable(text);
}

bool SelfTestSucceeded(const v1::Node& node) {
  const v1::SelfTest& test = node.self_test();
  return node.has_self_test() && !test.running() &&
         std::all_of(test.checks().begin(), test.checks().end(),
                     [](const v1::SelfTest::Check& check) { return check.failure().empty(); });
}

std::string SelfTestSentence(const v1::Node& node) {
  if (!node.has_self_test()) return absl::StrCat(node.name(), ": no self-test yet");
  return Printable(absl::StrCat(node.name(), ": self-test ", SelfTestText(node.self_test())));
}

}  // namespace muster::cli

#include "spec/fields.h"

#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/field_table.h"

namespace muster::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

const FieldTable& Table() {
  static const FieldTable& table = *[] {
    auto* entries = new FieldTable();
    AddJobFields(*entries);
    AddTrainFields(*entries);
    AddModelFields(*entries);
    AddLearningFields(*entries);
    AddSynonyms(*entries);
    return entries;
  }();
  return table;
}

using Index = absl::flat_hash_map<const FieldDescriptor*, const Field*>;

Index MakeIndex() {
  Index index;
  for (const auto& [name, field] : Table()) {
    const FieldDescriptor* descriptor = v1::JobSpec::descriptor()->file()->pool()->FindFieldByName(
        absl::StrCat("muster.v1.", name));
    if (descriptor != nullptr) index.emplace(descriptor, &field);
  }
  return index;
}

struct FieldSynonyms {
  const char* field;
  std::vector<std::string> names;
};

const std::vector<FieldSynonyms>& Synonyms() {
  static const auto& synonyms = *new std::vector<FieldSynonyms>{
      {"JobSpec.command", {"cmd", "script", "args", "entrypoint", "run"}},
      {"JobSpec.env", {"environment", "variables"}},
      {"JobSpec.workdir", {"cwd", "chdir", "working_dir", "working_directory"}},
      {"JobSpec.time_limit", {"time", "timeout", "walltime"}},
      {"Resources.nodes", {"nnodes", "num_nodes", "n_nodes"}},
      {"JobSpec.after", {"dependency", "dependencies", "depends_on", "needs"}},
      {"JobSpec.array", {"tasks", "job_array", "sweep"}},
      {"JobSpec.priority_class", {"qos", "priority_class_name"}},
      {"ArraySpec.concurrency", {"max_concurrent", "max_parallel", "parallelism"}},
      {"ArraySpec.count", {"size"}},
      {"Resources.select", {"constraint", "constraints", "node_selector", "labels"}},
      {"Resources.exclude_nodes", {"exclude"}},
      {"Resources.prefer_nodes", {"prefer"}},
      {"Resources.gpu_model", {"gpu_type"}},
      {"Resources.ranks_per_node",
       {"gpus", "gpus_per_node", "nproc", "nproc_per_node", "ntasks", "ntasks_per_node",
        "processes", "num_processes", "procs", "slots", "tasks_per_node", "world_size"}},
      {"Resources.devices_per_rank", {"gpus_per_rank", "gpus_per_task", "slots_per_rank"}},
      {"Resources.threads_per_rank", {"cpus", "cpus_per_rank", "cpus_per_task", "num_threads"}},
      {"Resources.memory", {"mem", "memory_limit", "memory_bytes"}},
      {"Resources.pids", {"pids_limit", "max_processes", "nproc"}},
      {"RestartPolicy.max", {"max_restarts", "max_retries", "restarts", "retries"}},
      {"TrainSpec.dataset", {"data"}},
      {"TrainSpec.max_steps", {"iterations", "num_steps", "steps"}},
      {"TrainSpec.epochs", {"max_epochs", "num_epochs"}},
      {"TrainSpec.global_batch", {"batch", "batch_size", "bs", "global_batch_size"}},
      {"TrainSpec.image_size", {"img_size", "resolution"}},
      {"TrainSpec.augment", {"augmentation", "transforms"}},
      {"TrainSpec.precision", {"amp", "bf16", "fp16"}},
      {"TrainSpec.schedule", {"lr_schedule", "lr_scheduler", "scheduler"}},
      {"TrainSpec.objective", {"criterion", "loss"}},
      {"TrainSpec.strategy", {"ddp", "distributed", "parallel", "parallelism"}},
      {"TrainSpec.accumulation_steps", {"grad_accumulation", "gradient_accumulation_steps"}},
      {"OptimizerSpec.learning_rate", {"lr"}},
      {"OptimizerSpec.weight_decay", {"wd"}},
      {"OptimizerSpec.epsilon", {"eps"}},
      {"OptimizerSpec.clip_norm", {"clip", "grad_clip", "max_grad_norm"}},
      {"ScheduleSpec.warmup_epochs", {"warmup"}},
      {"JobSpec.stop_signal", {"kill_signal", "signal"}},
      {"CheckpointSpec.every", {"checkpoint_interval", "interval", "save_interval"}},
      {"CheckpointSpec.every_steps", {"checkpoint_every", "save_every", "save_steps"}},
      {"CheckpointSpec.final", {"required"}},
      {"CheckpointSpec.keep", {"max_to_keep", "save_total_limit"}},
      {"CheckpointSpec.keep_best", {"best", "load_best", "monitor", "save_best"}},
      {"LoaderSpec.threads", {"num_workers", "workers"}},
  };
  return synonyms;
}

}  // namespace

bool Range::Contains(double value) const {
  if (std::isnan(value) || (std::isinf(value) && bounded_below())) return false;
  return (low_excluded ? value > low : value >= low) &&
         (high_excluded ? value < high : value <= high);
}

const Field& FieldOf(const FieldDescriptor& field) {
  static const Index& index = *new Index(MakeIndex());
  static const Field& none = *new Field();
  const auto entry = index.find(&field);
  return entry == index.end() ? none : *entry->second;
}

std::vector<std::string> TableEntries() {
  std::vector<std::string> names;
  for (const auto& entry : Table()) names.push_back(entry.first);
  return names;
}

std::string Summary(const Field& field) {
  const std::string text(field.help.substr(0, field.help.find(". ")));
  return text.empty() || text.back() != '.' ? text : text.substr(0, text.size() - 1);
}

void AddSynonyms(FieldTable& table) {
  for (const FieldSynonyms& entry : Synonyms()) table.at(entry.field).synonyms = entry.names;
  table.at("TrainSpec.precision").word_synonyms = {
      {"amp", "O1"}, {"bf16", "O1"}, {"fp16", "O1"}, {"fp32", "O0"}};
  table.at("CheckpointSpec.keep_best").word_synonyms = {{"accuracy", "test_accuracy"},
                                                        {"loss", "test_loss"},
                                                        {"val_accuracy", "test_accuracy"},
                                                        {"val_loss", "test_loss"}};
  table.at("JobSpec.stop_signal").word_synonyms = {{"HUP", "SIGHUP"},   {"INT", "SIGINT"},
                                                   {"QUIT", "SIGQUIT"}, {"TERM", "SIGTERM"},
                                                   {"USR1", "SIGUSR1"}, {"USR2", "SIGUSR2"}};
  for (const char* field : {"MixedPrecisionSpec.dtype", "MixedPrecisionSpec.gradient_dtype"}) {
    table.at(field).word_synonyms = {
        {"bf16", "bfloat16"}, {"fp16", "float16"}, {"half", "float16"}, {"fp32", "float32"}};
  }
}

}  // namespace muster::spec

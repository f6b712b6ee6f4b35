#include "cli/experiment/results.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/client.h"
#include "cli/output/json.h"
#include "common/files/replace_file.h"
#include "common/sha256.h"
#include "common/status.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "spec/spec.h"

namespace muster::cli {
namespace {

using nlohmann::ordered_json;

constexpr char kFile[] = "results.json";

std::string PathIn(const std::string& directory, const std::string& name) {
  return absl::StrCat(directory, "/", name);
}

// The file mode of a newly created file.
mode_t FileMode() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

absl::StatusOr<JobRun> ReadRun(const ordered_json& value) {
  JobRun run;
  run.digest = value.at("digest").get<std::string>();
  run.repetition = value.at("repetition").get<uint32_t>();
  run.attempt = value.at("attempt").get<uint32_t>();
  run.cell = value.at("cell").get<std::string>();
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // written by a newer version
  const auto status =
      google::protobuf::util::JsonStringToMessage(value.at("job").dump(), &run.job, options);
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::string_view(status.message().data(), status.message().size()));
  }
  return run;
}

// Without Collect's comparisons.
CellResult Measured(const Experiment& experiment, const Cell& cell, const RunStore* store) {
  CellResult result;
  result.cell = cell;
  if (!cell.skip_reason.empty()) {
    result.state = CellState::kSkipped;
    result.reason = cell.skip_reason;
    return result;
  }
  result.devices = DevicesOf(cell.defaulted);
  std::vector<Measurements> runs;
  for (uint32_t i = 0; i < experiment.repeat; ++i) {
    const JobRun* run = store == nullptr ? nullptr : store->Find(cell.digest, i);
    if (run == nullptr) continue;
    const v1::Job& job = run->job;
    if (job.state() == v1::SUCCEEDED) {
      if (runs.empty()) result.summary = job.summary();
      runs.push_back(MeasurementsOf(job));
      if (result.devices == 0) {
        result.devices = static_cast<uint32_t>(job.summary().devices_size());
      }
    } else if (job.state() == v1::FAILED || job.state() == v1::TIMED_OUT ||
               job.state() == v1::CANCELLED) {
      result.state = CellState::kFailed;
      if (result.reason.empty()) {
        result.reason =
            job.message().empty() ? job.reason() : absl::StrCat(job.reason(), ": ", job.message());
      }
    }
  }
  result.runs = static_cast<uint32_t>(runs.size());
  result.medians = Medians(runs);
  if (result.runs == experiment.repeat) result.state = CellState::kSucceeded;
  return result;
}

// A key that is equal for the same training, independent of devices and batch size.
std::string TrainingOf(const CellResult& result) {
  v1::JobSpec spec = result.cell.defaulted;
  spec.mutable_train()->clear_strategy();
  spec.mutable_train()->clear_global_batch();
  return spec.train().SerializeAsString();
}

double ImagesPerSecond(const CellResult& result) {
  const auto value = result.medians.find("images_per_second");
  return value == result.medians.end() ? 0 : value->second;
}

// The cell that trains the same on one device; null if there is none.
const CellResult* OneDeviceOf(const CellResult& result, const std::vector<CellResult>& all) {
  const uint32_t batch = result.cell.defaulted.train().global_batch();
  const CellResult* same_share = nullptr;
  for (const CellResult& other : all) {
    if (other.devices != 1 || ImagesPerSecond(other) == 0) continue;
    if (TrainingOf(other) != TrainingOf(result)) continue;
    const uint64_t other_batch = other.cell.defaulted.train().global_batch();
    if (other_batch == batch) return &other;
    if (same_share == nullptr && other_batch * result.devices == batch) same_share = &other;
  }
  return same_share;
}

const CellResult* BaselineOf(const Experiment& experiment, const CellResult& result,
                             const std::vector<CellResult>& all) {
  if (experiment.baseline.empty()) return nullptr;
  std::vector<std::string> labels = result.cell.labels;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto of_axis = experiment.baseline.find(experiment.axes[i].name);
    if (of_axis != experiment.baseline.end()) labels[i] = of_axis->second.front();
  }
  for (const CellResult& other : all) {
    if (other.cell.labels == labels) return &other;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<RunStore> RunStore::Open(const std::string& directory,
                                        const std::string& experiment) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("create ", directory));
  RunStore store(directory);
  store.lock_fd_ = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (store.lock_fd_ < 0) return ErrnoStatus(errno, directory);
  if (flock(store.lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory, " is in use by another muster experiment; ", "set --out to another directory"));
  }
  RETURN_IF_ERROR(store.Load(experiment));
  return store;
}

RunStore::RunStore(RunStore&& other) noexcept
    : directory_(std::move(other.directory_)),
      series_(std::move(other.series_)),
      runs_(std::move(other.runs_)),
      lock_fd_(std::exchange(other.lock_fd_, -1)) {}

RunStore::~RunStore() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

absl::Status RunStore::Load(const std::string& experiment) {
  const std::string path = PathIn(directory_, kFile);
  std::ifstream file(path);
  if (!file) {
    series_ = NewIdempotencyKey();
    return absl::OkStatus();
  }
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  try {
    const ordered_json document = ordered_json::parse(text);
    const std::string name = document.at("experiment").get<std::string>();
    if (name != experiment) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, " contains results of the experiment ", name, "; set --out to another directory"));
    }
    series_ = document.at("series").get<std::string>();
    for (const ordered_json& value : document.at("runs")) {
      ASSIGN_OR_RETURN(JobRun run, ReadRun(value));
      runs_.push_back(std::move(run));
    }
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " was not written by this program: ", error.what()));
  }
  return absl::OkStatus();
}

const JobRun* RunStore::Find(const std::string& digest, uint32_t repetition) const {
  for (const JobRun& run : runs_) {
    if (run.digest == digest && run.repetition == repetition) return &run;
  }
  return nullptr;
}

void RunStore::Put(JobRun run) {
  for (JobRun& old : runs_) {
    if (old.digest != run.digest || old.repetition != run.repetition) continue;
    old = std::move(run);
    return;
  }
  runs_.push_back(std::move(run));
}

std::string RunStore::IdempotencyKey(absl::string_view request) const {
  return absl::StrCat("experiment-", series_, "-", Sha256Hex(request).substr(0, 32));
}

absl::Status RunStore::Save(ordered_json document) const {
  document["series"] = series_;
  ordered_json& runs = document["runs"] = ordered_json::array();
  for (const JobRun& run : runs_) {
    runs.push_back({{"cell", run.cell},
                    {"digest", run.digest},
                    {"repetition", run.repetition},
                    {"attempt", run.attempt},
                    {"job", ToJson(run.job)}});
  }
  return SaveFile(kFile, JsonText(document));
}

absl::Status RunStore::SaveFile(const std::string& name, const std::string& text) const {
  const std::string path = PathIn(directory_, name);
  return ReplaceFile(path, text, {.mode = FileMode()}).get() >= 0
             ? absl::OkStatus()
             : ErrnoStatus(errno, absl::StrCat("write ", path));
}

v1::Job Kept(const v1::Job& job) {
  v1::Job kept;
  kept.set_job_id(job.job_id());
  kept.set_array_id(job.array_id());
  kept.set_state(job.state());
  kept.set_reason(job.reason());
  kept.set_message(job.message());
  kept.set_generation(job.generation());
  kept.set_restarts(job.restarts());
  kept.set_exit_code(job.exit_code());
  if (job.has_submit_time()) *kept.mutable_submit_time() = job.submit_time();
  if (job.has_start_time()) *kept.mutable_start_time() = job.start_time();
  if (job.has_finish_time()) *kept.mutable_finish_time() = job.finish_time();
  if (job.has_summary()) {
    *kept.mutable_summary() = job.summary();
    kept.mutable_summary()->clear_losses();
  } else if (job.has_progress()) {
    *kept.mutable_progress() = job.progress();
  }
  return kept;
}

std::vector<CellResult> Collect(const Experiment& experiment, const std::vector<Cell>& cells,
                                const RunStore* store) {
  std::vector<CellResult> results;
  for (const Cell& cell : cells) results.push_back(Measured(experiment, cell, store));
  for (CellResult& result : results) {
    const double images = ImagesPerSecond(result);
    if (images == 0) continue;
    const CellResult* baseline = BaselineOf(experiment, result, results);
    if (baseline != nullptr && ImagesPerSecond(*baseline) > 0) {
      result.medians[kSpeedup] = images / ImagesPerSecond(*baseline);
    }
    const CellResult* one = OneDeviceOf(result, results);
    if (one != nullptr && result.devices > 0) {
      result.medians[kScalingEfficiency] = images / (result.devices * ImagesPerSecond(*one));
    }
  }
  return results;
}

}  // namespace muster::cli

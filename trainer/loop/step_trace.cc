#include "trainer/loop/step_trace.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/time/deadline.h"
#include "common/time/steady_cond_var.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

namespace muster::train {
namespace {

// Unix time in seconds, with microseconds.
std::string Wall(absl::Time time) {
  const int64_t micros = absl::ToUnixMicros(time);
  return absl::StrFormat("%d.%06d", micros / 1000000, micros % 1000000);
}

std::string FileName(uint64_t generation) {
  return absl::StrCat("generation-", generation, ".jsonl");
}

// Removes the files of generations before `oldest`.
void RemoveOldFiles(const std::filesystem::path& folder, uint64_t oldest) {
  std::error_code error;
  std::vector<std::filesystem::path> old;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    absl::string_view number = name;
    uint64_t generation = 0;
    if (absl::ConsumePrefix(&number, "generation-") && absl::ConsumeSuffix(&number, ".jsonl") &&
        absl::SimpleAtoi(number, &generation) && generation < oldest) {
      old.push_back(entry.path());
    }
  }
  for (const std::filesystem::path& path : old) std::filesystem::remove(path, error);
}

}  // namespace

// Appends lines to a file, on a detached thread that shares the writer: a disk that does not answer
// must not keep the rank from exiting.
class StepTrace::Writer {
 public:
  explicit Writer(std::FILE* file) : file_(file) {}
  ~Writer() { std::fclose(file_); }

  void Add(absl::string_view lines) {
    absl::MutexLock lock(&mutex_);
    absl::StrAppend(&lines_, lines);
    changed_.SignalAll();
  }
  // Waits until everything has been written, at most `timeout`.
  void Close(absl::Duration timeout) {
    const Deadline deadline(timeout);
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    changed_.SignalAll();
    while (!done_ && !changed_.WaitUntil(&mutex_, deadline)) {
    }
  }
  void Run() {
    absl::MutexLock lock(&mutex_);
    while (!done_) {
      while (!closing_ && lines_.empty()) changed_.Wait(&mutex_);
      const std::string lines = std::exchange(lines_, "");
      mutex_.Unlock();
      const bool written = std::fwrite(lines.data(), 1, lines.size(), file_) == lines.size() &&
                           std::fflush(file_) == 0;
      const int error = errno;
      mutex_.Lock();
      if (!written) LOG(WARNING) << "the trace ends: " << std::strerror(error);
      done_ = !written || (closing_ && lines_.empty());
    }
    changed_.SignalAll();
  }

 private:
  std::FILE* const file_;
  absl::Mutex mutex_;
  SteadyCondVar changed_;
  std::string lines_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

StepTrace::StepTrace(const std::string& directory, uint64_t generation, absl::string_view node,
                     uint32_t rank, bool synchronous, const Time& now)
    : synchronous_(synchronous), start_(now.steady), next_window_(SteadyTime::Infinite()) {
  const std::filesystem::path folder = std::filesystem::path(directory) / kFolder;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (generation >= kGenerations) RemoveOldFiles(folder, generation - kGenerations + 1);
  const std::string path = (folder / FileName(generation)).string();
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    LOG(WARNING) << path << ": " << std::strerror(errno)
                 << "; `muster trace` will have no steps of this rank";
    return;
  }
  writer_ = std::make_shared<Writer>(file);
  std::thread([writer = writer_] { writer->Run(); }).detach();
  next_window_ = now.steady;
  const nlohmann::ordered_json head = {
      {"generation", generation}, {"rank", rank}, {"node", std::string(node)}};
  lines_ = head.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

StepTrace::~StepTrace() {
  constexpr absl::Duration kPatience = absl::Seconds(1);
  if (writer_ == nullptr) return;
  Write();
  writer_->Close(kPatience);
}

void StepTrace::SetPhase(absl::string_view phase, const Time& now) {
  if (writer_ == nullptr || phase == phase_ || phases_ == kMaxPhases) return;
  phase_ = std::string(phase);
  ++phases_;
  absl::StrAppend(&lines_, "{\"phase\":\"", phase, "\",\"time\":", Wall(now.wall), "}\n");
  Write();
}

void StepTrace::Record(uint64_t completed_steps, const StepTimes& times, const Time& now) {
  absl::StrAppendFormat(&lines_,
                        "{\"step\":%d,\"end\":%s,\"seconds\":%.6f,\"data_wait\":%.6f,\"%s\":%.6f,"
                        "\"communication\":%.6f}\n",
                        completed_steps, Wall(now.wall), absl::ToDoubleSeconds(times.step),
                        absl::ToDoubleSeconds(times.data_wait), synchronous_ ? "compute" : "launch",
                        absl::ToDoubleSeconds(times.kernels),
                        absl::ToDoubleSeconds(times.exposed_communication));
  const bool first = windows_ == 0 && steps_in_window_ == 0;
  if (++steps_in_window_ == kWindowSteps) {
    steps_in_window_ = 0;
    const absl::Duration pause = std::max(kShortestPause, (now.steady - start_) / kPauseDivisor);
    next_window_ = ++windows_ == kMaxWindows ? SteadyTime::Infinite() : now.steady + pause;
    Write();
  } else if (first) {
    Write();  // the time of the first step is of interest even if the rank is killed soon
  }
}

void StepTrace::Write() {
  writer_->Add(lines_);
  lines_.clear();
}

}  // namespace muster::train

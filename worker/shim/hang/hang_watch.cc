#include "worker/shim/hang/hang_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "worker/shim/fields.h"
#include "worker/shim/hang/inspect.h"
#include "worker/shim/process_tree.h"
#include "worker/shim/protocol.h"

namespace muster::shim {
namespace {

constexpr int64_t kStartAllowanceMs = 60'000;
constexpr int64_t kNoiseBytesPerSecond = 16 << 10;

uint64_t IoBytes(const std::string& directory) {
  // Memory maps appear in the last two only; a read that misses the page cache counts twice.
  const std::string counters = ReadFile(directory + "/io").value_or("");
  uint64_t bytes = 0;
  for (const std::string_view name : {"rchar: ", "wchar: ", "read_bytes: ", "\nwrite_bytes: "}) {
    const size_t at = counters.find(name);
    if (at == std::string::npos) continue;
    bytes += std::strtoull(counters.c_str() + at + name.size(), nullptr, 10);
  }
  return bytes;
}

// utime and stime are the 14th and 15th field of stat; the second is the name in parentheses.
uint64_t CpuMs(const std::string& directory) {
  const std::string stat = ReadFile(directory + "/stat").value_or("");
  size_t at = stat.rfind(')');
  for (int field = 2; field < 14 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return 0;
  char* end = nullptr;
  const uint64_t user = std::strtoull(stat.c_str() + at, &end, 10);
  const uint64_t system = std::strtoull(end, nullptr, 10);
  return (user + system) * 1000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
}

}  // namespace

TreeCounters ReadTree(pid_t root) {
  TreeCounters counters;
  for (const pid_t pid : Descendants(root)) {
    const std::string directory = "/proc/" + std::to_string(pid);
    counters[pid] = {IoBytes(directory), CpuMs(directory)};
  }
  return counters;
}

Activity::Activity(int64_t timeout_ms, int64_t now_ms)
    : timeout_ms_(timeout_ms),
      sample_interval_ms_(std::clamp<int64_t>(timeout_ms / 20, 500, 15'000)),
      burst_bytes_(kNoiseBytesPerSecond * std::clamp<int64_t>(timeout_ms / 4, 1000, 30'000) / 1000),
      silent_from_ms_(now_ms + std::max<int64_t>(0, kStartAllowanceMs - timeout_ms)) {}

void Activity::OnOutput(int64_t now_ms) {
  silent_from_ms_ = now_ms;
  pending_bytes_ = 0;
  // The rank is active, so that no sample is needed until it is silent again.
  ForgetSample();
}

void Activity::OnSample(TreeCounters counters, int64_t now_ms) {
  if (sample_ms_ >= 0 && now_ms > sample_ms_) {
    const int64_t elapsed_ms = now_ms - sample_ms_;
    uint64_t cpu_ms = 0;
    for (const auto& [pid, now] : counters) {
      const auto before = sample_.find(pid);
      const ProcessCounters start = before == sample_.end() ? ProcessCounters() : before->second;
      if (now.io_bytes > start.io_bytes) {
        pending_bytes_ += static_cast<int64_t>(now.io_bytes - start.io_bytes);
      }
      if (now.cpu_ms > start.cpu_ms) cpu_ms += now.cpu_ms - start.cpu_ms;
    }
    cpu_ratio_ = static_cast<double>(cpu_ms) / static_cast<double>(elapsed_ms);
    pending_bytes_ =
        std::max<int64_t>(0, pending_bytes_ - kNoiseBytesPerSecond * elapsed_ms / 1000);
    if (pending_bytes_ >= burst_bytes_) {
      silent_from_ms_ = std::max(silent_from_ms_, now_ms);
      pending_bytes_ = 0;
    }
  }
  sample_ = std::move(counters);
  sample_ms_ = now_ms;
}

int64_t Activity::SilenceMs(int64_t now_ms) const {
  return std::max<int64_t>(0, now_ms - silent_from_ms_);
}

HangWatch::HangWatch(int64_t timeout_ms, int64_t now_ms) {
  if (timeout_ms > 0) activity_.emplace(timeout_ms, now_ms);
}

int64_t HangWatch::interval_ms() const {
  return activity_.has_value() ? activity_->sample_interval_ms() : -1;
}

std::string HangWatch::OnTimer(int64_t now_ms) {
  if (!activity_.has_value()) return "";
  // An inspector reads files on behalf of the shim, not of the rank.
  if (inspector_ < 0) activity_->OnSample(ReadTree(getpid()), now_ms);
  return Update(now_ms);
}

std::string HangWatch::OnOutput(int64_t now_ms) {
  if (!activity_.has_value()) return "";
  activity_->OnOutput(now_ms);
  return Update(now_ms);
}

std::string HangWatch::Update(int64_t now_ms) {
  const bool silent = activity_->IsSilent(now_ms);
  if (silent == silent_) return "";
  silent_ = silent;
  return silent ? StateLine(now_ms) : "active\n";
}

std::string HangWatch::StateLine(int64_t now_ms) const {
  if (!silent_) return "";
  return "silent " + std::to_string(activity_->SilenceMs(now_ms)) + "\n";
}

void HangWatch::Inspect(pid_t rank, const std::optional<Credentials>& user) {
  if (inspector_ >= 0) return;
  const double cpu_ratio = activity_.has_value() ? activity_->cpu_ratio() : 0;
  inspector_ = StartInspector(rank, user, cpu_ratio, kInspectionFile);
}

std::string HangWatch::OnReaped(pid_t child) {
  if (inspector_ < 0 || child != inspector_) return "";
  inspector_ = -1;
  if (activity_.has_value()) activity_->ForgetSample();
  return "inspected\n";
}

}  // namespace muster::shim

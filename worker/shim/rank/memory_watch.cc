#include "worker/shim/rank/memory_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "worker/shim/fields.h"
#include "worker/shim/process_tree.h"

namespace muster::shim {
namespace {

constexpr int64_t kFirstMs = 1000;
constexpr uint64_t kLeastChangeBytes = 1 << 20;

}  // namespace

uint64_t ResidentBytes(pid_t root) {
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  uint64_t bytes = 0;
  for (const pid_t pid : Descendants(root)) {
    // `size resident shared …`, in pages.
    const std::string text = ReadFile("/proc/" + std::to_string(pid) + "/statm").value_or("");
    const size_t resident = text.find(' ');
    if (resident == std::string::npos) continue;
    bytes += page_bytes * std::strtoull(text.c_str() + resident, nullptr, 10);
  }
  return bytes;
}

int64_t MemoryWatch::first_ms() const { return std::min(kFirstMs, interval_ms()); }

std::string MemoryWatch::OnTimer(const Cgroup& group) {
  const std::optional<uint64_t> of_group = group.MemoryBytes();
  return OnSample(of_group.has_value() ? *of_group : ResidentBytes(getpid()));
}

std::string MemoryWatch::OnSample(uint64_t bytes) {
  const uint64_t change = std::max(bytes, reported_bytes_) - std::min(bytes, reported_bytes_);
  if (reported_bytes_ > 0 && change < std::max(reported_bytes_ / 20, kLeastChangeBytes)) return "";
  reported_bytes_ = bytes;
  return StateLine();
}

std::string MemoryWatch::StateLine() const {
  return reported_bytes_ == 0 ? "" : "memory " + std::to_string(reported_bytes_) + "\n";
}

}  // namespace muster::shim

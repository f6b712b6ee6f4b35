#include "coordinator/core/scheduler/placement/device_choice.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "absl/strings/string_view.h"

namespace muster::core {
namespace {

// The number of ways to choose 8 of 16 GPUs.
constexpr size_t kMaxSets = 12870;
// Larger nodes do not exist; this bounds the work that a worker's claim can cause.
constexpr size_t kMaxDevices = 64;

// Bandwidth of one NVLink of any generation since Volta, in GB/s.
constexpr uint32_t kNvlink = 25;

uint32_t PathCloseness(absl::string_view path) {
  static constexpr std::pair<absl::string_view, uint32_t> kPaths[] = {
      {"board", 23},       {"switch", 22},    {"switches", 20},
      {"host bridge", 16}, {"NUMA node", 14}, {"system", 10}};
  for (const auto& [name, closeness] : kPaths) {
    if (path == name) return closeness;
  }
  return 0;
}

// Returns the link to the device with that index; null when none is reported.
const v1::DeviceLink* LinkTo(const v1::Device& device, uint32_t index) {
  const auto& links = device.links();
  const auto found = std::find_if(links.begin(), links.end(), [index](const v1::DeviceLink& link) {
    return link.index() == index;
  });
  return found == links.end() ? nullptr : &*found;
}

// The closeness of each pair of free devices, indexed by their positions in `free`.
class Matrix {
 public:
  Matrix(const google::protobuf::RepeatedPtrField<v1::Slot>& slots,
         const std::vector<uint32_t>& free)
      : size_(free.size()), pairs_(size_ * size_), rows_(size_) {
    std::map<uint32_t, const v1::Device*> devices;
    for (const v1::Slot& slot : slots) {
      if (slot.has_device()) devices[slot.index()] = &slot.device();
    }
    std::vector<const v1::Device*> of_free(size_);
    for (size_t i = 0; i < size_; ++i) {
      const auto found = devices.find(free[i]);
      if (found != devices.end()) of_free[i] = found->second;
    }
    for (size_t i = 0; i < size_; ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (of_free[i] == nullptr || of_free[j] == nullptr) continue;
        pairs_[i * size_ + j] = pairs_[j * size_ + i] = Closeness(*of_free[i], *of_free[j]);
      }
    }
    for (size_t i = 0; i < size_; ++i) {
      for (size_t j = 0; j < size_; ++j) rows_[i] += at(i, j);
    }
  }

  size_t size() const { return size_; }
  uint32_t at(size_t i, size_t j) const { return pairs_[i * size_ + j]; }
  uint64_t row(size_t i) const { return rows_[i]; }
  bool AllAlike() const {
    for (size_t i = 0; i < size_; ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (at(i, j) != at(1, 0)) return false;
      }
    }
    return true;
  }
  absl::string_view bytes() const {
    return {reinterpret_cast<const char*>(pairs_.data()), pairs_.size() * sizeof(pairs_[0])};
  }

 private:
  const size_t size_;
  std::vector<uint32_t> pairs_;
  std::vector<uint64_t> rows_;
};

// A set of devices under construction, and its quality.
struct Set {
  std::vector<size_t> members;
  uint32_t worst = std::numeric_limits<uint32_t>::max();
  uint64_t sum = 0;
  uint64_t rows = 0;

  void Add(const Matrix& matrix, size_t member) {
    for (const size_t other : members) {
      worst = std::min(worst, matrix.at(member, other));
      sum += matrix.at(member, other);
    }
    rows += matrix.row(member);
    members.push_back(member);
  }
  // The closeness of all pairs that this set takes from later jobs. Pairs within the set are in two
  // rows, so their sum is subtracted once.
  uint64_t lost() const { return rows - sum; }
  bool IsBetterThan(const Set& other) const {
    return std::make_tuple(worst, sum, other.lost()) >
           std::make_tuple(other.worst, other.sum, lost());
  }
};

// Enumerates the sets in the order of their indices, so that the lowest of equal sets is kept.
void EnumerateSets(const Matrix& matrix, size_t count, size_t first, const Set& begun, Set& best) {
  if (begun.members.size() == count) {
    if (best.members.empty() || begun.IsBetterThan(best)) best = begun;
    return;
  }
  const size_t missing = count - begun.members.size();
  for (size_t next = first; next + missing <= matrix.size(); ++next) {
    Set longer = begun;
    longer.Add(matrix, next);
    if (!best.members.empty() && longer.worst < best.worst) continue;
    EnumerateSets(matrix, count, next + 1, longer, best);
  }
}

Set GrowFrom(const Matrix& matrix, size_t count, size_t first) {
  Set set;
  set.Add(matrix, first);
  std::vector<bool> taken(matrix.size());
  taken[first] = true;
  // For each device, the worst and the total closeness to the devices in the set.
  std::vector<std::pair<uint32_t, uint64_t>> to_set(matrix.size(), {set.worst, 0});
  while (set.members.size() < count) {
    size_t next = matrix.size();
    for (size_t i = 0; i < matrix.size(); ++i) {
      if (taken[i]) continue;
      const uint32_t closeness = matrix.at(i, set.members.back());
      to_set[i] = {std::min(to_set[i].first, closeness), to_set[i].second + closeness};
      if (next == matrix.size() || to_set[i] > to_set[next]) next = i;
    }
    taken[next] = true;
    set.Add(matrix, next);
  }
  std::sort(set.members.begin(), set.members.end());
  return set;
}

bool CanEnumerate(size_t size, size_t count) {
  size_t sets = 1;
  for (size_t i = 0; i < std::min(count, size - count); ++i) {
    sets = sets * (size - i) / (i + 1);
    if (sets > kMaxSets) return false;
  }
  return true;
}

std::vector<size_t> FindBest(const Matrix& matrix, size_t count) {
  Set best;
  if (CanEnumerate(matrix.size(), count)) {
    EnumerateSets(matrix, count, 0, Set(), best);
    return best.members;
  }
  for (size_t first = 0; first < matrix.size(); ++first) {
    const Set grown = GrowFrom(matrix, count, first);
    if (first == 0 || grown.IsBetterThan(best)) best = grown;
  }
  return best.members;
}

}  // namespace

uint32_t Closeness(const v1::Device& one, const v1::Device& other) {
  const v1::DeviceLink* link = LinkTo(one, other.index());
  if (link == nullptr) link = LinkTo(other, one.index());
  uint32_t closeness = link == nullptr ? 0 : PathCloseness(link->path());
  // The number of links comes from the worker and is not trusted.
  constexpr uint32_t kMaxLinks = 1024;
  const uint32_t direct = link == nullptr ? 0 : link->nvlinks();
  const uint32_t switched = std::min(one.nvswitch_links(), other.nvswitch_links());
  return std::max(closeness, kNvlink * std::min(kMaxLinks, std::max(direct, switched)));
}

std::vector<uint32_t> DeviceChooser::Choose(
    const google::protobuf::RepeatedPtrField<v1::Slot>* slots, const std::vector<uint32_t>& free,
    size_t count) {
  std::vector<uint32_t> chosen(free.begin(), free.begin() + static_cast<ptrdiff_t>(count));
  if (slots == nullptr || count == free.size() || free.size() > kMaxDevices) return chosen;
  if (std::none_of(slots->begin(), slots->end(), [](const auto& s) { return s.has_device(); })) {
    return chosen;
  }
  const Matrix matrix(*slots, free);
  if (matrix.AllAlike()) return chosen;
  std::string key(matrix.bytes());
  key.push_back(static_cast<char>(count));
  const auto [choice, is_new] = choices_.try_emplace(std::move(key));
  if (is_new) choice->second = FindBest(matrix, count);
  for (size_t i = 0; i < count; ++i) chosen[i] = free[choice->second[i]];
  return chosen;
}

}  // namespace muster::core

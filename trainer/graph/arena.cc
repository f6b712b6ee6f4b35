#include "trainer/graph/arena.h"

#include <algorithm>
#include <numeric>

namespace muster::nn {

size_t ArenaPlanner::Add(size_t bytes, int64_t first, int64_t last) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  buffers_.push_back({.bytes = rounded, .first = first, .last = last, .offset = 0});
  return buffers_.size() - 1;
}

void ArenaPlanner::Place() {
  std::vector<size_t> order(buffers_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [this](size_t a, size_t b) { return buffers_[a].bytes > buffers_[b].bytes; });
  std::vector<const Buffer*> placed;  // by offset
  for (const size_t index : order) {
    Buffer& buffer = buffers_[index];
    size_t offset = 0;
    for (const Buffer* other : placed) {
      if (other->last < buffer.first || buffer.last < other->first) continue;
      if (offset + buffer.bytes <= other->offset) break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    buffer.offset = offset;
    bytes_ = std::max(bytes_, offset + buffer.bytes);
    const auto at =
        std::upper_bound(placed.begin(), placed.end(), offset,
                         [](size_t value, const Buffer* other) { return value < other->offset; });
    placed.insert(at, &buffer);
  }
}

}  // namespace muster::nn

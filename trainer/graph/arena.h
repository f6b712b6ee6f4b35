// Assigns the buffers of a plan to offsets in one block of memory. Buffers whose lifetimes do not
// overlap share bytes.
#ifndef MUSTER_TRAINER_GRAPH_ARENA_H_
#define MUSTER_TRAINER_GRAPH_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::nn {

class ArenaPlanner {
 public:
  static constexpr size_t kAlignment = 64;

  // Adds a buffer that is live from time `first` to time `last`, both inclusive. Returns its index.
  size_t Add(size_t bytes, int64_t first, int64_t last);

  // Assigns offsets greedily: larger buffers first, each at the lowest offset that is free during
  // its lifetime.
  void Place();

  // Valid after Place.
  size_t offset(size_t buffer) const { return buffers_[buffer].offset; }
  size_t bytes() const { return bytes_; }

 private:
  struct Buffer {
    size_t bytes;
    int64_t first;
    int64_t last;
    size_t offset;
  };
  std::vector<Buffer> buffers_;
  size_t bytes_ = 0;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_ARENA_H_

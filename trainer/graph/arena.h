// Places the buffers of a plan in one block of memory: those that are never alive together share
// bytes.
#ifndef MUSTER_TRAINER_GRAPH_ARENA_H_
#define MUSTER_TRAINER_GRAPH_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::nn {

class ArenaPlanner {
 public:
  static constexpr size_t kAlignment = 64;

  // A buffer that holds its content from time `first` to time `last`, both included. Returns its
  // index.
  size_t Add(size_t bytes, int64_t first, int64_t last);

  // Assigns offsets, larger buffers first, each at the lowest place that is free throughout its
  // life.
  void Place();

  // After Place.
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

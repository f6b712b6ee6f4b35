// The order between blocks of a launch that atomic operations and fences establish.
#ifndef MUSTER_TESTS_GPU_PTX_BLOCK_ORDER_H_
#define MUSTER_TESTS_GPU_PTX_BLOCK_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace muster::ptx {

struct Accessor;

// Writes of a block are visible to a later block if
// - after them, the threads that wrote execute a fence, and then, after a barrier, a thread of the
//   block an atomic operation; or, after a barrier, that thread executes both;
// - a thread of the later block executes an atomic operation on the same address, then a fence.
// The other threads of the later block see them after its next barrier.
class BlockOrder {
 public:
  void BeginBlock(uint64_t begin);  // stamp of the block's first phase
  void Fence(const Accessor& accessor);
  void Atomic(uint64_t address, const Accessor& accessor);

  // Whether the access with this stamp, by another block of the launch, comes before the
  // accessor's.
  bool IsOrdered(uint64_t stamp, const Accessor& accessor) const;

 private:
  // An atomic operation, which publishes what its block wrote.
  struct Release {
    uint64_t block_begin;
    uint64_t block_end;  // stamp of the next block's first phase
    uint64_t phase_begin;
    uint64_t thread;
    std::vector<uint64_t> fences;  // by thread: stamp of the phase of its last fence
    bool Publishes(uint64_t stamp) const;
  };
  // A thread of the current block saw the first `count` releases at an address.
  struct Acquire {
    uint64_t address;
    size_t count;
    uint64_t self;  // stamp of the thread's atomic operation, then of its fence
  };

  std::map<uint64_t, std::vector<Release>> releases_;  // by address, in order of execution
  std::vector<uint64_t> current_;                      // addresses of the block's releases
  std::vector<uint64_t> fences_;                       // fences of the current block
  std::vector<Acquire> pending_;                       // without a fence
  std::vector<Acquire> acquired_;
};

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_BLOCK_ORDER_H_

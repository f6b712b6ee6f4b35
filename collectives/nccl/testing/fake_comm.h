// A communicator of the fake NCCL: the file in which its ranks meet, and what state it is in.
#ifndef MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_COMM_H_
#define MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_COMM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/nccl/nccl_abi.h"

namespace fake_nccl {

inline constexpr int kPairRanks = 16;  // the most ranks of a group that sends and receives

// Ends the process with a line on stderr.
[[noreturn]] void Misuse(const std::string& what);

// The word behind `kind` and `symbol` (null: it has none) of the rule that is for this rank, or
// null. A rule without a word has an empty one.
std::unique_ptr<std::string> FindRule(const char* kind, const char* symbol, int rank,
                                      bool has_word);

struct Signature {
  int kind, type, op, root;
  size_t count;
};

// What a rank tells the others in a call.
struct Said {
  int color, key;
  size_t window_bytes;
};

// In the file: one of them, then ranks, then their slots, then the pairs of ranks.
struct alignas(64) Meeting {
  std::atomic<uint32_t> size;
  std::atomic<uint32_t> joined;
};

struct alignas(64) RankState {
  std::atomic<uint32_t> joined;
  char gpu[124];
  Signature signature;
  std::atomic<uint32_t> exchanges;       // that it has said its part of
  std::atomic<uint32_t> exchanges_read;  // that it has read all parts of
  Said said;
  std::atomic<uint64_t> arrived;   // chunks put into the slot
  std::atomic<uint64_t> consumed;  // chunks read from all slots
};

struct alignas(64) Pair {
  std::atomic<uint64_t> sent;
  std::atomic<uint64_t> received;
  size_t total_bytes;
  size_t length;
};

struct Layout {
  explicit Layout(int size)
      : slot_bytes(size <= kPairRanks ? 1 << 18 : 1 << 12),
        pair_bytes(1 << 16),
        ranks(sizeof(Meeting)),
        slots(ranks + size * sizeof(RankState)),
        pairs(slots + size * slot_bytes),
        end(pairs + (size <= kPairRanks ? size * size * (sizeof(Pair) + pair_bytes) : 0)) {}

  size_t slot_bytes, pair_bytes, ranks, slots, pairs, end;
};

}  // namespace fake_nccl

// Its members are for the thread that makes calls, but for the atomic ones and those that steps use
// alone; `memory` is shared by the ranks.
struct NcclCommOpaque {
  NcclCommOpaque(int size, int rank) : size(size), rank(rank), layout(size) {}

  fake_nccl::RankState& state_of(int peer) {
    return reinterpret_cast<fake_nccl::RankState*>(memory + layout.ranks)[peer];
  }
  char* slot(int peer) { return memory + layout.slots + peer * layout.slot_bytes; }
  fake_nccl::Pair& pair(int from, int to) {
    return *reinterpret_cast<fake_nccl::Pair*>(
        memory + layout.pairs + (from * size + to) * (sizeof(fake_nccl::Pair) + layout.pair_bytes));
  }
  fake_nccl::Meeting& meeting() { return *reinterpret_cast<fake_nccl::Meeting*>(memory); }

  // Opens the files of all ids, and takes this rank's place in the first. A part of a communicator
  // makes its file.
  void Enter();
  // -> whether all ranks are there.
  bool Meet();
  // While it waits for these: one that is gone becomes an asynchronous error.
  void LookFor(const std::vector<int>& peers);

  const int size;
  const int rank;
  const fake_nccl::Layout layout;
  std::vector<std::string> paths;  // of its ids
  bool is_part = false;
  int file = -1;
  char* memory = nullptr;

  std::atomic<bool> in_call{false};
  std::atomic<bool> aborting{false};
  std::atomic<bool> dead{false};
  std::atomic<NcclResult> state{kNcclSuccess};
  // Whoever steps the stream has it, and whoever ends what steps use.
  std::mutex stepping;
  std::string last_error;  // written before `state` says so
  // While in progress: what is being done, and by which call.
  std::function<bool()> pending;
  const char* pending_symbol = "";
  int polls = 0;

  uint64_t chunks = 0;  // of all collectives until now
  uint64_t waits = 0;
};

#endif  // MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_COMM_H_

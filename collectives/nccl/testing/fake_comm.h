// A communicator of the fake NCCL: the shared file through which its ranks communicate, and its
// state.
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

inline constexpr int kPairRanks = 16;  // maximum number of ranks of a group that uses Send and Recv

// Prints a line to stderr and aborts the process.
[[noreturn]] void Misuse(const std::string& what);

// Returns the word after `kind` and `symbol` (null: the rule has no symbol) of the first rule for
// this rank, or null if there is no rule. Empty if the rule has no word.
std::unique_ptr<std::string> FindRule(const char* kind, const char* symbol, int rank,
                                      bool has_word);

struct Signature {
  int kind, type, op, root;
  size_t count;
};

// Data that a rank passes to the others in a collective call.
struct ExchangeData {
  int color, key;
  size_t window_bytes;
};

// The file contains one Rendezvous, then RankStates, their slots, and the Pairs.
struct alignas(64) Rendezvous {
  std::atomic<uint32_t> size;
  std::atomic<uint32_t> joined;
};

struct alignas(64) RankState {
  std::atomic<uint32_t> joined;
  char gpu[124];
  Signature signature;
  std::atomic<uint32_t> exchanges;       // exchanges to which this rank has contributed
  std::atomic<uint32_t> exchanges_read;  // exchanges of which this rank has read all data
  ExchangeData data;
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
        ranks(sizeof(Rendezvous)),
        slots(ranks + size * sizeof(RankState)),
        pairs(slots + size * slot_bytes),
        end(pairs + (size <= kPairRanks ? size * size * (sizeof(Pair) + pair_bytes) : 0)) {}

  size_t slot_bytes, pair_bytes, ranks, slots, pairs, end;
};

}  // namespace fake_nccl

// Members are used by the calling thread, except for the atomic ones and those that only steps use;
// `memory` is shared by the ranks.
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
  fake_nccl::Rendezvous& rendezvous() { return *reinterpret_cast<fake_nccl::Rendezvous*>(memory); }

  // Opens the files of all ids and claims this rank in the first. A split communicator creates its
  // file.
  void Join();
  // Returns whether all ranks have joined.
  bool PollRendezvous();
  // Called while waiting for `peers`: raises an asynchronous error if one of them has exited.
  void CheckAlive(const std::vector<int>& peers);

  const int size;
  const int rank;
  const fake_nccl::Layout layout;
  std::vector<std::string> paths;  // files of its ids
  bool is_part = false;
  int file = -1;
  char* memory = nullptr;

  std::atomic<bool> in_call{false};
  std::atomic<bool> aborting{false};
  std::atomic<bool> dead{false};
  std::atomic<NcclResult> state{kNcclSuccess};
  // Held while stepping the stream and while destroying state that steps use.
  std::mutex stepping;
  std::string last_error;  // written before `state`
  // The call in progress.
  std::function<bool()> pending;
  const char* pending_symbol = "";
  int polls = 0;

  uint64_t chunks = 0;  // number of chunks of all collectives so far
  uint64_t waits = 0;
};

#endif  // MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_COMM_H_

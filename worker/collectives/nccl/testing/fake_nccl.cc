// Stands in for NVIDIA's libnccl.so.2 in tests: the same symbols, over memory of the host. Ranks
// are processes or threads of one machine; they meet in a file that the unique id names, and data
// move through it. A `cudaStream_t` is a host stream (host_stream_abi.h). Nothing here has a
// thread: a call only begins, and goes on when ncclCommGetAsyncError is called or the stream is
// asked.
//
// It is strict where NCCL is undefined, and ends the process with a line on stderr: two threads in
// a communicator at once, a call while it aborts, afterwards, or before the last one has settled, a
// blocking communicator, an id used twice, ranks that disagree about what they call. Sends are not
// buffered. A rank that is gone is an asynchronous error of those that wait for it.
//
// The text file that the environment variable FAKE_NCCL names holds what else happens; it is read
// anew at every call, so that a test changes it by replacing the file (with a rename). SYMBOL is
// ncclAllReduce, say; RANK may be left out for all:
//
//   version 22809
//   fail SYMBOL CODE RANK   the call gives back CODE
//   slow SYMBOL RANK        the call does not settle as long as this line is there
//   hang SYMBOL RANK        what the call began never ends
//   async CODE RANK         the communicator has met this error
//   abort_ms 50             how long ncclCommAbort takes
//   bus_id 1b000            of every rank's GPU; else each has one of its own. Hosts are told apart
//                           by NCCL_HOSTID
//
// Built with OLD_NCCL it lacks what versions before 2.23 lack.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker/collectives/communicator.h"
#include "worker/collectives/nccl/nccl_abi.h"
#include "worker/collectives/nccl/testing/host_stream_abi.h"
#include "worker/collectives/reduce.h"

namespace {

using muster::collectives::DataType;
using muster::collectives::ReduceOp;
using muster::collectives::SizeOf;

#ifdef OLD_NCCL
constexpr int kVersion = 21805;
#else
constexpr int kVersion = 22809;
#endif
constexpr int kCallPolls = 2;       // until a call settles
constexpr int kLivenessPolls = 64;  // between looks for peers that are gone
constexpr int kPairRanks = 16;      // the most ranks of a group that sends and receives

[[noreturn]] void Misuse(const std::string& what) {
  std::fprintf(stderr, "fake_nccl: %s\n", what.c_str());
  std::abort();
}

// The words of the rules' lines that begin with `kind`.
std::vector<std::vector<std::string>> RulesOf(const std::string& kind) {
  std::vector<std::vector<std::string>> rules;
  const char* const path = std::getenv("FAKE_NCCL");
  if (path == nullptr) return rules;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream text(line);
    std::vector<std::string> words;
    for (std::string word; text >> word;) words.push_back(word);
    if (!words.empty() && words[0] == kind) rules.push_back(words);
  }
  return rules;
}

// The word behind `kind` and `symbol` of the rule that is for this rank, or null. A rule without
// a word has an empty one.
std::unique_ptr<std::string> FindRule(const char* kind, const char* symbol, int rank,
                                      bool has_word) {
  for (const auto& words : RulesOf(kind)) {
    size_t next = 1;
    if (symbol != nullptr && (words.size() <= next || words[next++] != symbol)) continue;
    std::string word;
    if (has_word && words.size() > next) word = words[next++];
    if (words.size() > next && words[next] != std::to_string(rank)) continue;
    return std::make_unique<std::string>(word);
  }
  return nullptr;
}

struct Signature {
  int kind, type, op, root;
  size_t count;
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

}  // namespace

struct NcclCommOpaque {
  NcclCommOpaque(int size, int rank) : size(size), rank(rank), layout(size) {}

  RankState& state_of(int peer) {
    return reinterpret_cast<RankState*>(memory + layout.ranks)[peer];
  }
  char* slot(int peer) { return memory + layout.slots + peer * layout.slot_bytes; }
  Pair& pair(int from, int to) {
    return *reinterpret_cast<Pair*>(memory + layout.pairs +
                                    (from * size + to) * (sizeof(Pair) + layout.pair_bytes));
  }
  Meeting& meeting() { return *reinterpret_cast<Meeting*>(memory); }

  // While it waits for them.
  void LookFor(const std::vector<int>& peers) {
    if (++waits % kLivenessPolls != 0) return;
    for (const int peer : peers) {
      struct flock lock = {};
      lock.l_type = F_WRLCK;
      lock.l_whence = SEEK_SET;
      lock.l_start = peer;
      lock.l_len = 1;
      // A rank holds the lock of its byte until it is out.
      if (peer == rank || fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) continue;
      state = kNcclRemoteError;
      last_error = "remote process exited or there was a network error";
    }
  }

  const int size;
  const int rank;
  const Layout layout;
  std::vector<std::string> paths;  // of its ids
  int file = -1;
  char* memory = nullptr;

  std::atomic<bool> in_call{false};
  std::atomic<bool> aborting{false};
  std::atomic<bool> dead{false};
  NcclResult state = kNcclSuccess;
  std::string last_error;
  // While in progress: what is being done, and by which call.
  std::function<bool()> pending;
  const char* pending_symbol = "";
  int polls = 0;

  uint64_t chunks = 0;  // of all collectives until now
  uint64_t waits = 0;
};

namespace {

// A call of a communicator, checked.
class Call {
 public:
  Call(NcclComm comm, const char* symbol, bool may_interrupt = false) : comm_(comm) {
    if (comm == nullptr) Misuse(std::string(symbol) + " of no communicator");
    if (comm->dead) Misuse(std::string(symbol) + " of a communicator that is gone");
    if (comm->aborting) Misuse(std::string(symbol) + " during ncclCommAbort");
    if (comm->in_call.exchange(true)) Misuse(std::string(symbol) + " beside another thread's call");
    if (comm->state == kNcclInProgress && !may_interrupt) {
      Misuse(std::string(symbol) + " before " + comm->pending_symbol + " has settled");
    }
  }
  ~Call() { comm_->in_call = false; }

 private:
  const NcclComm comm_;
};

NcclResult Begin(NcclComm comm, const char* symbol, std::function<bool()> pending) {
  if (comm->state != kNcclSuccess) return comm->state;
  if (const auto code = FindRule("fail", symbol, comm->rank, /*has_word=*/true)) {
    comm->state = std::atoi(code->c_str());
    return comm->state;
  }
  comm->pending = std::move(pending);
  comm->pending_symbol = symbol;
  comm->polls = 0;
  comm->state = kNcclInProgress;
  return kNcclInProgress;
}

// `step` goes into the stream when the call settles: what is recorded before is before it.
NcclResult BeginInStream(NcclComm comm, const char* symbol, NcclStream stream,
                         std::function<bool()> step) {
  return Begin(comm, symbol, [comm, symbol, stream, step = std::move(step)] {
    auto* const task = new std::function<bool()>([comm, symbol, step] {
      if (comm->dead) return true;
      if (FindRule("hang", symbol, comm->rank, /*has_word=*/false) != nullptr) return false;
      return comm->state != kNcclRemoteError && step();
    });
    auto* const queue = static_cast<HostStreamAbi*>(stream);
    queue->enqueue(queue, {[](void* data) {
                             auto* const run = static_cast<std::function<bool()>*>(data);
                             if (!(*run)()) return 0;
                             delete run;
                             return 1;
                           },
                           task});
    return true;
  });
}

void Leave(NcclComm comm) {
  comm->dead = true;  // and its memory stays, for those who use it after all
  comm->pending = nullptr;
  if (comm->memory != nullptr) munmap(comm->memory, comm->layout.end);
  if (comm->file >= 0) close(comm->file);
}

DataType TypeOf(NcclDataType type) {
  switch (type) {
    case kNcclUint8:
      return DataType::kUint8;
    case kNcclInt32:
      return DataType::kInt32;
    case kNcclInt64:
      return DataType::kInt64;
    case kNcclFloat16:
      return DataType::kFloat16;
    case kNcclFloat32:
      return DataType::kFloat32;
    case kNcclFloat64:
      return DataType::kFloat64;
    case kNcclBfloat16:
      return DataType::kBfloat16;
    default:
      Misuse("data type " + std::to_string(type));
  }
}

ReduceOp OpOf(NcclRedOp op) {
  switch (op) {
    case kNcclSum:
      return ReduceOp::kSum;
    case kNcclMax:
      return ReduceOp::kMax;
    case kNcclMin:
      return ReduceOp::kMin;
    default:
      Misuse("reduction " + std::to_string(op));
  }
}

enum Kind { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kReduce };

// Each rank puts a chunk into its slot; when all have, each takes what it needs of all slots.
class Collective {
 public:
  Collective(NcclComm comm, Kind kind, const void* send, void* recv, size_t count,
             NcclDataType type, NcclRedOp op, int root)
      : comm_(comm),
        signature_{kind, type, op, root, count},
        send_(static_cast<const char*>(send)),
        recv_(static_cast<char*>(recv)),
        element_(SizeOf(TypeOf(type))),
        parts_(kind == kReduceScatter ? comm->size : 1),
        chunk_(comm->layout.slot_bytes / element_ / parts_) {}

  bool Step() {
    while (done_ < signature_.count) {
      if (!put_ && !Put()) return false;
      if (!Take()) return false;
    }
    return true;
  }

 private:
  size_t length() const { return std::min(chunk_, signature_.count - done_); }

  // -> whether all ranks have got that far.
  bool Await(std::atomic<uint64_t> RankState::*counter, uint64_t least) {
    std::vector<int> missing;
    for (int peer = 0; peer < comm_->size; ++peer) {
      if ((comm_->state_of(peer).*counter).load() < least) missing.push_back(peer);
    }
    if (missing.empty()) return true;
    comm_->LookFor(missing);
    return false;
  }

  bool Put() {
    if (!Await(&RankState::consumed, comm_->chunks)) return false;
    RankState& own = comm_->state_of(comm_->rank);
    if (done_ == 0) own.signature = signature_;
    if (signature_.kind != kBroadcast || signature_.root == comm_->rank) {
      for (size_t part = 0; part < parts_; ++part) {
        std::memcpy(comm_->slot(comm_->rank) + part * length() * element_,
                    send_ + (part * signature_.count + done_) * element_, length() * element_);
      }
    }
    own.arrived.store(comm_->chunks + 1);
    put_ = true;
    return true;
  }

  bool Take() {
    if (!Await(&RankState::arrived, comm_->chunks + 1)) return false;
    for (int peer = 0; done_ == 0 && peer < comm_->size; ++peer) {
      const Signature& other = comm_->state_of(peer).signature;
      if (std::memcmp(&other, &signature_, sizeof(other)) != 0) {
        Misuse("rank " + std::to_string(comm_->rank) + " calls with count " +
               std::to_string(signature_.count) + ", rank " + std::to_string(peer) + " with " +
               std::to_string(other.count) + ", or they call something else");
      }
    }
    const size_t bytes = length() * element_;
    switch (signature_.kind) {
      case kAllGather:
        for (int peer = 0; peer < comm_->size; ++peer) {
          std::memcpy(recv_ + (peer * signature_.count + done_) * element_, comm_->slot(peer),
                      bytes);
        }
        break;
      case kBroadcast:
        std::memcpy(recv_ + done_ * element_, comm_->slot(signature_.root), bytes);
        break;
      default:
        if (signature_.kind == kReduce && signature_.root != comm_->rank) break;
        Reduce(signature_.kind == kReduceScatter ? comm_->rank * bytes : 0);
    }
    comm_->state_of(comm_->rank).consumed.store(++comm_->chunks);
    done_ += length();
    put_ = false;
    return true;
  }

  void Reduce(size_t offset) {
    std::vector<const void*> inputs;
    for (int peer = 0; peer < comm_->size; ++peer) inputs.push_back(comm_->slot(peer) + offset);
    void* output = recv_ + done_ * element_;
    muster::collectives::ReduceArrays(inputs, {&output, 1}, length(), TypeOf(signature_.type),
                                      OpOf(signature_.op));
  }

  const NcclComm comm_;
  const Signature signature_;
  const char* const send_;
  char* const recv_;
  const size_t element_;
  const size_t parts_;
  const size_t chunk_;  // elements of each part
  size_t done_ = 0;
  bool put_ = false;
};

NcclResult BeginCollective(NcclComm comm, const char* symbol, Kind kind, const void* send,
                           void* recv, size_t count, NcclDataType type, NcclRedOp op, int root,
                           NcclStream stream) {
  Call call(comm, symbol);
  auto collective = std::make_shared<Collective>(comm, kind, send, recv, count, type, op, root);
  return BeginInStream(comm, symbol, stream, [collective] { return collective->Step(); });
}

struct Message {
  bool send;
  char* data;
  size_t bytes;
  int peer;
  size_t done = 0;
  bool finished = false;
};

// Sends and receives that go on at once; those of one peer and direction in their order.
class Messages {
 public:
  Messages(NcclComm comm, std::vector<Message> messages)
      : comm_(comm), messages_(std::move(messages)) {
    if (comm->size > kPairRanks) Misuse("sends in a group that large");
  }

  bool Step() {
    for (bool moved = true; moved;) {
      moved = false;
      std::set<std::pair<bool, int>> busy;
      for (Message& message : messages_) {
        if (message.finished || !busy.insert({message.send, message.peer}).second) continue;
        moved = (message.send ? Send(message) : Receive(message)) || moved;
      }
      if (busy.empty()) return true;
      if (!moved) {
        std::vector<int> peers;
        for (const auto& entry : busy) peers.push_back(entry.second);
        comm_->LookFor(peers);
      }
    }
    return false;
  }

 private:
  bool Send(Message& message) {
    Pair& pair = comm_->pair(comm_->rank, message.peer);
    if (pair.sent.load() != pair.received.load()) return false;
    if (message.done == message.bytes) return message.finished = true;
    pair.total_bytes = message.bytes;
    pair.length = std::min(message.bytes - message.done, comm_->layout.pair_bytes);
    std::memcpy(reinterpret_cast<char*>(&pair + 1), message.data + message.done, pair.length);
    message.done += pair.length;
    pair.sent.fetch_add(1);
    return true;
  }

  bool Receive(Message& message) {
    Pair& pair = comm_->pair(message.peer, comm_->rank);
    if (pair.sent.load() == pair.received.load()) return false;
    if (pair.total_bytes != message.bytes) {
      Misuse("a send of " + std::to_string(pair.total_bytes) + " bytes meets a receive of " +
             std::to_string(message.bytes));
    }
    std::memcpy(message.data + message.done, reinterpret_cast<char*>(&pair + 1), pair.length);
    message.done += pair.length;
    message.finished = message.done == message.bytes;
    pair.received.fetch_add(1);
    return true;
  }

  const NcclComm comm_;
  std::vector<Message> messages_;
};

// What the calling thread has between ncclGroupStart and ncclGroupEnd.
struct Group {
  int depth = 0;
  NcclComm comm = nullptr;
  NcclStream stream = nullptr;
  std::vector<Message> messages;
};
thread_local Group group;

NcclResult AddMessage(NcclComm comm, const char* symbol, Message message, NcclStream stream) {
  if (group.depth == 0) Misuse(std::string(symbol) + " outside of a group");
  Call call(comm, symbol);
  if (group.comm != nullptr && group.comm != comm) Misuse("a group of two communicators");
  if (message.peer < 0 || message.peer >= comm->size) return kNcclInvalidArgument;
  group.comm = comm;
  group.stream = stream;
  group.messages.push_back(message);
  return kNcclSuccess;
}

std::string Folder() {
  const char* const folder = std::getenv("TEST_TMPDIR");
  return std::string(folder == nullptr ? "/tmp" : folder) + "/";
}

// An id is the name of a file: a path would not always fit.
std::string PathOf(const NcclUniqueId& id) {
  return Folder() + std::string(id.internal, strnlen(id.internal, sizeof(id.internal)));
}

// Opens the files of all ids, and takes this rank's place in the first.
void Enter(NcclComm comm) {
  for (const std::string& path : comm->paths) {
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) Misuse("a unique id that nobody made, or that was used before: " + path);
    if (comm->file < 0) {
      comm->file = file;
    } else {
      close(file);
    }
  }
  const auto bytes = static_cast<off_t>(comm->layout.end);
  if (ftruncate(comm->file, bytes) != 0) Misuse("ftruncate");
  void* const memory =
      mmap(nullptr, comm->layout.end, PROT_READ | PROT_WRITE, MAP_SHARED, comm->file, 0);
  if (memory == MAP_FAILED) Misuse("mmap");
  comm->memory = static_cast<char*>(memory);
  uint32_t size = 0;
  if (!comm->meeting().size.compare_exchange_strong(size, comm->size) &&
      size != static_cast<uint32_t>(comm->size)) {
    Misuse("ranks of groups of different sizes with one unique id");
  }
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = comm->rank;
  lock.l_len = 1;
  if (comm->state_of(comm->rank).joined.exchange(1) != 0 ||
      fcntl(comm->file, F_OFD_SETLK, &lock) != 0) {
    Misuse("a unique id used twice by rank " + std::to_string(comm->rank));
  }
  const char* const host = std::getenv("NCCL_HOSTID");
  const auto bus_id = FindRule("bus_id", nullptr, comm->rank, /*has_word=*/true);
  std::snprintf(comm->state_of(comm->rank).gpu, sizeof(RankState::gpu), "%s/%s",
                host == nullptr ? "here" : host,
                bus_id == nullptr ? std::to_string(comm->rank).c_str() : bus_id->c_str());
  comm->meeting().joined.fetch_add(1);
}

// -> whether all ranks are there.
bool Meet(NcclComm comm) {
  if (comm->meeting().joined.load() < static_cast<uint32_t>(comm->size)) return false;
  for (int peer = 0; peer < comm->size; ++peer) {
    const bool same = std::strcmp(comm->state_of(peer).gpu, comm->state_of(comm->rank).gpu) == 0;
    if (peer == comm->rank || !same) continue;
    comm->last_error = "Duplicate GPU detected : rank " + std::to_string(comm->rank) +
                       " and rank " + std::to_string(peer) + " both on CUDA device " +
                       comm->state_of(peer).gpu;
    comm->state = kNcclInvalidUsage;
  }
  if (comm->rank == 0) {
    for (const std::string& path : comm->paths) unlink(path.c_str());
  }
  return true;
}

NcclResult Init(NcclComm* out, const char* symbol, int size, int rank,
                std::vector<NcclUniqueId> ids, const NcclConfig* config) {
  if (config->size < sizeof(NcclConfig) || config->magic != NCCL_CONFIG_MAGIC ||
      config->version < kNcclOldestVersion) {
    Misuse("a configuration that was not initialised");
  }
  if (config->blocking != 0) Misuse("a blocking communicator");
  if (rank < 0 || rank >= size) return kNcclInvalidArgument;
  auto* const comm = new NcclCommOpaque(size, rank);
  *out = comm;
  for (const NcclUniqueId& id : ids) comm->paths.push_back(PathOf(id));
  return Begin(comm, symbol, [comm] {
    if (comm->memory == nullptr) Enter(comm);
    return Meet(comm);
  });
}

}  // namespace

extern "C" {

NcclResult ncclGetVersion(int* version) {
  const auto rule = FindRule("version", nullptr, -1, /*has_word=*/true);
  *version = rule == nullptr ? kVersion : std::atoi(rule->c_str());
  return kNcclSuccess;
}

const char* ncclGetErrorString(NcclResult code) {
  switch (code) {
    case kNcclUnhandledCudaError:
      return "unhandled cuda error";
    case kNcclSystemError:
      return "unhandled system error";
    case kNcclInternalError:
      return "internal error";
    case kNcclInvalidUsage:
      return "invalid usage";
    case kNcclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(NcclComm comm) {
  if (comm == nullptr) return "";
  Call call(comm, "ncclGetLastError", /*may_interrupt=*/true);
  return comm->last_error.c_str();
}

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  if (const auto code = FindRule("fail", "ncclGetUniqueId", -1, /*has_word=*/true)) {
    return std::atoi(code->c_str());
  }
  std::string path = Folder() + "fake-nccl-XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) Misuse("cannot make " + path);
  close(file);
  std::memset(id->internal, 0, sizeof(id->internal));
  path.copy(id->internal, sizeof(id->internal), Folder().size());
  return kNcclSuccess;
}

NcclResult ncclCommInitRankConfig(NcclComm* comm, int size, NcclUniqueId id, int rank,
                                  NcclConfig* config) {
  return Init(comm, "ncclCommInitRankConfig", size, rank, {id}, config);
}

#ifndef OLD_NCCL
NcclResult ncclCommInitRankScalable(NcclComm* comm, int size, int rank, int ids,
                                    NcclUniqueId* unique_ids, NcclConfig* config) {
  if (ids < 1 || ids > size) return kNcclInvalidArgument;
  return Init(comm, "ncclCommInitRankScalable", size, rank, {unique_ids, unique_ids + ids}, config);
}
#endif

NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* error) {
  Call call(comm, "ncclCommGetAsyncError", /*may_interrupt=*/true);
  if (const auto code = FindRule("async", nullptr, comm->rank, /*has_word=*/true)) {
    comm->state = std::atoi(code->c_str());
  }
  if (comm->state == kNcclInProgress && ++comm->polls >= kCallPolls &&
      FindRule("slow", comm->pending_symbol, comm->rank, /*has_word=*/false) == nullptr &&
      comm->pending()) {
    comm->pending = nullptr;
    if (comm->state == kNcclInProgress) comm->state = kNcclSuccess;
  }
  *error = comm->state;
  return kNcclSuccess;
}

NcclResult ncclCommFinalize(NcclComm comm) {
  Call call(comm, "ncclCommFinalize");
  return Begin(comm, "ncclCommFinalize", [] { return true; });
}

NcclResult ncclCommDestroy(NcclComm comm) {
  Call call(comm, "ncclCommDestroy");
  Leave(comm);
  return kNcclSuccess;
}

NcclResult ncclCommAbort(NcclComm comm) {
  Call call(comm, "ncclCommAbort", /*may_interrupt=*/true);
  comm->aborting = true;
  const auto rule = FindRule("abort_ms", nullptr, comm->rank, /*has_word=*/true);
  // Time for others to come in when they must not.
  std::this_thread::sleep_for(
      std::chrono::milliseconds(rule == nullptr ? 5 : std::atoi(rule->c_str())));
  Leave(comm);
  return kNcclSuccess;
}

NcclResult ncclAllReduce(const void* send, void* recv, size_t count, NcclDataType type,
                         NcclRedOp op, NcclComm comm, NcclStream stream) {
  return BeginCollective(comm, "ncclAllReduce", kAllReduce, send, recv, count, type, op, 0, stream);
}

NcclResult ncclReduceScatter(const void* send, void* recv, size_t count, NcclDataType type,
                             NcclRedOp op, NcclComm comm, NcclStream stream) {
  return BeginCollective(comm, "ncclReduceScatter", kReduceScatter, send, recv, count, type, op, 0,
                         stream);
}

NcclResult ncclAllGather(const void* send, void* recv, size_t count, NcclDataType type,
                         NcclComm comm, NcclStream stream) {
  return BeginCollective(comm, "ncclAllGather", kAllGather, send, recv, count, type, kNcclSum, 0,
                         stream);
}

NcclResult ncclBroadcast(const void* send, void* recv, size_t count, NcclDataType type, int root,
                         NcclComm comm, NcclStream stream) {
  return BeginCollective(comm, "ncclBroadcast", kBroadcast, send, recv, count, type, kNcclSum, root,
                         stream);
}

NcclResult ncclReduce(const void* send, void* recv, size_t count, NcclDataType type, NcclRedOp op,
                      int root, NcclComm comm, NcclStream stream) {
  return BeginCollective(comm, "ncclReduce", kReduce, send, recv, count, type, op, root, stream);
}

NcclResult ncclSend(const void* data, size_t count, NcclDataType type, int peer, NcclComm comm,
                    NcclStream stream) {
  return AddMessage(
      comm, "ncclSend",
      {true, static_cast<char*>(const_cast<void*>(data)), count * SizeOf(TypeOf(type)), peer},
      stream);
}

NcclResult ncclRecv(void* data, size_t count, NcclDataType type, int peer, NcclComm comm,
                    NcclStream stream) {
  return AddMessage(comm, "ncclRecv",
                    {false, static_cast<char*>(data), count * SizeOf(TypeOf(type)), peer}, stream);
}

NcclResult ncclGroupStart(void) {
  ++group.depth;
  return kNcclSuccess;
}

NcclResult ncclGroupEnd(void) {
  if (group.depth != 1) Misuse("ncclGroupEnd without one ncclGroupStart");
  Group ended;
  std::swap(ended, group);
  if (ended.messages.empty()) return kNcclSuccess;
  Call call(ended.comm, "ncclGroupEnd");
  auto messages = std::make_shared<Messages>(ended.comm, std::move(ended.messages));
  return BeginInStream(ended.comm, "ncclGroupEnd", ended.stream,
                       [messages] { return messages->Step(); });
}

}  // extern "C"

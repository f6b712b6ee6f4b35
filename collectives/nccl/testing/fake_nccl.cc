// Fake of NVIDIA's libnccl.so.2 for tests: the same symbols, on host memory. Ranks are processes or
// threads of one machine; they communicate through a file named by the unique id. A `cudaStream_t`
// is a host stream (kernels/testing/host_stream_abi.h). The fake has no threads: a call only
// starts, and advances when ncclCommGetAsyncError is called or the stream is queried. A completed
// step may be enqueued again, as by the launch of a graph.
//
// Where NCCL's behaviour is undefined, it aborts the process with a line on stderr: two threads in
// a communicator at once, a call during or after an abort or before the previous call has settled,
// a blocking communicator, an id used twice, ranks that call different operations. Sends are not
// buffered. A rank that exits causes an asynchronous error on ranks that wait for it.
//
// The text file named by the environment variable FAKE_NCCL contains rules for faults; it is read
// at every call, so that a test changes it by replacing the file (with a rename). SYMBOL is for
// example ncclAllReduce; RANK may be omitted to match all ranks:
//
//   version 22809
//   fail SYMBOL CODE RANK   the call returns CODE
//   slow SYMBOL RANK        the call does not settle while this line exists
//   hang SYMBOL RANK        the operation started by the call never ends
//   async CODE RANK         the communicator has this asynchronous error
//   abort_ms 50             duration of ncclCommAbort
//   no_memory               ncclMemAlloc fails
//   no_windows              windows get no handle, as on GPUs that cannot share memory
//   bus_id 1b000            bus id of every rank's GPU; default: distinct GPUs. NCCL_HOSTID
//                           distinguishes hosts
//
// FAKE_VERSION is the version; functions added later are missing.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/nccl/nccl_abi.h"
#include "collectives/nccl/testing/fake_comm.h"
#include "collectives/nccl/testing/fake_exchange.h"
#include "collectives/nccl/testing/fake_memory.h"
#include "collectives/nccl/testing/fake_split.h"
#include "collectives/nccl/testing/fake_transfers.h"
#include "kernels/testing/host_stream_task.h"

namespace fake_nccl {
namespace {

constexpr int kVersion = FAKE_VERSION;
constexpr int kCallPolls = 2;  // polls until a call settles

// Scope of a call on a communicator; checks for misuse.
class Call {
 public:
  Call(NcclComm comm, const char* symbol, bool may_interrupt = false) : comm_(comm) {
    if (comm == nullptr) Misuse(std::string(symbol) + " of no communicator");
    if (comm->dead) Misuse(std::string(symbol) + " of a destroyed communicator");
    if (comm->aborting) Misuse(std::string(symbol) + " during ncclCommAbort");
    if (comm->in_call.exchange(true)) Misuse(std::string(symbol) + " during another thread's call");
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

// Enqueues `step` on the stream when the call settles, after everything enqueued before.
NcclResult BeginInStream(NcclComm comm, const char* symbol, NcclStream stream,
                         std::vector<HostStreamAccess> accesses, std::function<bool()> step) {
  return Begin(comm, symbol, [=, accesses = std::move(accesses), step = std::move(step)] {
    const auto task = [comm, symbol, step] {
      const std::lock_guard<std::mutex> lock(comm->stepping);
      if (comm->dead) return true;
      if (FindRule("hang", symbol, comm->rank, /*has_word=*/false) != nullptr) return false;
      return comm->state != kNcclRemoteError && step();
    };
    muster::kernels::EnqueueHostTask(stream, task, accesses);
    return true;
  });
}

// Destroys the communicator, but keeps the object, to detect later use.
void Leave(NcclComm comm) {
  static std::mutex mutex;
  static auto* const gone = new std::vector<NcclComm>;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    gone->push_back(comm);
  }
  const std::lock_guard<std::mutex> lock(comm->stepping);
  comm->dead = true;
  ForgetMemory(comm);
  comm->pending = nullptr;
  if (comm->memory != nullptr) munmap(comm->memory, comm->layout.end);
  if (comm->file >= 0) close(comm->file);
}

NcclResult BeginCollective(NcclComm comm, const char* symbol, Kind kind, const void* send,
                           void* recv, size_t count, NcclDataType type, NcclRedOp op, int root,
                           NcclStream stream) {
  Call call(comm, symbol);
  const auto bytes = [&](size_t parts) { return parts * BytesOf(count, type); };
  const auto ranks = static_cast<size_t>(comm->size);
  const bool is_root = comm->rank == root;
  std::vector<HostStreamAccess> accesses;
  if (kind != kBroadcast || is_root) {
    accesses.push_back({send, bytes(kind == kReduceScatter ? ranks : 1), 0});
  }
  if (kind != kReduce || is_root) {
    accesses.push_back({recv, bytes(kind == kAllGather ? ranks : 1), 1});
  }
  return BeginInStream(comm, symbol, stream, std::move(accesses),
                       MakeCollective(comm, kind, send, recv, count, type, op, root));
}

// The calling thread's operations between ncclGroupStart and ncclGroupEnd.
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
  if (group.comm != nullptr && group.comm != comm) Misuse("a group with two communicators");
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

// An id holds a file name without its directory: a full path may not fit.
std::string PathOf(const NcclUniqueId& id) {
  return Folder() + std::string(id.internal, strnlen(id.internal, sizeof(id.internal)));
}

void CheckConfig(const NcclConfig* config) {
  if (config->size < sizeof(NcclConfig) || config->magic != NCCL_CONFIG_MAGIC ||
      config->version < kNcclOldestVersion) {
    Misuse("an uninitialized configuration");
  }
  if (config->blocking != 0) Misuse("a blocking communicator");
}

NcclResult Init(NcclComm* out, const char* symbol, int size, int rank,
                std::vector<NcclUniqueId> ids, const NcclConfig* config) {
  CheckConfig(config);
  if (rank < 0 || rank >= size) return kNcclInvalidArgument;
  auto* const comm = new NcclCommOpaque(size, rank);
  *out = comm;
  for (const NcclUniqueId& id : ids) comm->paths.push_back(PathOf(id));
  return Begin(comm, symbol, [comm] {
    if (comm->memory == nullptr) comm->Join();
    return comm->PollRendezvous();
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
  if (file < 0) Misuse("cannot create " + path);
  close(file);
  std::memset(id->internal, 0, sizeof(id->internal));
  path.copy(id->internal, sizeof(id->internal), Folder().size());
  return kNcclSuccess;
}

NcclResult ncclCommInitRankConfig(NcclComm* comm, int size, NcclUniqueId id, int rank,
                                  NcclConfig* config) {
  return Init(comm, "ncclCommInitRankConfig", size, rank, {id}, config);
}

#if FAKE_VERSION >= 22300
NcclResult ncclCommInitRankScalable(NcclComm* comm, int size, int rank, int ids,
                                    NcclUniqueId* unique_ids, NcclConfig* config) {
  if (ids < 1 || ids > size) return kNcclInvalidArgument;
  return Init(comm, "ncclCommInitRankScalable", size, rank, {unique_ids, unique_ids + ids}, config);
}
#endif

// Without a configuration the child communicator inherits its parent's.
NcclResult ncclCommSplit(NcclComm comm, int color, int key, NcclComm* part, NcclConfig* config) {
  Call call(comm, "ncclCommSplit");
  if (config != nullptr) CheckConfig(config);
  if (color < 0 && color != kNcclSplitNoColor) return kNcclInvalidArgument;
  *part = nullptr;
  return Begin(comm, "ncclCommSplit", MakeSplit(comm, color, key, part));
}

#if FAKE_VERSION >= 21900
NcclResult ncclMemAlloc(void** data, size_t bytes) {
  const bool none = FindRule("no_memory", nullptr, -1, /*has_word=*/false) != nullptr;
  *data = none ? nullptr : AllocateMemory(bytes);
  return *data == nullptr ? kNcclUnhandledCudaError : kNcclSuccess;
}

NcclResult ncclMemFree(void* data) {
  FreeMemory(data);
  return kNcclSuccess;
}

NcclResult ncclCommRegister(NcclComm comm, void* data, size_t bytes, void** handle) {
  Call call(comm, "ncclCommRegister");
  *handle = RegisterMemory(comm, data, bytes);
  return kNcclSuccess;
}

NcclResult ncclCommDeregister(NcclComm comm, void* handle) {
  Call call(comm, "ncclCommDeregister");
  DeregisterMemory(comm, handle);
  return kNcclSuccess;
}
#endif

#if FAKE_VERSION >= 22700
NcclResult ncclCommWindowRegister(NcclComm comm, void* data, size_t bytes, NcclWindow* window,
                                  int flags) {
  Call call(comm, "ncclCommWindowRegister");
  constexpr size_t kWindowAlignment = 4096;
  if (flags != kNcclWindowSymmetric) Misuse("a window without kNcclWindowSymmetric");
  if (reinterpret_cast<uintptr_t>(data) % kWindowAlignment != 0 || bytes % kWindowAlignment != 0) {
    Misuse("an unaligned window");
  }
  *window = nullptr;
  const NcclResult begun =
      Begin(comm, "ncclCommWindowRegister", MakeExchange(comm, {0, 0, bytes}, [=] {
              for (int peer = 0; peer < comm->size; ++peer) {
                if (comm->state_of(peer).data.window_bytes != bytes) {
                  Misuse("windows of different sizes");
                }
              }
              if (FindRule("no_windows", nullptr, -1, /*has_word=*/false) != nullptr) return;
              *window = RegisterMemory(comm, data, bytes);
            }));
  // Like NCCL 2.28: only the communicator's asynchronous state shows that the call is in progress.
  return begun == kNcclInProgress ? kNcclSuccess : begun;
}

NcclResult ncclCommWindowDeregister(NcclComm comm, NcclWindow window) {
  Call call(comm, "ncclCommWindowDeregister");
  DeregisterMemory(comm, window);
  return kNcclSuccess;
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
  if (KnowsMemory(comm)) Misuse("ncclCommDestroy with memory registered");
  Leave(comm);
  return kNcclSuccess;
}

NcclResult ncclCommAbort(NcclComm comm) {
  Call call(comm, "ncclCommAbort", /*may_interrupt=*/true);
  comm->aborting = true;
  const auto rule = FindRule("abort_ms", nullptr, comm->rank, /*has_word=*/true);
  // Leaves time for calls that must not happen during an abort.
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
  return AddMessage(comm, "ncclSend",
                    {true, static_cast<char*>(const_cast<void*>(data)), BytesOf(count, type), peer},
                    stream);
}

NcclResult ncclRecv(void* data, size_t count, NcclDataType type, int peer, NcclComm comm,
                    NcclStream stream) {
  return AddMessage(comm, "ncclRecv", {false, static_cast<char*>(data), BytesOf(count, type), peer},
                    stream);
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
  std::vector<HostStreamAccess> accesses;
  for (const Message& message : ended.messages) {
    accesses.push_back({message.data, message.bytes, message.send ? 0 : 1});
  }
  return BeginInStream(ended.comm, "ncclGroupEnd", ended.stream, std::move(accesses),
                       MakeMessages(ended.comm, std::move(ended.messages)));
}

}  // extern "C"

}  // namespace fake_nccl

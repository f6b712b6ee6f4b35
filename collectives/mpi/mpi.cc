// The mpi backend: ranks that an MPI launcher started as the processes of one MPI program, over any
// transport that MPI supports.
//
// MPI only sends messages. The reductions are implemented here, in rank order, because MPI's own
// may differ in their last bits from rank to rank, do not support bfloat16, and cannot identify
// missing ranks.
//
// Each rank publishes its process in MPI_COMM_WORLD through options.store. A process must create
// its groups one after the other, in the same order on all ranks. An error or an Abort ends MPI for
// the process and all its groups, because MPI cannot cancel messages: it would keep writing to
// memory that its owner may have reused.
//
// Errors: FAILED_PRECONDITION if this process was not started by an MPI launcher or ranks belong to
// several MPI jobs; DEADLINE_EXCEEDED names the ranks that did not connect within connect_timeout,
// or did not take part within timeout; UNAVAILABLE with MPI's message; errors of the key store.
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "collectives/factory.h"
#include "collectives/lane.h"
#include "collectives/operation.h"
#include "collectives/peer_status.h"
#include "collectives/queued_communicator.h"
#include "collectives/reduce.h"
#include "collectives/stalled_ranks.h"
#include "common/status.h"
#include "common/time/deadline.h"
#include "common/time/now.h"

namespace muster::collectives {
namespace {

// Longest message: progress is measured in completed messages.
constexpr size_t kMessageBytes = 1 << 20;
// MPI makes progress only while it is called: sleeps between polls grow to kLongNap while an
// operation waits, and a completed send may still have to leave an idle process.
constexpr absl::Duration kLongNap = absl::Microseconds(100);
constexpr absl::Duration kIdleNap = absl::Milliseconds(10);
// A poll that takes longer means that this process was stopped, for which peers are not to blame.
constexpr absl::Duration kLongestPoll = absl::Milliseconds(500);

// Distinguish messages that are in flight between the same two ranks at the same time.
enum Tag : int { kCollective, kPointToPoint };

// MPI in this process, for all its groups. Thread-safe: one thread calls MPI at a time.
class Mpi {
 public:
  // Initializes MPI on the first call, which waits for all processes of the MPI job. At normal exit
  // MPI is finalized, which waits for them, too.
  static absl::StatusOr<Mpi*> Get() {
    static const auto* const mpi = new absl::StatusOr<Mpi*>(Start());
    return *mpi;
  }

  // Calls a function of MPI, named `what`. UNAVAILABLE with MPI's message, which ends MPI, or
  // because MPI has ended; MPI then never accesses memory again.
  absl::Status Call(absl::string_view what, absl::FunctionRef<int()> call) {
    absl::MutexLock lock(&mutex_);
    if (ended_) {
      return absl::UnavailableError(
          "mpi: a group of this process has failed; MPI cannot cancel messages, so all processes "
          "must be restarted");
    }
    const int code = call();
    if (code == MPI_SUCCESS) return absl::OkStatus();
    ended_ = true;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    return absl::UnavailableError(
        absl::StrCat("mpi: ", what, ": ", absl::string_view(text, length)));
  }

  // Never blocks.
  void End() { ended_ = true; }

 private:
  static absl::StatusOr<Mpi*> Start();
  static int Initialize();

  absl::Mutex mutex_;
  std::atomic<bool> ended_{false};
};

int Mpi::Initialize() {
  // With more ranks than processors, Open MPI would yield the processor in every call, which costs
  // milliseconds each time. Await already sleeps when nothing moves.
  setenv("OMPI_MCA_mpi_yield_when_idle", "0", /*overwrite=*/0);
  int started = 0;
  int provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&started);
  if (started != 0) {
    MPI_Query_thread(&provided);
  } else if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
             code != MPI_SUCCESS) {
    return code;
  }
  // The threads of a program that initialized MPI may call it concurrently with these.
  if (provided < (started != 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED)) return MPI_ERR_OTHER;
  // Return errors as codes instead of aborting.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

absl::StatusOr<Mpi*> Mpi::Start() {
  static Mpi* const mpi = new Mpi;  // used by its thread until the process ends
  RETURN_IF_ERROR(mpi->Call("initialization with threads", &Initialize));
  std::thread([] {
    int there = 0;
    while (mpi->Call("MPI_Iprobe",
                     [&there] {
                       return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &there,
                                         MPI_STATUS_IGNORE);
                     })
               .ok()) {
      absl::SleepFor(kIdleNap);
    }
  }).detach();
  // A process that has failed does not call MPI_Finalize, which would wait for the others: its
  // launcher notices and ends them.
  std::atexit([] {
    mpi->Call("MPI_Finalize",
              [] {
                mpi->End();
                return MPI_Finalize();
              })
        .IgnoreError();
  });
  return mpi;
}

using Block = absl::Span<std::byte>;

// Sent blocks are only read.
Block BlockOf(const void* data, size_t offset_bytes, size_t bytes) {
  return {static_cast<std::byte*>(const_cast<void*>(data)) + offset_bytes, bytes};
}

void Copy(Block to, Block from) {
  if (!to.empty() && to.data() != from.data()) std::memmove(to.data(), from.data(), to.size());
}

class MpiCommunicator final : public QueuedCommunicator {
 public:
  MpiCommunicator(const GroupOptions& options, Mpi* mpi, MPI_Comm comm)
      : QueuedCommunicator(options.name, options.rank, options.members),
        mpi_(*mpi),
        comm_(comm),
        options_(options) {}
  ~MpiCommunicator() override { Close(); }

  absl::string_view backend() const override { return "mpi"; }
  absl::Duration timeout() const override { return options_.timeout; }

 protected:
  absl::Status Execute(const Operation& operation) override;
  void Interrupt(const absl::Status& failure) override { mpi_.End(); }

 private:
  using PeerBlock = absl::FunctionRef<Block(uint32_t peer)>;
  struct Messages {
    std::vector<uint32_t> peers;
    std::vector<int> bytes;  // -1: a send
    std::vector<MPI_Request> requests;
  };

  // Sends send(peer) to each other rank, and receives receive(peer) from it.
  absl::Status Exchange(PeerBlock send, PeerBlock receive, Tag tag = kCollective);
  absl::Status Await(Messages messages);
  // Segment j of `send` is [bounds[j], bounds[j + 1]) elements and is reduced by rank j.
  absl::Status RunReduce(const Operation& operation, const std::vector<size_t>& bounds);
  absl::Status RunBarrier();
  Block Scratch(size_t bytes) {
    if (scratch_.size() < bytes) scratch_.resize(bytes);
    return {scratch_.data(), bytes};
  }

  Mpi& mpi_;
  const MPI_Comm comm_;  // never freed: all members would have to free it together
  const GroupOptions options_;
  std::vector<std::byte> scratch_;  // kept between calls; used by the collectives' lane only
};

absl::Status MpiCommunicator::Execute(const Operation& operation) {
  using Kind = Operation::Kind;
  if (operation.kind == Kind::kBarrier) return RunBarrier();
  const size_t bytes = operation.bytes();
  if (bytes == 0) return absl::OkStatus();
  const uint32_t root = operation.root;
  const bool is_root = rank() == root;
  const Block none;
  // Segment i of a buffer with one per rank; segment 0 is the whole of any other.
  const auto sent = [&](uint32_t i) { return BlockOf(operation.send, i * bytes, bytes); };
  const auto received = [&](uint32_t i) { return BlockOf(operation.recv, i * bytes, bytes); };
  const auto nothing = [&](uint32_t) { return none; };
  std::vector<size_t> bounds(size() + 1);
  switch (operation.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
      for (uint32_t j = 0; j <= size(); ++j) {
        bounds[j] = operation.count / size() * j + operation.count % size() * j / size();
      }
      return RunReduce(operation, bounds);
    case Kind::kReduceScatter:
      for (uint32_t j = 0; j <= size(); ++j) bounds[j] = operation.count * j;
      return RunReduce(operation, bounds);
    case Kind::kAllGather:
      Copy(received(rank()), sent(0));
      return Exchange([&](uint32_t) { return sent(0); }, received);
    case Kind::kBroadcast:
      return Exchange([&](uint32_t) { return is_root ? received(0) : none; },
                      [&](uint32_t peer) { return peer == root ? received(0) : none; });
    case Kind::kGather:
      if (is_root) Copy(received(rank()), sent(0));
      return Exchange([&](uint32_t peer) { return peer == root ? sent(0) : none; },
                      [&](uint32_t peer) { return is_root ? received(peer) : none; });
    case Kind::kScatter:
      if (is_root) Copy(received(0), sent(rank()));
      return Exchange([&](uint32_t peer) { return is_root ? sent(peer) : none; },
                      [&](uint32_t peer) { return peer == root ? received(0) : none; });
    case Kind::kAllToAll: {
      Block send = BlockOf(operation.send, 0, size() * bytes);
      if (operation.send == operation.recv) {  // received segments overwrite those to be sent
        send = Scratch(send.size());
        Copy(send, BlockOf(operation.send, 0, send.size()));
      }
      Copy(received(rank()), send.subspan(rank() * bytes, bytes));
      return Exchange([&](uint32_t peer) { return send.subspan(peer * bytes, bytes); }, received);
    }
    case Kind::kSend:
      return Exchange([&](uint32_t peer) { return peer == root ? sent(0) : none; }, nothing,
                      kPointToPoint);
    case Kind::kReceive:
      return Exchange(
          nothing, [&](uint32_t peer) { return peer == root ? received(0) : none; }, kPointToPoint);
    case Kind::kBarrier:
      break;
  }
  return absl::InternalError("unknown operation kind");
}

absl::Status MpiCommunicator::RunReduce(const Operation& operation,
                                        const std::vector<size_t>& bounds) {
  const size_t element = SizeOf(operation.type);
  const auto segment = [&](const void* data, uint32_t j) {
    return BlockOf(data, bounds[j] * element, (bounds[j + 1] - bounds[j]) * element);
  };
  const Block own = segment(operation.send, rank());
  const Block scratch = Scratch(size() * own.size());
  const auto scratch_of = [&](uint32_t j) { return scratch.subspan(j * own.size(), own.size()); };
  RETURN_IF_ERROR(
      Exchange([&](uint32_t peer) { return segment(operation.send, peer); }, scratch_of));

  const bool scatters = operation.kind == Operation::Kind::kReduceScatter;
  const bool to_all = operation.kind == Operation::Kind::kAllReduce;
  const bool gathers = to_all || rank() == operation.root;
  std::vector<const void*> inputs(size());
  for (uint32_t j = 0; j < size(); ++j) inputs[j] = scratch_of(j).data();
  inputs[rank()] = own.data();
  const Block reduced = scatters  ? BlockOf(operation.recv, 0, own.size())
                        : gathers ? segment(operation.recv, rank())
                                  : scratch_of(rank());
  void* const output = reduced.data();
  ReduceArrays(inputs, {&output, 1}, own.size() / element, operation.type, operation.op);
  if (scatters) return absl::OkStatus();
  return Exchange(
      [&](uint32_t peer) { return to_all || peer == operation.root ? reduced : Block(); },
      [&](uint32_t peer) { return gathers ? segment(operation.recv, peer) : Block(); });
}

// Every rank receives a message from every other, so that a missing rank can be named.
absl::Status MpiCommunicator::RunBarrier() {
  const Block bytes = Scratch(size());
  return Exchange([&](uint32_t) { return bytes.subspan(rank(), 1); },
                  [&](uint32_t peer) { return bytes.subspan(peer, 1); });
}

absl::Status MpiCommunicator::Exchange(PeerBlock send, PeerBlock receive, Tag tag) {
  Messages messages;
  // Receives first, so that incoming messages find a posted receive.
  for (const bool sends : {false, true}) {
    for (uint32_t i = 1; i < size(); ++i) {
      const uint32_t peer = (rank() + i) % size();  // each rank starts with another peer
      const Block block = sends ? send(peer) : receive(peer);
      for (size_t begin = 0; begin < block.size(); begin += kMessageBytes) {
        const Block part = block.subspan(begin, kMessageBytes);
        const int bytes = static_cast<int>(part.size());
        messages.peers.push_back(peer);
        messages.bytes.push_back(sends ? -1 : bytes);
        MPI_Request& request = messages.requests.emplace_back(MPI_REQUEST_NULL);
        const absl::Status posted = mpi_.Call(sends ? "MPI_Isend" : "MPI_Irecv", [&] {
          return sends ? MPI_Isend(part.data(), bytes, MPI_BYTE, peer, tag, comm_, &request)
                       : MPI_Irecv(part.data(), bytes, MPI_BYTE, peer, tag, comm_, &request);
        });
        if (!posted.ok()) return failed() ? failure() : posted;
      }
    }
  }
  return Await(std::move(messages));
}

absl::Status MpiCommunicator::Await(Messages messages) {
  std::vector<MPI_Request>& requests = messages.requests;
  const int count = static_cast<int>(requests.size());
  std::vector<int> indices(count);
  std::vector<MPI_Status> statuses(count);
  SteadyTime polled = SteadyNow();
  absl::Duration waited;
  for (int left = count; left > 0;) {
    int completed = 0;
    const absl::Status status = mpi_.Call("MPI_Testsome", [&] {
      const int code =
          MPI_Testsome(count, requests.data(), &completed, indices.data(), statuses.data());
      if (code != MPI_ERR_IN_STATUS) return code;
      for (int i = 0; i < completed; ++i) {
        if (statuses[i].MPI_ERROR != MPI_SUCCESS) return statuses[i].MPI_ERROR;
      }
      return code;
    });
    // Fail below ends MPI, so that nothing writes to the buffers after this call.
    if (!status.ok()) return failed() ? failure() : status;
    for (int i = 0; i < completed; ++i) {
      const int expected = messages.bytes[indices[i]];
      int bytes = 0;
      MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
      if (expected < 0 || bytes == expected) continue;
      Fail(absl::UnavailableError(absl::StrCat("mpi: received ", bytes, " bytes, expected ",
                                               expected, ": ranks called different operations")))
          .IgnoreError();
    }
    left -= completed;
    const SteadyTime now = SteadyNow();
    waited = completed > 0 ? absl::ZeroDuration() : waited + std::min(now - polled, kLongestPoll);
    polled = now;
    if (waited >= options_.timeout) {
      std::vector<uint32_t> missing;
      for (int i = 0; i < count; ++i) {
        if (requests[i] != MPI_REQUEST_NULL) missing.push_back(job_rank(messages.peers[i]));
      }
      std::sort(missing.begin(), missing.end());
      missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
      Fail(PeersMissing(name(), FindStalledRanks(options_, missing), options_.timeout))
          .IgnoreError();
    } else if (waited > kSpinTime) {
      absl::SleepFor(std::min(waited, kLongNap));
    }
  }
  return absl::OkStatus();
}

// This process's rank in MPI_COMM_WORLD, or "" if no MPI launcher has started it.
std::string MpiProcess() {
  for (const char* const name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* const value = std::getenv(name); value != nullptr) return value;
  }
  return "";
}

// The launcher's name for the MPI job, or "" if it provides none.
std::string MpiJob() {
  for (const char* const name : {"PMIX_NAMESPACE", "PMI_JOBID"}) {
    if (const char* const value = std::getenv(name); value != nullptr) return value;
  }
  return "";
}

// Publishes this rank's process and returns the group's processes in MPI_COMM_WORLD, by rank.
absl::StatusOr<std::vector<int>> FindProcesses(const GroupOptions& options) {
  const std::string process = MpiProcess();
  if (process.empty()) {
    return absl::FailedPreconditionError(
        "mpi: this process is not part of an MPI job: none of OMPI_COMM_WORLD_RANK, PMIX_RANK and "
        "PMI_RANK is set; start the ranks with mpirun or launcher: mpi");
  }
  const std::string job = absl::StrCat(" ", MpiJob());
  const auto key = [&options](uint32_t rank) {
    return absl::StrCat(options.name, "/", options.id, "/", rank);
  };
  RETURN_IF_ERROR(options.store->Put(key(options.rank), absl::StrCat(process, job)));
  const Deadline deadline(options.connect_timeout);
  std::vector<int> processes(options.size);
  std::vector<uint32_t> missing;
  for (uint32_t i = 0; i < options.size; ++i) {
    const auto value = options.store->Get(key(i), deadline.left());
    if (absl::IsDeadlineExceeded(value.status())) {
      missing.push_back(options.members[i]);
      continue;
    }
    RETURN_IF_ERROR(value.status());
    absl::string_view number = *value;
    if (!absl::ConsumeSuffix(&number, job) || !absl::SimpleAtoi(number, &processes[i])) {
      return absl::FailedPreconditionError(absl::StrCat(
          options.name, ": ranks ", options.members[i], " and ", options.members[options.rank],
          " belong to different MPI jobs; start all ranks with one mpirun"));
    }
  }
  if (!missing.empty()) return PeersMissing(options.name, missing, options.connect_timeout);
  return processes;
}

// Keeps groups that are created in different orders on different ranks from being confused.
int TagOf(const std::string& id) {
  uint32_t tag = 0;
  for (const char c : id) tag = tag * 31 + static_cast<unsigned char>(c);
  return static_cast<int>(tag & 0x7fff);  // MPI guarantees tags up to 32767
}

absl::StatusOr<std::unique_ptr<Communicator>> CreateMpi(const GroupOptions& options) {
  // Before MPI_Init, which waits for all processes without a time limit.
  ASSIGN_OR_RETURN(const std::vector<int> processes, FindProcesses(options));
  ASSIGN_OR_RETURN(Mpi* const mpi, Mpi::Get());
  MPI_Comm comm = MPI_COMM_NULL;
  RETURN_IF_ERROR(mpi->Call("creation of a group", [&] {
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group group = MPI_GROUP_NULL;
    int code = MPI_Comm_group(MPI_COMM_WORLD, &world);
    if (code == MPI_SUCCESS) {
      code = MPI_Group_incl(world, static_cast<int>(processes.size()), processes.data(), &group);
    }
    if (code == MPI_SUCCESS) {
      code = MPI_Comm_create_group(MPI_COMM_WORLD, group, TagOf(options.id), &comm);
    }
    return code == MPI_SUCCESS ? MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN) : code;
  }));
  return {std::make_unique<MpiCommunicator>(options, mpi, comm)};
}

[[maybe_unused]] const bool registered = RegisterMpi(&CreateMpi);

}  // namespace
}  // namespace muster::collectives

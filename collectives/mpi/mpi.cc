#include "collectives/mpi/mpi.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "collectives/mpi/mpi_processes.h"
#include "collectives/mpi/mpi_progress_thread.h"
#include "collectives/operation.h"
#include "collectives/peer_status.h"
#include "collectives/queued_communicator.h"
#include "collectives/reduce.h"
#include "collectives/stalled_ranks.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

// Up to this size and this many ranks, every rank receives all inputs and reduces them: one step
// instead of two.
constexpr size_t kDirectBytes = 32 << 10;
constexpr uint32_t kDirectRanks = 8;
// Message size of large reductions: progress is measured in completed messages, and one slice is in
// transfer while another is reduced.
constexpr size_t kReducedBytes = 256 << 10;
constexpr size_t kMovedBytes = 4 << 20;

// Distinguish messages that are in flight between the same two ranks at the same time.
enum Tag : uint32_t { kFirstStep, kSecondStep, kPointToPoint };

using Messages = std::vector<MusterMpiMessage>;

std::byte* At(const void* data, size_t offset_bytes) {
  // MusterMpiMessage has one mutable pointer for both directions; sent data is only read.
  return static_cast<std::byte*>(const_cast<void*>(data)) + offset_bytes;
}

void Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

void Add(bool sends, uint32_t peer, Tag tag, void* data, size_t bytes, Messages* messages) {
  if (bytes == 0) return;
  MusterMpiMessage message = {};
  message.data = data;
  message.bytes = bytes;
  message.peer = peer;
  message.tag = tag;
  message.sends = sends ? 1 : 0;
  messages->push_back(message);
}

// Slice k of a segment: offset and length in elements, relative to the segment.
struct Slice {
  size_t begin = 0;
  size_t count = 0;
};

Slice SliceOf(size_t part_count, size_t slice_count, size_t k) {
  const size_t begin = std::min(part_count, k * slice_count);
  return {begin, std::min(slice_count, part_count - begin)};
}

size_t SlicesIn(size_t count, size_t slice_count) {
  return (count + slice_count - 1) / slice_count;
}

// Where the reduced segments end up.
enum class Result { kOwnPart, kAtRoot, kEverywhere };

class MpiCommunicator final : public QueuedCommunicator {
 public:
  MpiCommunicator(const GroupOptions& options, MpiProgressThread* owner, MusterMpiGroup* group)
      : QueuedCommunicator(options.name, options.rank, options.members),
        owner_(*owner),
        group_(group),
        options_(options) {}
  ~MpiCommunicator() override { Close(); }

  absl::string_view backend() const override { return "mpi"; }
  absl::Duration timeout() const override { return options_.timeout; }

 protected:
  absl::Status Execute(const Operation& operation) override;
  void Interrupt(const absl::Status& failure) override {
    owner_.End(absl::StrCat("group ", name(), " failed"));
  }

 private:
  std::shared_ptr<MpiExchange> Begin(Messages messages) {
    return owner_.Begin(group_, std::move(messages));
  }
  absl::Status Await(MpiExchange& exchange);
  absl::Status Exchange(Messages messages) { return Await(*Begin(std::move(messages))); }
  // Runs exchange(0) to exchange(count - 1), two of them in flight at a time.
  absl::Status Stream(size_t count, absl::FunctionRef<Messages(size_t)> exchange);
  // Peer i in the order starting after this rank, so that the ranks do not all contact the same
  // peer first.
  uint32_t Peer(uint32_t i) const { return (rank() + 1 + i) % size(); }
  // Scratch memory, kept between calls.
  std::byte* Scratch(size_t bytes);

  absl::Status ReduceDirectly(const Operation& operation);
  // Segment j of `send` is [bounds[j], bounds[j + 1]) and is reduced by rank j.
  absl::Status ReduceByParts(const Operation& operation, const std::vector<size_t>& bounds,
                             Result result);
  absl::Status RunAllGather(const Operation& operation);
  absl::Status RunBroadcast(const Operation& operation);
  absl::Status BroadcastByParts(const Operation& operation);
  absl::Status RunGather(const Operation& operation);
  absl::Status RunScatter(const Operation& operation);
  absl::Status RunAllToAll(const Operation& operation);
  absl::Status RunPointToPoint(const Operation& operation);
  absl::Status RunBarrier();

  MpiProgressThread& owner_;
  MusterMpiGroup* const group_;
  const GroupOptions options_;
  std::vector<std::byte> scratch_;  // used by the collectives' lane only
};

std::vector<size_t> EqualParts(size_t count, uint32_t parts) {
  std::vector<size_t> bounds(parts + 1);
  for (uint32_t j = 0; j <= parts; ++j) bounds[j] = count / parts * j + count % parts * j / parts;
  return bounds;
}

absl::Status MpiCommunicator::Execute(const Operation& operation) {
  if (operation.kind == Operation::Kind::kBarrier) return RunBarrier();
  if (operation.count == 0) return absl::OkStatus();
  const bool direct = operation.bytes() <= kDirectBytes && size() <= kDirectRanks;
  switch (operation.kind) {
    case Operation::Kind::kAllReduce:
      return direct ? ReduceDirectly(operation)
                    : ReduceByParts(operation, EqualParts(operation.count, size()),
                                    Result::kEverywhere);
    case Operation::Kind::kReduceScatter:
      return ReduceByParts(operation, EqualParts(operation.count * size(), size()),
                           Result::kOwnPart);
    case Operation::Kind::kAllGather:
      return RunAllGather(operation);
    case Operation::Kind::kBroadcast:
      return RunBroadcast(operation);
    case Operation::Kind::kReduce:
      return ReduceByParts(operation, EqualParts(operation.count, size()), Result::kAtRoot);
    case Operation::Kind::kGather:
      return RunGather(operation);
    case Operation::Kind::kScatter:
      return RunScatter(operation);
    case Operation::Kind::kAllToAll:
      return RunAllToAll(operation);
    case Operation::Kind::kSend:
    case Operation::Kind::kReceive:
      return RunPointToPoint(operation);
    case Operation::Kind::kBarrier:
      break;
  }
  return absl::InternalError("an operation without a kind");
}

absl::Status MpiCommunicator::Await(MpiExchange& exchange) {
  std::vector<uint32_t> waiting_for;
  absl::Status status = owner_.Await(exchange, options_.timeout, &waiting_for);
  if (!waiting_for.empty()) {
    std::sort(waiting_for.begin(), waiting_for.end());
    waiting_for.erase(std::unique(waiting_for.begin(), waiting_for.end()), waiting_for.end());
    for (uint32_t& peer : waiting_for) peer = job_rank(peer);
    // Ends MPI so that nothing writes to the exchange's memory after this function returns.
    Fail(PeersMissing(name(), FindStalledRanks(options_, waiting_for), options_.timeout))
        .IgnoreError();
    status = owner_.Await(exchange, options_.timeout, &waiting_for);
  }
  return failed() ? failure() : status;
}

absl::Status MpiCommunicator::Stream(size_t count, absl::FunctionRef<Messages(size_t)> exchange) {
  std::shared_ptr<MpiExchange> before;
  for (size_t k = 0; k < count; ++k) {
    auto next = Begin(exchange(k));
    if (before != nullptr) RETURN_IF_ERROR(Await(*before));
    before = std::move(next);
  }
  return before == nullptr ? absl::OkStatus() : Await(*before);
}

std::byte* MpiCommunicator::Scratch(size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

absl::Status MpiCommunicator::ReduceDirectly(const Operation& operation) {
  const size_t bytes = operation.bytes();
  std::byte* const received = Scratch(size() * bytes);
  Messages messages;
  std::vector<const void*> inputs(size());
  inputs[rank()] = operation.send;
  for (uint32_t i = 0; i + 1 < size(); ++i) {
    const uint32_t peer = Peer(i);
    inputs[peer] = received + peer * bytes;
    Add(true, peer, kFirstStep, At(operation.send, 0), bytes, &messages);
    Add(false, peer, kFirstStep, received + peer * bytes, bytes, &messages);
  }
  RETURN_IF_ERROR(Exchange(std::move(messages)));
  ReduceArrays(inputs, {&operation.recv, 1}, operation.count, operation.type, operation.op);
  return absl::OkStatus();
}

absl::Status MpiCommunicator::ReduceByParts(const Operation& operation,
                                            const std::vector<size_t>& bounds, Result result) {
  const size_t element = SizeOf(operation.type);
  const size_t slice_count = kReducedBytes / element;
  size_t largest = 0;
  for (uint32_t j = 0; j < size(); ++j) largest = std::max(largest, bounds[j + 1] - bounds[j]);
  const size_t slices = SlicesIn(largest, slice_count);
  const size_t room = std::min(largest, slice_count) * element;
  // Receive room for two slices of this rank's segment, plus two reduced slices being sent to the
  // root.
  std::byte* const scratch = Scratch(2 * (size() + 1) * room);
  const bool is_root = result == Result::kAtRoot && rank() == operation.root;

  const auto slice_of = [&](uint32_t part, size_t k) {
    return SliceOf(bounds[part + 1] - bounds[part], slice_count, k);
  };
  const auto received = [&](uint32_t peer, size_t k) {
    return scratch + (k % 2 * size() + peer) * room;
  };
  // Destination of slice k of this rank's segment.
  const auto reduced = [&](size_t k) -> std::byte* {
    const size_t begin = slice_of(rank(), k).begin;
    if (result == Result::kOwnPart) return At(operation.recv, begin * element);
    if (result == Result::kAtRoot && !is_root) return scratch + (2 * size() + k % 2) * room;
    return At(operation.recv, (bounds[rank()] + begin) * element);
  };
  const auto scatter = [&](size_t k) {
    Messages messages;
    const size_t own_bytes = slice_of(rank(), k).count * element;
    for (uint32_t i = 0; i + 1 < size(); ++i) {
      const uint32_t peer = Peer(i);
      const Slice slice = slice_of(peer, k);
      Add(true, peer, kFirstStep, At(operation.send, (bounds[peer] + slice.begin) * element),
          slice.count * element, &messages);
      Add(false, peer, kFirstStep, received(peer, k), own_bytes, &messages);
    }
    return Begin(std::move(messages));
  };
  // In place, slice k of the other segments has been sent before this begins.
  const auto gather = [&](size_t k) {
    Messages messages;
    for (uint32_t i = 0; result != Result::kOwnPart && i + 1 < size(); ++i) {
      const uint32_t peer = Peer(i);
      const bool all = result == Result::kEverywhere;
      if (all || peer == operation.root) {
        Add(true, peer, kSecondStep, reduced(k), slice_of(rank(), k).count * element, &messages);
      }
      if (all || is_root) {
        const Slice slice = slice_of(peer, k);
        Add(false, peer, kSecondStep, At(operation.recv, (bounds[peer] + slice.begin) * element),
            slice.count * element, &messages);
      }
    }
    return Begin(std::move(messages));
  };

  std::shared_ptr<MpiExchange> scattered = scatter(0);
  std::shared_ptr<MpiExchange> gathered[2];
  for (size_t k = 0; k < slices; ++k) {
    const std::shared_ptr<MpiExchange> current = std::move(scattered);
    if (k + 1 < slices) scattered = scatter(k + 1);
    RETURN_IF_ERROR(Await(*current));
    if (gathered[k % 2] != nullptr) RETURN_IF_ERROR(Await(*gathered[k % 2]));
    const Slice slice = slice_of(rank(), k);
    std::vector<const void*> inputs(size());
    for (uint32_t j = 0; j < size(); ++j) inputs[j] = received(j, k);
    inputs[rank()] = At(operation.send, (bounds[rank()] + slice.begin) * element);
    void* const output = reduced(k);
    ReduceArrays(inputs, {&output, 1}, slice.count, operation.type, operation.op);
    gathered[k % 2] = gather(k);
  }
  for (const auto& exchange : gathered) {
    if (exchange != nullptr) RETURN_IF_ERROR(Await(*exchange));
  }
  return absl::OkStatus();
}

absl::Status MpiCommunicator::RunAllGather(const Operation& operation) {
  const size_t bytes = operation.bytes();
  Copy(At(operation.recv, rank() * bytes), operation.send, bytes);
  return Stream(SlicesIn(bytes, kMovedBytes), [&](size_t k) {
    const Slice slice = SliceOf(bytes, kMovedBytes, k);
    Messages messages;
    for (uint32_t i = 0; i + 1 < size(); ++i) {
      const uint32_t peer = Peer(i);
      Add(true, peer, kFirstStep, At(operation.send, slice.begin), slice.count, &messages);
      Add(false, peer, kFirstStep, At(operation.recv, peer * bytes + slice.begin), slice.count,
          &messages);
    }
    return messages;
  });
}

// Small messages or two ranks: the root sends to all. Large ones: the root scatters segments, which
// the ranks then exchange.
absl::Status MpiCommunicator::RunBroadcast(const Operation& operation) {
  if (size() > 2 && operation.bytes() > kDirectBytes) return BroadcastByParts(operation);
  return Stream(SlicesIn(operation.bytes(), kMovedBytes), [&](size_t k) {
    const Slice slice = SliceOf(operation.bytes(), kMovedBytes, k);
    std::byte* const data = At(operation.recv, slice.begin);
    Messages messages;
    if (rank() != operation.root) {
      Add(false, operation.root, kFirstStep, data, slice.count, &messages);
      return messages;
    }
    for (uint32_t i = 0; i + 1 < size(); ++i) {
      Add(true, Peer(i), kFirstStep, data, slice.count, &messages);
    }
    return messages;
  });
}

absl::Status MpiCommunicator::BroadcastByParts(const Operation& operation) {
  const bool is_root = rank() == operation.root;
  const std::vector<size_t> bounds = EqualParts(operation.bytes(), size());
  const auto data = [&](uint32_t part, size_t k, size_t* bytes) {
    const Slice slice = SliceOf(bounds[part + 1] - bounds[part], kReducedBytes, k);
    *bytes = slice.count;
    return At(operation.recv, bounds[part] + slice.begin);
  };
  const auto scatter = [&](size_t k) {
    Messages messages;
    size_t bytes = 0;
    for (uint32_t i = 0; is_root && i + 1 < size(); ++i) {
      std::byte* const part = data(Peer(i), k, &bytes);
      Add(true, Peer(i), kFirstStep, part, bytes, &messages);
    }
    if (!is_root) {
      std::byte* const part = data(rank(), k, &bytes);
      Add(false, operation.root, kFirstStep, part, bytes, &messages);
    }
    return Begin(std::move(messages));
  };
  // The root already has the whole buffer.
  const auto gather = [&](size_t k) {
    Messages messages;
    for (uint32_t i = 0; i + 1 < size(); ++i) {
      const uint32_t peer = Peer(i);
      size_t bytes = 0;
      if (peer != operation.root) {
        std::byte* const own = data(rank(), k, &bytes);
        Add(true, peer, kSecondStep, own, bytes, &messages);
      }
      if (!is_root) {
        std::byte* const theirs = data(peer, k, &bytes);
        Add(false, peer, kSecondStep, theirs, bytes, &messages);
      }
    }
    return Begin(std::move(messages));
  };
  const size_t slices = SlicesIn((operation.bytes() + size() - 1) / size(), kReducedBytes);
  std::shared_ptr<MpiExchange> scattered = scatter(0);
  std::shared_ptr<MpiExchange> gathered;
  for (size_t k = 0; k < slices; ++k) {
    const std::shared_ptr<MpiExchange> current = std::move(scattered);
    if (k + 1 < slices) scattered = scatter(k + 1);
    RETURN_IF_ERROR(Await(*current));
    if (gathered != nullptr) RETURN_IF_ERROR(Await(*gathered));
    gathered = gather(k);
  }
  return Await(*gathered);
}

absl::Status MpiCommunicator::RunGather(const Operation& operation) {
  const size_t bytes = operation.bytes();
  const bool is_root = rank() == operation.root;
  if (is_root) Copy(At(operation.recv, rank() * bytes), operation.send, bytes);
  return Stream(SlicesIn(bytes, kMovedBytes), [&](size_t k) {
    const Slice slice = SliceOf(bytes, kMovedBytes, k);
    Messages messages;
    if (!is_root) {
      Add(true, operation.root, kFirstStep, At(operation.send, slice.begin), slice.count,
          &messages);
      return messages;
    }
    for (uint32_t i = 0; i + 1 < size(); ++i) {
      Add(false, Peer(i), kFirstStep, At(operation.recv, Peer(i) * bytes + slice.begin),
          slice.count, &messages);
    }
    return messages;
  });
}

absl::Status MpiCommunicator::RunScatter(const Operation& operation) {
  const size_t bytes = operation.bytes();
  const bool is_root = rank() == operation.root;
  if (is_root) Copy(operation.recv, At(operation.send, rank() * bytes), bytes);
  return Stream(SlicesIn(bytes, kMovedBytes), [&](size_t k) {
    const Slice slice = SliceOf(bytes, kMovedBytes, k);
    Messages messages;
    if (!is_root) {
      Add(false, operation.root, kFirstStep, At(operation.recv, slice.begin), slice.count,
          &messages);
      return messages;
    }
    for (uint32_t i = 0; i + 1 < size(); ++i) {
      Add(true, Peer(i), kFirstStep, At(operation.send, Peer(i) * bytes + slice.begin), slice.count,
          &messages);
    }
    return messages;
  });
}

absl::Status MpiCommunicator::RunAllToAll(const Operation& operation) {
  const size_t bytes = operation.bytes();
  const void* send = operation.send;
  if (send == operation.recv) {  // received segments overwrite segments that are still to be sent
    send = Scratch(size() * bytes);
    Copy(const_cast<void*>(send), operation.send, size() * bytes);
  }
  Copy(At(operation.recv, rank() * bytes), At(send, rank() * bytes), bytes);
  return Stream(SlicesIn(bytes, kMovedBytes), [&](size_t k) {
    const Slice slice = SliceOf(bytes, kMovedBytes, k);
    Messages messages;
    for (uint32_t i = 0; i + 1 < size(); ++i) {
      const size_t offset = Peer(i) * bytes + slice.begin;
      Add(true, Peer(i), kFirstStep, At(send, offset), slice.count, &messages);
      Add(false, Peer(i), kFirstStep, At(operation.recv, offset), slice.count, &messages);
    }
    return messages;
  });
}

absl::Status MpiCommunicator::RunPointToPoint(const Operation& operation) {
  const bool sends = operation.kind == Operation::Kind::kSend;
  const void* const data = sends ? operation.send : operation.recv;
  return Stream(SlicesIn(operation.bytes(), kMovedBytes), [&](size_t k) {
    const Slice slice = SliceOf(operation.bytes(), kMovedBytes, k);
    Messages messages;
    Add(sends, operation.root, kPointToPoint, At(data, slice.begin), slice.count, &messages);
    return messages;
  });
}

// Every rank receives a message from every other, so that a missing rank can be named.
absl::Status MpiCommunicator::RunBarrier() {
  std::byte sent = {};
  std::byte* const received = Scratch(size());
  Messages messages;
  for (uint32_t i = 0; i + 1 < size(); ++i) {
    Add(true, Peer(i), kFirstStep, &sent, 1, &messages);
    Add(false, Peer(i), kFirstStep, received + Peer(i), 1, &messages);
  }
  return Exchange(std::move(messages));
}

// Keeps groups that are created in different orders on different ranks from being confused.
uint32_t TagOf(const std::string& id) {
  uint32_t tag = 0;
  for (const char c : id) tag = tag * 31 + static_cast<unsigned char>(c);
  return tag & 0x7fff;  // MPI guarantees tags up to 32767
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> CreateMpi(const GroupOptions& options) {
  ASSIGN_OR_RETURN(MpiProgressThread* const owner, MpiProgressThread::Get(options.connect_timeout));
  ASSIGN_OR_RETURN(std::vector<uint32_t> processes, FindMpiProcesses(options, *owner));
  ASSIGN_OR_RETURN(
      MusterMpiGroup* const group,
      owner->MakeGroup(std::move(processes), TagOf(options.id), options.connect_timeout));
  return {std::make_unique<MpiCommunicator>(options, owner, group)};
}

}  // namespace muster::collectives

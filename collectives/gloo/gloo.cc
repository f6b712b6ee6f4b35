#include "collectives/gloo/gloo.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/gloo/gloo_ring.h"
#include "collectives/gloo/gloo_transport.h"
#include "collectives/operation.h"
#include "collectives/queued_communicator.h"
#include "collectives/reduce.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

// In groups of up to this many ranks, small messages are exchanged directly between all ranks: one
// step instead of the ring's many.
constexpr uint32_t kDirectRanks = 8;
constexpr size_t kDirectBytes = 32 << 10;
constexpr size_t kChainChunkBytes = 256 << 10;
// Slot for Send and Recv on each link, distinct from the slots of collectives.
constexpr uint64_t kPointToPointSlot = kReservedSlot - 1;

struct Message {
  uint32_t peer = 0;
  void* data = nullptr;
  size_t bytes = 0;
};

class GlooCommunicator final : public QueuedCommunicator {
 public:
  GlooCommunicator(const GroupOptions& options, std::unique_ptr<GlooTransport> transport)
      : QueuedCommunicator(options.name, options.rank, options.members),
        transport_(std::move(transport)) {}
  ~GlooCommunicator() override { Close(); }

  absl::string_view backend() const override { return "gloo"; }

  absl::Status ConnectAtOnce() {
    RETURN_IF_ERROR(transport_->Connect(size() <= kDirectRanks ? AllPeers() : RingPeers()));
    // Barrier, so that no rank uses the group, and perhaps leaves it, while others still connect.
    return Barrier()->Wait();
  }

 protected:
  absl::Status Execute(const Operation& operation) override;
  void Interrupt(const absl::Status& failure) override { transport_->Interrupt(failure); }

 private:
  bool Direct(const Operation& operation) const {
    return size() == 2 || (size() <= kDirectRanks && operation.bytes() <= kDirectBytes);
  }
  std::vector<uint32_t> AllPeers() const;
  std::vector<uint32_t> RingPeers() const;
  RingOptions Ring(const Operation& operation, std::vector<size_t> bounds);
  // Returns the first of two slots that no other operation uses.
  uint64_t NextSlot() { return 2 * calls_++; }
  // Scratch memory, kept between calls.
  std::byte* Scratch(size_t bytes);

  // Performs all messages concurrently, at most one in each direction per peer.
  absl::Status Exchange(uint64_t slot, const std::vector<Message>& sends,
                        const std::vector<Message>& receives);

  absl::Status AllReduceDirectly(const Operation& operation);
  absl::Status AllReduceByRing(const Operation& operation);
  absl::Status RunReduceScatter(const Operation& operation);
  absl::Status RunAllGather(const Operation& operation);
  absl::Status RunBroadcast(const Operation& operation);
  absl::Status RunReduce(const Operation& operation);
  absl::Status RunGather(const Operation& operation);
  absl::Status RunScatter(const Operation& operation);
  absl::Status RunAllToAll(const Operation& operation);
  absl::Status RunBarrier();

  const std::unique_ptr<GlooTransport> transport_;
  // Used by the collectives' lane only.
  uint64_t calls_ = 0;
  std::vector<std::byte> ring_scratch_;
  std::vector<std::byte> scratch_;
};

std::byte* Part(void* data, size_t index, size_t bytes) {
  return static_cast<std::byte*>(data) + index * bytes;
}

std::byte* Part(const void* data, size_t index, size_t bytes) {
  // Gloo has one mutable buffer type for both directions; sent data is only read.
  return Part(const_cast<void*>(data), index, bytes);
}

void Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

absl::Status GlooCommunicator::Execute(const Operation& operation) {
  switch (operation.kind) {
    case Operation::Kind::kAllReduce:
      return size() <= kDirectRanks && operation.bytes() <= kDirectBytes
                 ? AllReduceDirectly(operation)
                 : AllReduceByRing(operation);
    case Operation::Kind::kReduceScatter:
      return RunReduceScatter(operation);
    case Operation::Kind::kAllGather:
      return RunAllGather(operation);
    case Operation::Kind::kBroadcast:
      return RunBroadcast(operation);
    case Operation::Kind::kReduce:
      return RunReduce(operation);
    case Operation::Kind::kGather:
      return RunGather(operation);
    case Operation::Kind::kScatter:
      return RunScatter(operation);
    case Operation::Kind::kAllToAll:
      return RunAllToAll(operation);
    case Operation::Kind::kSend:
      return Exchange(kPointToPointSlot,
                      {{operation.root, Part(operation.send, 0, 0), operation.bytes()}}, {});
    case Operation::Kind::kReceive:
      return Exchange(kPointToPointSlot, {}, {{operation.root, operation.recv, operation.bytes()}});
    case Operation::Kind::kBarrier:
      return RunBarrier();
  }
  return absl::InternalError("an operation without a kind");
}

std::vector<uint32_t> GlooCommunicator::AllPeers() const {
  std::vector<uint32_t> peers;
  for (uint32_t i = 0; i < size(); ++i) {
    if (i != rank()) peers.push_back(i);
  }
  return peers;
}

std::vector<uint32_t> GlooCommunicator::RingPeers() const {
  return {(rank() + 1) % size(), (rank() + size() - 1) % size()};
}

RingOptions GlooCommunicator::Ring(const Operation& operation, std::vector<size_t> bounds) {
  RingOptions ring;
  ring.rank = rank();
  ring.size = size();
  ring.slot = NextSlot();
  ring.type = operation.type;
  ring.op = operation.op;
  ring.bounds = std::move(bounds);
  ring.scratch = &ring_scratch_;
  return ring;
}

std::byte* GlooCommunicator::Scratch(size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

absl::Status GlooCommunicator::Exchange(uint64_t slot, const std::vector<Message>& sends,
                                        const std::vector<Message>& receives) {
  std::vector<uint32_t> peers;
  for (const Message& message : sends) peers.push_back(message.peer);
  for (const Message& message : receives) {
    if (std::find(peers.begin(), peers.end(), message.peer) == peers.end()) {
      peers.push_back(message.peer);
    }
  }
  RETURN_IF_ERROR(transport_->Connect(std::move(peers)));
  std::vector<std::unique_ptr<GlooBuffer>> in;
  std::vector<std::unique_ptr<GlooBuffer>> out;
  for (const Message& message : receives) {
    if (message.bytes == 0) continue;
    in.push_back(transport_->Buffer(message.peer, message.data));
    RETURN_IF_ERROR(in.back()->Receive(slot, 0, message.bytes));
  }
  for (const Message& message : sends) {
    if (message.bytes == 0) continue;
    out.push_back(transport_->Buffer(message.peer, message.data));
    RETURN_IF_ERROR(out.back()->Send(slot, 0, message.bytes));
  }
  for (const auto& buffer : in) RETURN_IF_ERROR(buffer->AwaitReceived());
  for (const auto& buffer : out) RETURN_IF_ERROR(buffer->AwaitAllSent());
  return absl::OkStatus();
}

// Every rank receives all inputs and reduces them in rank order.
absl::Status GlooCommunicator::AllReduceDirectly(const Operation& operation) {
  const size_t bytes = operation.bytes();
  std::byte* const received = Scratch(size() * bytes);
  std::vector<Message> sends;
  std::vector<Message> receives;
  std::vector<const void*> inputs;
  for (uint32_t i = 0; i < size(); ++i) {
    if (i == rank()) {
      inputs.push_back(operation.send);
      continue;
    }
    sends.push_back({i, Part(operation.send, 0, 0), bytes});
    receives.push_back({i, received + i * bytes, bytes});
    inputs.push_back(receives.back().data);
  }
  RETURN_IF_ERROR(Exchange(NextSlot(), sends, receives));
  ReduceArrays(inputs, {&operation.recv, 1}, operation.count, operation.type, operation.op);
  return absl::OkStatus();
}

absl::Status GlooCommunicator::AllReduceByRing(const Operation& operation) {
  RETURN_IF_ERROR(transport_->Connect(RingPeers()));
  return RingAllReduce(transport_.get(), Ring(operation, EqualSegments(operation.count, size())),
                       operation.send, operation.recv);
}

absl::Status GlooCommunicator::RunReduceScatter(const Operation& operation) {
  if (operation.count == 0) return absl::OkStatus();
  RETURN_IF_ERROR(transport_->Connect(RingPeers()));
  const size_t count = operation.count * size();
  std::byte* const sums = Scratch(count * SizeOf(operation.type));
  RETURN_IF_ERROR(RingReduceScatter(transport_.get(), Ring(operation, EqualSegments(count, size())),
                                    operation.send, sums));
  Copy(operation.recv, sums + rank() * operation.bytes(), operation.bytes());
  return absl::OkStatus();
}

absl::Status GlooCommunicator::RunAllGather(const Operation& operation) {
  if (operation.count == 0) return absl::OkStatus();
  RETURN_IF_ERROR(transport_->Connect(RingPeers()));
  Copy(Part(operation.recv, rank(), operation.bytes()), operation.send, operation.bytes());
  return RingAllGather(transport_.get(),
                       Ring(operation, EqualSegments(operation.count * size(), size())),
                       operation.recv);
}

// Small messages: the root sends to all. Large ones: chunks pass along a chain of ranks that starts
// at the root.
absl::Status GlooCommunicator::RunBroadcast(const Operation& operation) {
  const bool root = rank() == operation.root;
  const size_t bytes = operation.bytes();
  const uint64_t slot = NextSlot();
  if (bytes == 0) return absl::OkStatus();
  if (Direct(operation)) {
    if (!root) return Exchange(slot, {}, {{operation.root, operation.recv, bytes}});
    std::vector<Message> sends;
    for (const uint32_t peer : AllPeers()) sends.push_back({peer, operation.recv, bytes});
    return Exchange(slot, sends, {});
  }
  RETURN_IF_ERROR(transport_->Connect(RingPeers()));
  const uint32_t right = (rank() + 1) % size();
  const uint32_t left = (rank() + size() - 1) % size();
  const auto in = transport_->Buffer(left, operation.recv);
  const auto out = transport_->Buffer(right, operation.recv);
  for (size_t begin = 0; !root && begin < bytes; begin += kChainChunkBytes) {
    RETURN_IF_ERROR(in->Receive(slot, begin, std::min(kChainChunkBytes, bytes - begin)));
  }
  for (size_t begin = 0; begin < bytes; begin += kChainChunkBytes) {
    if (!root) RETURN_IF_ERROR(in->AwaitReceived());
    if (right == operation.root) continue;
    RETURN_IF_ERROR(out->Send(slot, begin, std::min(kChainChunkBytes, bytes - begin)));
  }
  return out->AwaitAllSent();
}

// Chunks pass along a chain that ends at the root; each rank adds its own.
absl::Status GlooCommunicator::RunReduce(const Operation& operation) {
  const bool root = rank() == operation.root;
  const size_t bytes = operation.bytes();
  const size_t element = SizeOf(operation.type);
  const uint64_t slot = NextSlot();
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(transport_->Connect(RingPeers()));
  const uint32_t right = (rank() + 1) % size();
  const uint32_t left = (rank() + size() - 1) % size();
  const bool begins = left == operation.root;
  std::byte* const sums = begins ? Part(operation.send, 0, 0) : Scratch(bytes);
  const auto in = transport_->Buffer(left, sums);
  const auto out = transport_->Buffer(right, sums);
  for (size_t begin = 0; !begins && begin < bytes; begin += kChainChunkBytes) {
    RETURN_IF_ERROR(in->Receive(slot, begin, std::min(kChainChunkBytes, bytes - begin)));
  }
  for (size_t begin = 0; begin < bytes; begin += kChainChunkBytes) {
    const size_t n = std::min(kChainChunkBytes, bytes - begin);
    if (!begins) {
      RETURN_IF_ERROR(in->AwaitReceived());
      const void* const inputs[] = {sums + begin, Part(operation.send, begin, 1)};
      void* const output = root ? Part(operation.recv, begin, 1) : sums + begin;
      ReduceArrays(inputs, {&output, 1}, n / element, operation.type, operation.op);
    }
    if (!root) RETURN_IF_ERROR(out->Send(slot, begin, n));
  }
  return out->AwaitAllSent();
}

absl::Status GlooCommunicator::RunGather(const Operation& operation) {
  const size_t bytes = operation.bytes();
  const uint64_t slot = NextSlot();
  if (rank() != operation.root) {
    return Exchange(slot, {{operation.root, Part(operation.send, 0, 0), bytes}}, {});
  }
  std::vector<Message> receives;
  for (const uint32_t peer : AllPeers()) {
    receives.push_back({peer, Part(operation.recv, peer, bytes), bytes});
  }
  Copy(Part(operation.recv, rank(), bytes), operation.send, bytes);
  return Exchange(slot, {}, receives);
}

absl::Status GlooCommunicator::RunScatter(const Operation& operation) {
  const size_t bytes = operation.bytes();
  const uint64_t slot = NextSlot();
  if (rank() != operation.root) {
    return Exchange(slot, {}, {{operation.root, operation.recv, bytes}});
  }
  std::vector<Message> sends;
  for (const uint32_t peer : AllPeers()) {
    sends.push_back({peer, Part(operation.send, peer, bytes), bytes});
  }
  RETURN_IF_ERROR(Exchange(slot, sends, {}));
  Copy(operation.recv, Part(operation.send, rank(), bytes), bytes);
  return absl::OkStatus();
}

absl::Status GlooCommunicator::RunAllToAll(const Operation& operation) {
  const size_t bytes = operation.bytes();
  const void* send = operation.send;
  if (send == operation.recv) {  // received segments overwrite segments that are still to be sent
    send = Scratch(size() * bytes);
    Copy(const_cast<void*>(send), operation.send, size() * bytes);
  }
  std::vector<Message> sends;
  std::vector<Message> receives;
  for (const uint32_t peer : AllPeers()) {
    sends.push_back({peer, Part(send, peer, bytes), bytes});
    receives.push_back({peer, Part(operation.recv, peer, bytes), bytes});
  }
  Copy(Part(operation.recv, rank(), bytes), Part(send, rank(), bytes), bytes);
  return Exchange(NextSlot(), sends, receives);
}

// Dissemination barrier (Hensgen, Finkel, Manber 1988): after k rounds each rank has heard,
// directly or indirectly, from 2^k ranks including itself.
absl::Status GlooCommunicator::RunBarrier() {
  const uint64_t slot = NextSlot();
  std::byte sent = {};
  std::byte received = {};
  for (uint32_t distance = 1; distance < size(); distance *= 2) {
    const uint32_t to = (rank() + distance) % size();
    const uint32_t from = (rank() + size() - distance) % size();
    RETURN_IF_ERROR(Exchange(slot, {{to, &sent, 1}}, {{from, &received, 1}}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> CreateGloo(const GroupOptions& options,
                                                         GlooConnect connect) {
  ASSIGN_OR_RETURN(std::unique_ptr<GlooTransport> transport, GlooTransport::Create(options));
  auto communicator = std::make_unique<GlooCommunicator>(options, std::move(transport));
  if (connect == GlooConnect::kAtOnce) RETURN_IF_ERROR(communicator->ConnectAtOnce());
  return {std::move(communicator)};
}

}  // namespace muster::collectives

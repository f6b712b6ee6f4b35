#include "collectives/shm/shm.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "collectives/operation.h"
#include "collectives/peer_status.h"
#include "collectives/queued_communicator.h"
#include "collectives/reduce.h"
#include "collectives/shm/shm_handover.h"
#include "collectives/shm/shm_heap.h"
#include "collectives/shm/shm_peers.h"
#include "collectives/shm/shm_segment.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

constexpr size_t kChunkBytes = ShmSegment::kChunkBytes;
// Up to this size every rank reads the inputs of all ranks, which takes one step; above, two or
// more steps pay off. The limit applies to the sum over all ranks, because each rank reads all
// inputs.
constexpr size_t kSmallBytesOfAllRanks = 128 << 10;

struct Range {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
};

Range Intersection(Range a, Range b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// The range of `count` elements that `rank` reduces, in whole cache lines.
Range SliceOf(size_t count, uint32_t rank, uint32_t size) {
  constexpr size_t kElements = 64;
  const size_t slice = ((count + size - 1) / size + kElements - 1) / kElements * kElements;
  return {std::min(rank * slice, count), std::min((rank + 1) * slice, count)};
}

void Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

class ShmCommunicator final : public QueuedCommunicator {
 public:
  ShmCommunicator(const GroupOptions& options, std::shared_ptr<const ShmSegment> segment)
      : QueuedCommunicator(options.name, options.rank, options.members),
        timeout_(options.timeout),
        segment_(std::move(segment)),
        heap_(std::make_shared<ShmHeap>(segment_, options.rank, options.size)),
        peers_(segment_, options.name, options.rank, options.members,
               [this] { return failed() ? failure() : absl::OkStatus(); }),
        sent_chunks_(options.size, 0),
        received_chunks_(options.size, 0) {}

  ~ShmCommunicator() override {
    Close();
    if (!failed()) peers_.Leave();
  }

  absl::Status Meet(absl::Duration timeout) {
    peers_.Step();
    return peers_.WaitForAll(timeout);
  }

  absl::string_view backend() const override { return "shm"; }

  absl::StatusOr<std::unique_ptr<Allocation>> Allocate(size_t size_bytes) override {
    return heap_->Allocate(size_bytes);
  }

  void* PeerData(Allocation& allocation, uint32_t rank) override {
    const size_t bytes = allocation.size_bytes();
    return heap_->Resolve(rank, heap_->Locate(allocation.data(), bytes), bytes);
  }

 protected:
  absl::Status Execute(const Operation& operation) override;

  void Interrupt(const absl::Status& failure) override {
    peers_.GiveUp(PeerRankOf(failure).value_or(job_rank(rank())));
  }

 private:
  // A collective in progress, with the announcements of all ranks.
  struct Call {
    Operation operation;
    uint32_t parity = 0;
    // Buffers that this process can access directly; null: private to their rank.
    std::vector<const std::byte*> sends;
    std::vector<std::byte*> recvs;
  };

  uint32_t last() const { return size() - 1; }

  // Number of bytes of its send buffer that rank `of` exposes to the others.
  size_t SourceBytes(const Operation& operation, uint32_t of) const;
  size_t RecvBytes(const Operation& operation) const;
  bool Small(const Operation& operation) const;

  absl::Status Announce(Call* call);
  absl::Status CheckAnnouncements(const Call& call) const;
  absl::Status ResolveBuffers(Call* call) const;

  absl::Status RunSmall(const Call& call);
  // Every rank reads from every other, one chunk at a time if a source is private.
  absl::Status RunExchange(const Call& call);
  // Each rank reduces a slice and writes it to all ranks that receive it.
  absl::Status RunSlices(const Call& call);

  // Copies or reduces this rank's result from the byte range `window` of each source; sources[i]
  // points to the start of rank i's window.
  void Consume(const Operation& operation, absl::Span<const std::byte* const> sources,
               Range window) const;

  absl::Status SendMessage(const Operation& operation);
  absl::Status ReceiveMessage(const Operation& operation);

  const absl::Duration timeout_;
  const std::shared_ptr<const ShmSegment> segment_;
  const std::shared_ptr<ShmHeap> heap_;
  ShmPeers peers_;
  uint32_t calls_ = 0;
  std::vector<uint32_t> sent_chunks_;      // by peer; each used by one lane
  std::vector<uint32_t> received_chunks_;  // by peer
};

absl::Status ShmCommunicator::Execute(const Operation& operation) {
  if (operation.kind == Operation::Kind::kSend) return SendMessage(operation);
  if (operation.kind == Operation::Kind::kReceive) return ReceiveMessage(operation);
  Call call;
  call.operation = operation;
  call.parity = calls_++ & 1;
  // In place, received segments would overwrite segments that peers have yet to read.
  std::vector<std::byte> copy;
  if (operation.kind == Operation::Kind::kAllToAll && operation.send == operation.recv) {
    const auto* const begin = static_cast<const std::byte*>(operation.send);
    copy.assign(begin, begin + operation.bytes() * size());
    call.operation.send = copy.data();
  }
  RETURN_IF_ERROR(Announce(&call));
  if (Small(operation)) return RunSmall(call);
  RETURN_IF_ERROR(ResolveBuffers(&call));
  const bool slices =
      operation.kind == Operation::Kind::kAllReduce || operation.kind == Operation::Kind::kReduce;
  return slices ? RunSlices(call) : RunExchange(call);
}

size_t ShmCommunicator::SourceBytes(const Operation& operation, uint32_t of) const {
  switch (operation.kind) {
    case Operation::Kind::kAllReduce:
    case Operation::Kind::kReduce:
    case Operation::Kind::kAllGather:
    case Operation::Kind::kGather:
      return operation.bytes();
    case Operation::Kind::kReduceScatter:
    case Operation::Kind::kAllToAll:
      return operation.bytes() * size();
    case Operation::Kind::kBroadcast:
      return of == operation.root ? operation.bytes() : 0;
    case Operation::Kind::kScatter:
      return of == operation.root ? operation.bytes() * size() : 0;
    case Operation::Kind::kSend:
    case Operation::Kind::kReceive:
    case Operation::Kind::kBarrier:
      break;
  }
  return 0;
}

size_t ShmCommunicator::RecvBytes(const Operation& operation) const {
  switch (operation.kind) {
    case Operation::Kind::kAllReduce:
      return operation.bytes();
    case Operation::Kind::kReduce:
      return rank() == operation.root ? operation.bytes() : 0;
    default:
      return 0;  // not written by other ranks
  }
}

bool ShmCommunicator::Small(const Operation& operation) const {
  const size_t limit = std::min<size_t>(ShmSegment::kSmallBytes, kSmallBytesOfAllRanks / size());
  return SourceBytes(operation, operation.root) <= limit;
}

absl::Status ShmCommunicator::Announce(Call* call) {
  const Operation& operation = call->operation;
  const size_t source_bytes = SourceBytes(operation, rank());
  Announcement& announcement = segment_->control(rank()).announcements[call->parity];
  announcement = Announcement();
  announcement.signature = SignatureOf(operation);
  if (Small(operation)) {
    if (source_bytes > 0) {
      std::memcpy(segment_->small_slot(rank(), call->parity), operation.send, source_bytes);
    }
  } else {
    if (source_bytes > 0) announcement.send = heap_->Locate(operation.send, source_bytes);
    if (const size_t recv_bytes = RecvBytes(operation); recv_bytes > 0) {
      announcement.recv = heap_->Locate(operation.recv, recv_bytes);
    }
  }
  peers_.Step();
  RETURN_IF_ERROR(peers_.WaitForAll(timeout_));
  return CheckAnnouncements(*call);
}

absl::Status ShmCommunicator::CheckAnnouncements(const Call& call) const {
  const OperationSignature own = SignatureOf(call.operation);
  for (uint32_t i = 0; i < size(); ++i) {
    const OperationSignature theirs = segment_->control(i).announcements[call.parity].signature;
    if (!(theirs == own)) {
      return absl::InvalidArgumentError(absl::StrCat(name(), ": rank ", job_rank(rank()), " calls ",
                                                     Describe(own), ", rank ", job_rank(i),
                                                     " calls ", Describe(theirs)));
    }
  }
  return absl::OkStatus();
}

absl::Status ShmCommunicator::ResolveBuffers(Call* call) const {
  const Operation& operation = call->operation;
  for (uint32_t i = 0; i < size(); ++i) {
    const Announcement& announcement = segment_->control(i).announcements[call->parity];
    call->sends.push_back(heap_->Resolve(i, announcement.send, SourceBytes(operation, i)));
    call->recvs.push_back(heap_->Resolve(i, announcement.recv, operation.bytes()));
    // Ranks choose the algorithm by which buffers are private, so they must agree on this.
    if ((call->sends[i] == nullptr && announcement.send.allocation != BufferLocation::kPrivate) ||
        (call->recvs[i] == nullptr && announcement.recv.allocation != BufferLocation::kPrivate)) {
      return absl::FailedPreconditionError(absl::StrCat(
          name(), ": rank ", job_rank(i), " uses an allocation that this rank does not have"));
    }
  }
  return absl::OkStatus();
}

absl::Status ShmCommunicator::RunSmall(const Call& call) {
  std::vector<const std::byte*> sources;
  for (uint32_t i = 0; i < size(); ++i) sources.push_back(segment_->small_slot(i, call.parity));
  const size_t bytes = SourceBytes(call.operation, call.operation.root);
  if (bytes > 0) Consume(call.operation, sources, {0, bytes});
  return absl::OkStatus();
}

absl::Status ShmCommunicator::RunExchange(const Call& call) {
  const Operation& operation = call.operation;
  const size_t source_bytes = SourceBytes(operation, operation.root);
  bool all_direct = true;
  bool any_direct = false;
  for (uint32_t i = 0; i < size(); ++i) {
    if (SourceBytes(operation, i) == 0) continue;
    all_direct = all_direct && call.sends[i] != nullptr;
    any_direct = any_direct || call.sends[i] != nullptr;
  }
  const bool staged = SourceBytes(operation, rank()) > 0 && call.sends[rank()] == nullptr;
  const size_t window_bytes = all_direct ? source_bytes : kChunkBytes;
  const auto* const own = static_cast<const std::byte*>(operation.send);
  uint32_t parity = 0;
  for (size_t begin = 0; begin < source_bytes; begin += window_bytes, parity ^= 1) {
    const Range window = {begin, std::min(begin + window_bytes, source_bytes)};
    if (staged) std::memcpy(segment_->input_chunk(rank(), parity), own + begin, window.size());
    if (!all_direct) {
      peers_.Step();
      RETURN_IF_ERROR(peers_.WaitForAll(timeout_));
    }
    std::vector<const std::byte*> sources;
    for (uint32_t i = 0; i < size(); ++i) {
      if (i == rank() && own != nullptr) {
        sources.push_back(own + begin);
      } else if (call.sends[i] != nullptr) {
        sources.push_back(call.sends[i] + begin);
      } else {
        sources.push_back(segment_->input_chunk(i, parity));
      }
    }
    Consume(operation, sources, window);
  }
  if (!any_direct) return absl::OkStatus();
  // The caller may reuse its buffer only when no rank reads it any more.
  peers_.Step();
  return peers_.WaitForAll(timeout_);
}

void ShmCommunicator::Consume(const Operation& operation,
                              absl::Span<const std::byte* const> sources, Range window) const {
  const size_t bytes = operation.bytes();
  auto* const recv = static_cast<std::byte*>(operation.recv);
  // Copies the intersection of `wanted` and the window from rank `from`'s source to the same offset
  // in `to`.
  auto take = [&](uint32_t from, Range wanted, std::byte* to) {
    const Range range = Intersection(wanted, window);
    if (range.empty()) return;
    Copy(to + (range.begin - wanted.begin), sources[from] + (range.begin - window.begin),
         range.size());
  };
  const Range own_part = {rank() * bytes, (rank() + 1) * bytes};
  switch (operation.kind) {
    case Operation::Kind::kAllReduce:
    case Operation::Kind::kReduce:
    case Operation::Kind::kReduceScatter: {
      if (operation.kind == Operation::Kind::kReduce && rank() != operation.root) return;
      const bool scatter = operation.kind == Operation::Kind::kReduceScatter;
      const Range wanted = scatter ? own_part : Range{0, bytes};
      const Range range = Intersection(wanted, window);
      if (range.empty()) return;
      std::vector<const void*> inputs;
      for (const std::byte* source : sources) {
        inputs.push_back(source + (range.begin - window.begin));
      }
      void* const output = recv + (range.begin - wanted.begin);
      ReduceArrays(inputs, {&output, 1}, range.size() / SizeOf(operation.type), operation.type,
                   operation.op);
      return;
    }
    case Operation::Kind::kGather:
      if (rank() != operation.root) return;
      [[fallthrough]];
    case Operation::Kind::kAllGather:
      for (uint32_t i = 0; i < size(); ++i) take(i, {0, bytes}, recv + i * bytes);
      return;
    case Operation::Kind::kAllToAll:
      for (uint32_t i = 0; i < size(); ++i) take(i, own_part, recv + i * bytes);
      return;
    case Operation::Kind::kBroadcast:
      if (rank() != operation.root) take(operation.root, {0, bytes}, recv);
      return;
    case Operation::Kind::kScatter:
      take(operation.root, own_part, recv);
      return;
    case Operation::Kind::kSend:
    case Operation::Kind::kReceive:
    case Operation::Kind::kBarrier:
      return;
  }
}

absl::Status ShmCommunicator::RunSlices(const Call& call) {
  const Operation& operation = call.operation;
  const size_t element = SizeOf(operation.type);
  auto wants = [&](uint32_t i) {
    return operation.kind == Operation::Kind::kAllReduce || i == operation.root;
  };
  bool direct = true;
  for (uint32_t i = 0; i < size(); ++i) {
    direct = direct && call.sends[i] != nullptr && (!wants(i) || call.recvs[i] != nullptr);
  }
  const bool stage_in = call.sends[rank()] == nullptr;
  const bool stage_out = wants(rank()) && call.recvs[rank()] == nullptr;
  const size_t chunk = direct ? operation.count : kChunkBytes / element;
  const auto* const send = static_cast<const std::byte*>(operation.send);
  auto* const recv = static_cast<std::byte*>(operation.recv);

  auto count_at = [&](size_t begin) { return std::min(chunk, operation.count - begin); };
  // The slices of a chunk that peers reduce are staged in the segment; this rank's own slice is
  // not.
  auto copy_foreign_slices = [&](size_t begin, std::byte* to, const std::byte* from) {
    const Range own = SliceOf(count_at(begin), rank(), size());
    Copy(to, from, own.begin * element);
    Copy(to + own.end * element, from + own.end * element, (count_at(begin) - own.end) * element);
  };
  auto copy_in = [&](size_t begin, uint32_t parity) {
    copy_foreign_slices(begin, segment_->input_chunk(rank(), parity), send + begin * element);
  };

  if (stage_in) copy_in(0, 0);
  uint32_t parity = 0;
  for (size_t begin = 0; begin < operation.count; begin += chunk, parity ^= 1) {
    if (!direct) {
      peers_.Step();
      // Stages the next chunk while the peers copy this one.
      if (stage_in && begin + chunk < operation.count) copy_in(begin + chunk, parity ^ 1);
      RETURN_IF_ERROR(peers_.WaitForAll(timeout_));
    }
    const Range slice = SliceOf(count_at(begin), rank(), size());
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (uint32_t i = 0; i < size(); ++i) {
      const std::byte* source = i == rank() ? send : call.sends[i];
      source = source != nullptr ? source + begin * element : segment_->input_chunk(i, parity);
      inputs.push_back(source + slice.begin * element);
      if (!wants(i)) continue;
      std::byte* target = i == rank() ? recv : call.recvs[i];
      target = target != nullptr ? target + begin * element : segment_->output_chunk(i);
      outputs.push_back(target + slice.begin * element);
    }
    ReduceArrays(inputs, outputs, slice.size(), operation.type, operation.op);
    peers_.Step();
    RETURN_IF_ERROR(peers_.WaitForAll(timeout_));
    if (stage_out) {
      copy_foreign_slices(begin, recv + begin * element, segment_->output_chunk(rank()));
    }
  }
  return absl::OkStatus();
}

absl::Status ShmCommunicator::SendMessage(const Operation& operation) {
  const uint32_t peer = operation.root;
  Mailbox& mailbox = segment_->mailbox(rank(), peer);
  const auto* const data = static_cast<const std::byte*>(operation.send);
  const size_t bytes = operation.bytes();
  uint32_t& chunks = sent_chunks_[peer];
  size_t begin = 0;
  do {  // at least once: an empty message is sent, too
    RETURN_IF_ERROR(
        peers_.WaitForWord(&mailbox.read, chunks + 1 - Mailbox::kChunks, peer, timeout_));
    const uint32_t slot = chunks % Mailbox::kChunks;
    const size_t n = std::min(Mailbox::kChunkBytes, bytes - begin);
    mailbox.message_bytes[slot] = bytes;
    if (n > 0) std::memcpy(mailbox.chunks[slot], data + begin, n);
    mailbox.written.Advance(++chunks);
    begin += n;
  } while (begin < bytes);
  return absl::OkStatus();
}

absl::Status ShmCommunicator::ReceiveMessage(const Operation& operation) {
  const uint32_t peer = operation.root;
  Mailbox& mailbox = segment_->mailbox(peer, rank());
  auto* const data = static_cast<std::byte*>(operation.recv);
  const size_t bytes = operation.bytes();
  uint32_t& chunks = received_chunks_[peer];
  size_t begin = 0;
  do {
    RETURN_IF_ERROR(peers_.WaitForWord(&mailbox.written, chunks + 1, peer, timeout_));
    const uint32_t slot = chunks % Mailbox::kChunks;
    if (mailbox.message_bytes[slot] != bytes) {
      return absl::InvalidArgumentError(absl::StrCat(name(), ": rank ", job_rank(peer), " sends ",
                                                     mailbox.message_bytes[slot],
                                                     " bytes, but this rank receives ", bytes));
    }
    const size_t n = std::min(Mailbox::kChunkBytes, bytes - begin);
    if (n > 0) std::memcpy(data + begin, mailbox.chunks[slot], n);
    mailbox.read.Advance(++chunks);
    begin += n;
  } while (begin < bytes);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> CreateShm(const GroupOptions& options) {
  ASSIGN_OR_RETURN(std::shared_ptr<ShmSegment> segment, ShareSegment(options));
  RETURN_IF_ERROR(segment->HoldRank(options.rank));
  auto communicator = std::make_unique<ShmCommunicator>(options, std::move(segment));
  RETURN_IF_ERROR(communicator->Meet(options.connect_timeout));
  return {std::move(communicator)};
}

}  // namespace muster::collectives

#include "collectives/gloo/gloo_ring.h"

#include <algorithm>
#include <memory>

#include "collectives/reduce.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

// Large enough to amortize the cost of a message, small enough that received data is still in the
// cache when it is reduced.
constexpr size_t kChunkBytes = 512 << 10;
// Number of chunks that the previous rank may send ahead of the reduction.
constexpr size_t kDepth = 4;

struct Piece {
  size_t begin = 0;  // elements
  size_t end = 0;
  bool last_step = false;  // last step of the ring: not forwarded
};

class Ring {
 public:
  Ring(GlooTransport* transport, const RingOptions& options, const void* send, void* recv)
      : options_(options),
        element_(SizeOf(options.type)),
        send_(static_cast<std::byte*>(const_cast<void*>(send))),
        recv_(static_cast<std::byte*>(recv)) {
    const uint32_t right = (options.rank + 1) % options.size;
    const uint32_t left = (options.rank + options.size - 1) % options.size;
    if (options_.scratch->size() < kDepth * kChunkBytes) {
      options_.scratch->resize(kDepth * kChunkBytes);
    }
    own_out_ = transport->Buffer(right, send_);
    out_ = transport->Buffer(right, recv_);
    in_ = transport->Buffer(left, options_.scratch->data());
    gathered_ = transport->Buffer(left, recv_);
  }

  // Sends segment `first` and reduces the next segment into this rank. If `gather` is true,
  // forwards each chunk of the reduced segment as soon as it is complete.
  absl::Status Reduce(uint32_t first, bool gather) {
    const std::vector<Piece> pieces = ReceivedPieces(first);
    const std::vector<Piece> gathered =
        gather ? ReceivedPieces((first + 1) % options_.size) : std::vector<Piece>();
    for (size_t i = 0; i < std::min(kDepth, pieces.size()); ++i) RETURN_IF_ERROR(Post(pieces, i));
    // These arrive only after the data that they overwrite has gone around the ring.
    for (const Piece& piece : gathered) RETURN_IF_ERROR(Receive(piece));
    for (const Piece& piece : PiecesOf(first)) {
      RETURN_IF_ERROR(own_out_->Send(options_.slot, piece.begin * element_, Bytes(piece)));
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = pieces[i];
      RETURN_IF_ERROR(in_->AwaitReceived());
      Add(piece, options_.scratch->data() + i % kDepth * kChunkBytes);
      if (!piece.last_step) {
        RETURN_IF_ERROR(out_->Send(options_.slot, piece.begin * element_, Bytes(piece)));
      } else if (gather) {
        RETURN_IF_ERROR(out_->Send(options_.slot + 1, piece.begin * element_, Bytes(piece)));
      }
      if (i + kDepth < pieces.size()) RETURN_IF_ERROR(Post(pieces, i + kDepth));
    }
    RETURN_IF_ERROR(PassOn(gathered));
    return AwaitSent();
  }

  absl::Status Gather() {
    const std::vector<Piece> pieces = ReceivedPieces(options_.rank);
    for (const Piece& piece : pieces) RETURN_IF_ERROR(Receive(piece));
    for (const Piece& piece : PiecesOf(options_.rank)) {
      RETURN_IF_ERROR(out_->Send(options_.slot + 1, piece.begin * element_, Bytes(piece)));
    }
    RETURN_IF_ERROR(PassOn(pieces));
    return AwaitSent();
  }

 private:
  size_t Bytes(const Piece& piece) const { return (piece.end - piece.begin) * element_; }

  std::vector<Piece> PiecesOf(uint32_t segment) const {
    const size_t chunk = kChunkBytes / element_;
    const size_t end = options_.bounds[segment + 1];
    std::vector<Piece> pieces;
    for (size_t begin = options_.bounds[segment]; begin < end; begin += chunk) {
      Piece piece;
      piece.begin = begin;
      piece.end = std::min(begin + chunk, end);
      pieces.push_back(piece);
    }
    return pieces;
  }

  // Chunks received from the previous rank, in order, if every rank starts with its segment
  // `sent_first` and forwards everything it receives but the last.
  std::vector<Piece> ReceivedPieces(uint32_t sent_first) const {
    std::vector<Piece> all;
    for (uint32_t step = 0; step + 1 < options_.size; ++step) {
      const uint32_t segment = (sent_first + 2 * options_.size - step - 1) % options_.size;
      for (Piece piece : PiecesOf(segment)) {
        piece.last_step = step + 2 == options_.size;
        all.push_back(piece);
      }
    }
    return all;
  }

  absl::Status Post(const std::vector<Piece>& pieces, size_t index) {
    return in_->Receive(options_.slot, index % kDepth * kChunkBytes, Bytes(pieces[index]));
  }

  absl::Status Receive(const Piece& piece) {
    return gathered_->Receive(options_.slot + 1, piece.begin * element_, Bytes(piece));
  }

  void Add(const Piece& piece, const std::byte* received) {
    const void* const inputs[] = {received, send_ + piece.begin * element_};
    void* const output = recv_ + piece.begin * element_;
    ReduceArrays(inputs, {&output, 1}, piece.end - piece.begin, options_.type, options_.op);
  }

  absl::Status PassOn(const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
      RETURN_IF_ERROR(gathered_->AwaitReceived());
      if (piece.last_step) continue;
      RETURN_IF_ERROR(out_->Send(options_.slot + 1, piece.begin * element_, Bytes(piece)));
    }
    return absl::OkStatus();
  }

  absl::Status AwaitSent() {
    RETURN_IF_ERROR(own_out_->AwaitAllSent());
    return out_->AwaitAllSent();
  }

  const RingOptions& options_;
  const size_t element_;
  std::byte* const send_;
  std::byte* const recv_;
  std::unique_ptr<GlooBuffer> own_out_;
  std::unique_ptr<GlooBuffer> out_;
  std::unique_ptr<GlooBuffer> in_;
  std::unique_ptr<GlooBuffer> gathered_;
};

}  // namespace

std::vector<size_t> EqualSegments(size_t count, uint32_t size) {
  std::vector<size_t> bounds;
  for (uint32_t i = 0; i < size; ++i) {
    bounds.push_back(count / size * i + std::min<size_t>(i, count % size));
  }
  bounds.push_back(count);
  return bounds;
}

absl::Status RingAllReduce(GlooTransport* transport, const RingOptions& options, const void* send,
                           void* recv) {
  return Ring(transport, options, send, recv).Reduce(options.rank, /*gather=*/true);
}

absl::Status RingReduceScatter(GlooTransport* transport, const RingOptions& options,
                               const void* send, void* recv) {
  const uint32_t left = (options.rank + options.size - 1) % options.size;
  return Ring(transport, options, send, recv).Reduce(left, /*gather=*/false);
}

absl::Status RingAllGather(GlooTransport* transport, const RingOptions& options, void* data) {
  return Ring(transport, options, data, data).Gather();
}

}  // namespace muster::collectives

#include "collectives/hierarchical/hierarchical.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collectives/operation.h"
#include "collectives/peer_status.h"
#include "collectives/queued_communicator.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

// A rank that timed out publishes it at once; a rank that publishes nothing within this time is
// considered stalled. Groups notice a timeout at slightly different times, and on a busy node a rank
// may have to wait for a core before it can publish.
constexpr absl::Duration kReportTimeout = absl::Seconds(2);
// Maximum number of reports that are followed from a rank to the stalled one: its CROSS peer, that
// peer's LOCAL neighbour, and once more.
constexpr int kMaxReportsFollowed = 4;

// Large enough to keep the network busy, small enough that the first chunk is sent early.
constexpr size_t kPipelineBytes = 4 << 20;

bool AllEqual(const std::vector<uint32_t>& values) {
  return std::all_of(values.begin(), values.end(), [&](uint32_t v) { return v == values.front(); });
}

struct Place {
  uint32_t node = 0;
  uint32_t local = 0;
};

class HierarchicalCommunicator final : public QueuedCommunicator {
 public:
  HierarchicalCommunicator(const GroupOptions& options, HierarchicalParts parts)
      : QueuedCommunicator(options.name, options.rank, options.members),
        parts_(std::move(parts)),
        store_(options.store),
        equal_(AllEqual(parts_.ranks_on_node)),
        place_(PlaceOf(options.rank)) {}
  ~HierarchicalCommunicator() override { Close(); }

  absl::string_view backend() const override { return "hierarchical"; }

  absl::StatusOr<std::unique_ptr<Allocation>> Allocate(size_t size_bytes) override {
    return parts_.local->Allocate(size_bytes);
  }

 protected:
  absl::Status Execute(const Operation& operation) override {
    if (operation.point_to_point()) return RunPointToPoint(operation);
    absl::Status status = RunCollective(operation);
    if (!status.ok()) {
      if (absl::IsDeadlineExceeded(status)) FindStalledRank(&status);
      // The caller may reuse its memory once the Work is done, so the inner operations must end
      // first.
      AbortParts(status);
      for (const std::shared_ptr<Work>& work : under_way_) work->Wait().IgnoreError();
    }
    under_way_.clear();
    return status;
  }

  void Interrupt(const absl::Status& failure) override { AbortParts(failure); }

 private:
  Communicator& local() { return *parts_.local; }
  Communicator& cross() { return *parts_.cross; }
  Communicator& world() { return *parts_.world; }
  bool leader() const { return place_.local == 0; }

  Place PlaceOf(uint32_t rank) const {
    Place place;
    while (rank >= parts_.ranks_on_node[place.node]) rank -= parts_.ranks_on_node[place.node++];
    place.local = rank;
    return place;
  }

  uint32_t FirstRankOf(uint32_t node) const {
    const auto begin = parts_.ranks_on_node.begin();
    return std::accumulate(begin, begin + node, 0u);
  }

  void AbortParts(const absl::Status& reason) {
    for (Communicator* part : {parts_.local.get(), parts_.cross.get(), parts_.world.get()}) {
      if (part != nullptr) part->Abort(reason);
    }
  }

  std::shared_ptr<Work> Track(std::shared_ptr<Work> work) {
    under_way_.push_back(work);
    return work;
  }

  absl::Status Run(std::shared_ptr<Work> work) { return Track(std::move(work))->Wait(); }

  std::byte* Scratch(size_t bytes) {
    if (scratch_.size() < bytes) scratch_.resize(bytes);
    return scratch_.data();
  }

  void FindStalledRank(absl::Status* status) const;
  absl::Status RunCollective(const Operation& operation);
  absl::Status RunPointToPoint(const Operation& operation);
  absl::Status RunAllReduce(const Operation& operation);
  absl::Status AllReduceBySlices(const Operation& operation);
  absl::Status AllReduceByLeaders(const Operation& operation);
  absl::Status RunReduceScatter(const Operation& operation);
  absl::Status RunAllGather(const Operation& operation);
  absl::Status RunBroadcast(const Operation& operation);
  absl::Status RunReduce(const Operation& operation);
  absl::Status RunBarrier();

  HierarchicalParts parts_;
  KeyStore* const store_;
  const bool equal_;
  const Place place_;
  // Used by the collectives' lane only.
  std::vector<std::shared_ptr<Work>> under_way_;
  std::vector<std::byte> scratch_;
};

// All groups time out at the same moment, and a CROSS peer may itself be waiting for its LOCAL
// neighbour. Each rank publishes the rank that it waits for and follows the published ranks to one
// that has published nothing.
void HierarchicalCommunicator::FindStalledRank(absl::Status* status) const {
  const absl::optional<uint32_t> waited_for = PeerRankOf(*status);
  if (store_ == nullptr || !waited_for.has_value()) return;
  const auto key = [](uint32_t job_rank) { return absl::StrCat("timed-out/", job_rank); };
  const uint32_t own = job_rank(rank());
  store_->Put(key(own), absl::StrCat(*waited_for)).IgnoreError();
  uint32_t suspect = *waited_for;
  for (int i = 0; i < kMaxReportsFollowed; ++i) {
    const absl::StatusOr<std::string> report = store_->Get(key(suspect), kReportTimeout);
    uint32_t next = 0;
    // A cycle means two ranks that wait for each other: the link between them failed, not a rank.
    if (!report.ok() || !absl::SimpleAtoi(*report, &next) || next == own) break;
    suspect = next;
  }
  if (suspect == *waited_for) return;
  *status = absl::DeadlineExceededError(absl::StrCat(
      status->message(), "; that rank waits for rank ", suspect, ", which has not responded"));
  SetPeerRank(suspect, status);
}

absl::Status HierarchicalCommunicator::RunPointToPoint(const Operation& operation) {
  return operation.kind == Operation::Kind::kSend
             ? world().Send(operation.send, operation.count, operation.type, operation.root)->Wait()
             : world()
                   .Recv(operation.recv, operation.count, operation.type, operation.root)
                   ->Wait();
}

absl::Status HierarchicalCommunicator::RunCollective(const Operation& operation) {
  const Operation& o = operation;
  switch (o.kind) {
    case Operation::Kind::kAllReduce:
      return RunAllReduce(o);
    case Operation::Kind::kReduceScatter:
      return RunReduceScatter(o);
    case Operation::Kind::kAllGather:
      return RunAllGather(o);
    case Operation::Kind::kBroadcast:
      return RunBroadcast(o);
    case Operation::Kind::kReduce:
      return RunReduce(o);
    case Operation::Kind::kGather:
      return Run(world().Gather(o.send, o.recv, o.count, o.type, o.root));
    case Operation::Kind::kScatter:
      return Run(world().Scatter(o.send, o.recv, o.count, o.type, o.root));
    case Operation::Kind::kAllToAll:
      return Run(world().AllToAll(o.send, o.recv, o.count, o.type));
    case Operation::Kind::kBarrier:
      return RunBarrier();
    case Operation::Kind::kSend:
    case Operation::Kind::kReceive:
      break;
  }
  return absl::InternalError("not a collective");
}

absl::Status HierarchicalCommunicator::RunAllReduce(const Operation& operation) {
  return equal_ && operation.count >= local().size() ? AllReduceBySlices(operation)
                                                     : AllReduceByLeaders(operation);
}

// In place in recv: each rank's slice is reduced at its final position. Elements that remain when
// the count is not a multiple of the ranks of a node are reduced through each node's first rank.
absl::Status HierarchicalCommunicator::AllReduceBySlices(const Operation& operation) {
  const size_t element = SizeOf(operation.type);
  const size_t ranks = local().size();
  const auto* const send = static_cast<const std::byte*>(operation.send);
  auto* const recv = static_cast<std::byte*>(operation.recv);
  const size_t tail = operation.count % ranks;
  const size_t divisible = operation.count - tail;
  const size_t chunk = std::max<size_t>(kPipelineBytes / element / ranks, 1) * ranks;

  struct Part {
    size_t begin;
    size_t slice;  // elements of each rank
    std::byte* own;
    std::shared_ptr<Work> work;
  };
  std::vector<Part> chunks;
  for (size_t begin = 0; begin < divisible; begin += chunk) {
    const size_t slice = std::min(chunk, divisible - begin) / ranks;
    std::byte* const own = recv + (begin + place_.local * slice) * element;
    chunks.push_back({begin, slice, own,
                      Track(local().ReduceScatter(send + begin * element, own, slice,
                                                  operation.type, operation.op))});
  }
  std::byte* const tail_recv = recv + divisible * element;
  std::shared_ptr<Work> tail_work;
  if (tail > 0) {
    tail_work = Track(local().Reduce(send + divisible * element, tail_recv, tail, operation.type,
                                     operation.op, 0));
  }
  for (Part& part : chunks) {
    RETURN_IF_ERROR(part.work->Wait());
    part.work =
        Track(cross().AllReduce(part.own, part.own, part.slice, operation.type, operation.op));
  }
  if (tail > 0) {
    RETURN_IF_ERROR(tail_work->Wait());
    if (leader()) {
      tail_work =
          Track(cross().AllReduce(tail_recv, tail_recv, tail, operation.type, operation.op));
    }
  }
  for (Part& part : chunks) {
    RETURN_IF_ERROR(part.work->Wait());
    part.work =
        Track(local().AllGather(part.own, recv + part.begin * element, part.slice, operation.type));
  }
  if (tail > 0) {
    RETURN_IF_ERROR(tail_work->Wait());
    tail_work = Track(local().Broadcast(tail_recv, tail, operation.type, 0));
  }
  for (const Part& part : chunks) RETURN_IF_ERROR(part.work->Wait());
  return tail > 0 ? tail_work->Wait() : absl::OkStatus();
}

absl::Status HierarchicalCommunicator::AllReduceByLeaders(const Operation& operation) {
  const size_t count = operation.count;
  RETURN_IF_ERROR(
      Run(local().Reduce(operation.send, operation.recv, count, operation.type, operation.op, 0)));
  if (leader()) {
    RETURN_IF_ERROR(Run(
        cross().AllReduce(operation.recv, operation.recv, count, operation.type, operation.op)));
  }
  return Run(local().Broadcast(operation.recv, count, operation.type, 0));
}

// Every rank all-reduces the whole input and keeps its slice: simple, and no more bytes between
// nodes than an AllReduce.
absl::Status HierarchicalCommunicator::RunReduceScatter(const Operation& operation) {
  Operation all = operation;
  all.count = operation.count * size();
  all.recv = Scratch(all.bytes());
  RETURN_IF_ERROR(RunAllReduce(all));
  if (operation.bytes() > 0) {
    std::memcpy(operation.recv, scratch_.data() + rank() * operation.bytes(), operation.bytes());
  }
  return absl::OkStatus();
}

absl::Status HierarchicalCommunicator::RunAllGather(const Operation& operation) {
  const size_t bytes = operation.bytes();
  auto* const recv = static_cast<std::byte*>(operation.recv);
  RETURN_IF_ERROR(Run(local().AllGather(operation.send, recv + FirstRankOf(place_.node) * bytes,
                                        operation.count, operation.type)));
  if (leader()) {
    for (uint32_t node = 0; node < parts_.ranks_on_node.size(); ++node) {
      RETURN_IF_ERROR(Run(cross().Broadcast(recv + FirstRankOf(node) * bytes,
                                            operation.count * parts_.ranks_on_node[node],
                                            operation.type, node)));
    }
  }
  return Run(local().Broadcast(recv, operation.count * size(), operation.type, 0));
}

absl::Status HierarchicalCommunicator::RunBroadcast(const Operation& operation) {
  const Place root = PlaceOf(operation.root);
  // The first rank of each node to have the data: with equal nodes, the ranks in the root's CROSS
  // group.
  const uint32_t first = equal_ ? root.local : 0;
  if (!equal_ && place_.node == root.node && root.local != first) {
    RETURN_IF_ERROR(
        Run(local().Broadcast(operation.recv, operation.count, operation.type, root.local)));
  }
  if (place_.local == first) {
    RETURN_IF_ERROR(
        Run(cross().Broadcast(operation.recv, operation.count, operation.type, root.node)));
  }
  if (!equal_ && place_.node == root.node && root.local != first) return absl::OkStatus();
  return Run(local().Broadcast(operation.recv, operation.count, operation.type, first));
}

absl::Status HierarchicalCommunicator::RunReduce(const Operation& operation) {
  const Place root = PlaceOf(operation.root);
  const uint32_t first = equal_ ? root.local : 0;
  const bool is_root = rank() == operation.root;
  // Only the root provides memory for the result.
  std::byte* const sums = Scratch(operation.bytes());
  RETURN_IF_ERROR(Run(
      local().Reduce(operation.send, sums, operation.count, operation.type, operation.op, first)));
  const bool via_leader = root.local != first;
  if (place_.local == first) {
    void* const recv = is_root ? operation.recv : static_cast<void*>(sums);
    RETURN_IF_ERROR(
        Run(cross().Reduce(sums, recv, operation.count, operation.type, operation.op, root.node)));
    if (via_leader && place_.node == root.node) {
      return Run(local().Send(sums, operation.count, operation.type, root.local));
    }
  }
  if (via_leader && is_root) {
    return Run(local().Recv(operation.recv, operation.count, operation.type, first));
  }
  return absl::OkStatus();
}

absl::Status HierarchicalCommunicator::RunBarrier() {
  RETURN_IF_ERROR(Run(local().Barrier()));
  if (leader()) RETURN_IF_ERROR(Run(cross().Barrier()));
  return Run(local().Barrier());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> CreateHierarchical(const GroupOptions& options,
                                                                 HierarchicalParts parts) {
  const std::vector<uint32_t>& nodes = parts.ranks_on_node;
  const uint64_t ranks = std::accumulate(nodes.begin(), nodes.end(), uint64_t{0});
  if (nodes.empty() || std::count(nodes.begin(), nodes.end(), 0u) > 0 || ranks != options.size ||
      options.rank >= ranks || options.members.size() != ranks) {
    return absl::InvalidArgumentError(absl::StrCat("hierarchical: rank ", options.rank, " of ",
                                                   options.size, " does not match nodes with ",
                                                   ranks, " ranks in total"));
  }
  if (parts.local == nullptr || parts.world == nullptr ||
      (parts.cross == nullptr && (AllEqual(nodes) || parts.local->rank() == 0)) ||
      (parts.cross != nullptr && parts.cross->size() != nodes.size())) {
    return absl::InvalidArgumentError(
        "hierarchical: the local and cross communicators do not match the group's nodes");
  }
  return {std::make_unique<HierarchicalCommunicator>(options, std::move(parts))};
}

}  // namespace muster::collectives

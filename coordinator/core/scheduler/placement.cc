// How queued jobs come to their nodes and devices.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/proto_time.h"
#include "coordinator/core/core_impl.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

constexpr char kNoOthers[] =
    ", and there are not enough others; resources.share_device: true lets them";

}  // namespace

void Core::Impl::RunQueue() {
  if (!std::exchange(capacity_changed_, false)) return;
  while (!queue_.empty() && TryPlace(jobs_.at(queue_.head()))) {
  }
  for (const JobId& id : queue_.InOrder()) {
    Job& job = jobs_.at(id);
    if (job.restarting) Requeue(job);
  }
}

std::vector<v1::NodePlacement> Core::Impl::Place(const v1::Resources& resources, Offers offers,
                                                 bool share_device) const {
  Shape shape = ShapeOf(resources);
  shape.share_device = share_device;
  std::vector<v1::NodePlacement> placements;
  for (const std::string& kind : SlotKinds(resources)) {
    std::vector<FreeNode> nodes;
    for (const auto& [name, node] : nodes_) {
      std::optional<FreeNode> offer =
          offers == Offers::kNow ? node.Offer(kind) : node.IdleOffer(kind);
      if (offer.has_value()) nodes.push_back(std::move(*offer));
    }
    placements = MapRanks(shape, std::move(nodes));
    if (!placements.empty()) break;
  }
  return placements;
}

std::string Core::Impl::SharingText(const v1::Resources& resources, Offers offers) const {
  if (resources.share_device() || !OffersShareDevices()) return "";
  std::map<std::string, std::string> ranks;  // by UUID
  for (const v1::NodePlacement& placement : Place(resources, offers, /*share_device=*/true)) {
    const Node& node = nodes_.at(NodeName(placement.node()));
    for (const v1::RankRecord& rank : placement.ranks()) {
      for (const uint32_t slot : rank.slots()) {
        const std::string uuid = node.UuidOf(slot);
        if (uuid.empty()) continue;
        std::string who = absl::StrCat("rank ", rank.rank(), " (node ", placement.node(), ")");
        const auto [other, first] = ranks.emplace(uuid, who);
        if (first) continue;
        return absl::StrCat(other->second, " and ", who, " would be on the same GPU, ",
                            node.NameOfSlot(slot));
      }
    }
  }
  return "";
}

bool Core::Impl::OffersShareDevices() const {
  absl::flat_hash_set<absl::string_view> uuids;
  for (const auto& [name, node] : nodes_) {
    for (const v1::Slot& slot : node.hello.slots()) {
      if (!slot.uuid().empty() && !uuids.insert(slot.uuid()).second) return true;
    }
  }
  return false;
}

bool Core::Impl::RefuseSharing(Job& job) {
  const v1::Resources& resources = job.job().spec().resources();
  const std::string sharing = SharingText(resources, Offers::kIdle);
  if (sharing.empty()) return false;
  if (!Place(resources, Offers::kIdle, /*share_device=*/false).empty()) return false;
  // What a coordinator that was started again knows only by their records may still come.
  SteadyTime all_known = now_.steady;
  for (const auto& [name, node] : nodes_) {
    if (!node.seen) all_known = std::max(all_known, node.last_heard + options_.lease);
  }
  if (all_known > now_.steady) {
    timers_.Set({TimerKey::Kind::kPlacement, ""}, all_known);
    return false;
  }
  job.restarting = false;
  Finish(job, v1::FAILED, reasons::kDeviceShared, absl::StrCat(sharing, kNoOthers),
         /*exit_code=*/1);
  return true;
}

bool Core::Impl::TryPlace(Job& job) {
  const v1::Resources& resources = job.job().spec().resources();
  std::vector<v1::NodePlacement> placements =
      Place(resources, Offers::kNow, resources.share_device());
  if (placements.empty()) return RefuseSharing(job);

  v1::Job& proto = *job.record.mutable_job();
  const uint64_t generation = proto.generation() + 1;
  v1::GenerationRecord record;
  record.set_job_id(proto.job_id());
  record.set_generation(generation);
  std::vector<std::string> names;
  uint32_t world_size = 0;
  for (v1::NodePlacement& placement : placements) {
    names.push_back(placement.node());
    world_size += placement.ranks_size();
    Node& node = nodes_.at(NodeName(placement.node()));
    for (const v1::RankRecord& rank : placement.ranks()) {
      node.Occupy({job.id(), Generation(generation), rank.rank()},
                  {rank.slots().begin(), rank.slots().end()});
    }
    *record.add_nodes() = std::move(placement);
  }
  record.set_world_size(world_size);

  stats_.OnQueueWait(now_.steady - job.state_since);
  queue_.Remove(job.id());
  job.restarting = false;
  proto.set_generation(generation);
  if (!proto.has_start_time()) *proto.mutable_start_time() = ToProto(now_.wall);
  proto.clear_summary();
  proto.clear_progress();
  *job.record.mutable_generation_start_time() = ToProto(now_.wall);
  job.record.clear_outcome();
  job.record.clear_outcome_reason();
  job.record.clear_outcome_message();
  job.record.clear_restart_after_stop();
  job.record.clear_suspected_failure();
  job.record.clear_stop_grace_period();
  job.record.clear_abort_on_stop();
  job.generation.emplace(std::move(record), now_.steady);
  active_.insert(job.id());
  MarkGeneration(job);
  const std::string where =
      absl::StrCat("generation ", generation, ": ", world_size,
                   world_size == 1 ? " rank" : " ranks", " on ", absl::StrJoin(names, ", "));
  AddEvent(job, events::kPlaced, where);
  Transition(job, v1::STARTING, reasons::kRendezvous, where);
  ArmRendezvous(job, v1::STARTED);
  ArmTimeLimit(job);
  for (int node_rank = 0; node_rank < job.generation->record.nodes_size(); ++node_rank) {
    MarkPlacement(job, node_rank);
    SyncNode(job, node_rank, /*launch=*/true);
  }
  return true;
}

void Core::Impl::Requeue(Job& job) {
  job.restarting = false;
  const v1::FirstFailure& failure = job.job().first_failure();
  std::vector<std::string> blockers;
  for (const v1::WaitedFor& blocker : Blockers(job)) {
    blockers.push_back(blocker.node().empty()
                           ? blocker.reason()
                           : absl::StrCat(blocker.node(), ": ", blocker.reason()));
    if (blockers.size() == 4) break;
  }
  std::string message =
      absl::StrCat(failure.message(), "; to restart it ", absl::StrJoin(blockers, "; "));
  AddEvent(job, events::kRequeued, message);
  Transition(job, v1::QUEUED, failure.reason(), std::move(message));
}

}  // namespace muster::core

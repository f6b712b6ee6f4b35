#include "process_group/process_group.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "collectives/factory.h"
#include "common/limits.h"
#include "common/network/network.h"
#include "common/status.h"
#include "process_group/environment.h"
#include "process_group/rendezvous.h"

namespace muster {
namespace {

using collectives::Communicator;
using collectives::WorldOptions;

// Aborts all registered communicators when a rank is lost. Thread-safe.
class PeerLossWatch {
 public:
  void Lose(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (status_.ok()) status_ = status;
    for (Communicator* const communicator : communicators_) communicator->Abort(status_);
  }
  void Add(Communicator* communicator) {
    absl::MutexLock lock(&mutex_);
    communicators_.insert(communicator);
    if (!status_.ok()) communicator->Abort(status_);
  }
  void Remove(Communicator* communicator) {
    absl::MutexLock lock(&mutex_);
    communicators_.erase(communicator);
  }

 private:
  absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::set<Communicator*> communicators_ ABSL_GUARDED_BY(mutex_);
};

class WatchedCommunicator {
 public:
  WatchedCommunicator(std::shared_ptr<PeerLossWatch> watch,
                      std::unique_ptr<Communicator> communicator)
      : watch_(std::move(watch)), communicator_(std::move(communicator)) {
    watch_->Add(communicator_.get());
  }
  ~WatchedCommunicator() { watch_->Remove(communicator_.get()); }
  WatchedCommunicator(const WatchedCommunicator&) = delete;
  WatchedCommunicator& operator=(const WatchedCommunicator&) = delete;

  Communicator& get() const { return *communicator_; }

 private:
  const std::shared_ptr<PeerLossWatch> watch_;
  const std::unique_ptr<Communicator> communicator_;
};

class SubGroup final : public Group {
 public:
  SubGroup(std::shared_ptr<PeerLossWatch> watch, std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(watch), std::move(communicator)) {}
  Communicator& communicator() const override { return communicator_.get(); }

 private:
  const WatchedCommunicator communicator_;
};

class WorldGroup final : public ProcessGroup {
 public:
  WorldGroup(const ProcessGroupOptions& options, Address address)
      : options_(options), address_(std::move(address)) {}

  absl::Status Connect();

  Communicator& communicator() const override { return communicator_->get(); }
  uint32_t local_rank() const override { return local_rank_; }
  uint32_t local_size() const override { return local_size_; }
  absl::StatusOr<std::unique_ptr<Group>> NewGroup(const std::string& name,
                                                  std::vector<uint32_t> ranks) override;

 private:
  absl::Status Join();
  // Sets the local rank, local size and addresses. `node_of_rank` holds the node of each rank.
  absl::Status Place(const std::vector<uint32_t>& node_of_rank);

  const ProcessGroupOptions options_;
  const Address address_;
  const std::shared_ptr<PeerLossWatch> watch_ = std::make_shared<PeerLossWatch>();
  WorldOptions world_;
  uint32_t local_rank_ = 0;
  uint32_t local_size_ = 1;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::unique_ptr<WatchedCommunicator> communicator_;  // destroyed before rendezvous_
};

absl::Status WorldGroup::Connect() {
  world_.backend = options_.backend;
  world_.rank = options_.rank;
  world_.world_size = options_.world_size;
  world_.connect_timeout = options_.connect_timeout;
  world_.timeout = options_.timeout;
  world_.ranks_on_node = {1};
  if (options_.world_size > 1) RETURN_IF_ERROR(Join());
  ASSIGN_OR_RETURN(auto communicator, collectives::CreateWorldCommunicator(world_));
  communicator_ = std::make_unique<WatchedCommunicator>(watch_, std::move(communicator));
  return absl::OkStatus();
}

absl::Status WorldGroup::Join() {
  ProcessGroupMember member;
  member.rank = options_.rank;
  member.world_size = options_.world_size;
  member.run = options_.run;
  member.host = options_.host.empty() ? NetworkIdentity() : options_.host;
  if (options_.rank == 0) {
    ASSIGN_OR_RETURN(rendezvous_, HostRendezvous(address_, member));
  } else {
    rendezvous_ = ReachRendezvous(address_, member);
  }
  ASSIGN_OR_RETURN(
      const std::vector<uint32_t> node_of_rank,
      rendezvous_->Join(options_.connect_timeout,
                        [watch = watch_](const absl::Status& status) { watch->Lose(status); }));
  world_.store = rendezvous_.get();
  return Place(node_of_rank);
}

absl::Status WorldGroup::Place(const std::vector<uint32_t>& node_of_rank) {
  const uint32_t node = node_of_rank[options_.rank];
  local_size_ = static_cast<uint32_t>(std::count(node_of_rank.begin(), node_of_rank.end(), node));
  local_rank_ = static_cast<uint32_t>(
      std::count(node_of_rank.begin(), node_of_rank.begin() + options_.rank, node));
  // Nodes are numbered by their first rank, so a sorted vector means that each node's ranks are
  // consecutive.
  if (std::is_sorted(node_of_rank.begin(), node_of_rank.end())) {
    world_.ranks_on_node.assign(node_of_rank.back() + 1, 0);
    for (const uint32_t each : node_of_rank) ++world_.ranks_on_node[each];
  }
  world_.interface_address = options_.interface_address;
  if (!world_.interface_address.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(world_.interface_address, OwnAddressTowards(address_));
  // Explicitly named hosts are not checked.
  if (local_size_ < options_.world_size && options_.host.empty() &&
      IsLoopback(world_.interface_address)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", options_.rank, " reaches rank 0 (", options_.address, ") from ",
        world_.interface_address,
        ", at which other machines cannot reach this rank: use an address of rank 0 on the shared "
        "network"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Group>> WorldGroup::NewGroup(const std::string& name,
                                                            std::vector<uint32_t> ranks) {
  ASSIGN_OR_RETURN(auto communicator,
                   collectives::CreateGroupCommunicator(world_, absl::StrCat("group-", name), 0,
                                                        std::move(ranks)));
  return {std::make_unique<SubGroup>(watch_, std::move(communicator))};
}

}  // namespace

std::shared_ptr<Work> Group::WrongSize(absl::string_view what, size_t send, size_t recv) {
  communicator().Abort(absl::InvalidArgumentError(absl::StrCat(
      what, " among ", size(), " ranks: sends ", send, " elements and receives ", recv)));
  // An aborted communicator returns its status from every operation.
  return communicator().Barrier();
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::Init(
    const ProcessGroupOptions& options) {
  if (options.world_size == 0 || options.world_size > limits::kRanksPerJob ||
      options.rank >= options.world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "invalid rank ", options.rank, " of world size ", options.world_size,
        "; world size must be 1 to ", limits::kRanksPerJob, " and rank less than world size"));
  }
  Address address;
  if (options.world_size > 1) {
    ASSIGN_OR_RETURN(address, ParseTcpAddress(options.address));
  }
  auto group = std::make_unique<WorldGroup>(options, std::move(address));
  RETURN_IF_ERROR(group->Connect());
  return {std::move(group)};
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::InitFromEnvironment(
    const ProcessGroupOptions& options) {
  ASSIGN_OR_RETURN(const ProcessGroupOptions found, FromEnvironment(options));
  return Init(found);
}

}  // namespace muster

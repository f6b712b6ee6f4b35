#include "collectives/factory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/gloo/gloo.h"
#include "collectives/hierarchical/hierarchical.h"
#include "collectives/loopback.h"
#include "collectives/nccl/nccl.h"
#include "collectives/peer_status.h"
#include "collectives/shm/shm.h"
#include "collectives/single_rank.h"
#include "common/limits.h"
#include "common/random_id.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

CreateBackend create_mpi = nullptr;

absl::Status CheckGroup(const GroupOptions& options) {
  if (options.size == 0 || options.rank >= options.size || options.members.size() != options.size) {
    return absl::InvalidArgumentError(absl::StrCat(options.name, ": invalid group: rank ",
                                                   options.rank, " of ", options.size, " with ",
                                                   options.members.size(), " members"));
  }
  if (options.size > 1 && (options.store == nullptr || options.id.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.name, ": a group of several ranks requires a key store and an id"));
  }
  return absl::OkStatus();
}

// The nodes and ranks of a job, and the groups among them.
class World {
 public:
  static absl::StatusOr<World> Make(const WorldOptions& options);

  // Each function returns the group with its id, which this rank either draws or receives.
  absl::StatusOr<GroupOptions> WorldGroup() const { return AllMembers("WORLD"); }
  absl::StatusOr<GroupOptions> DeviceGroup() const { return AllMembers("DEVICES"); }
  absl::StatusOr<GroupOptions> LocalGroup() const { return NodeMembers("LOCAL"); }
  absl::StatusOr<GroupOptions> NodeGroup() const { return NodeMembers("NODE"); }
  absl::StatusOr<GroupOptions> CrossGroup() const;
  absl::StatusOr<GroupOptions> NamedGroup(absl::string_view name, uint32_t index,
                                          std::vector<uint32_t> members) const;

  const std::vector<uint32_t>& ranks_on_node() const { return ranks_on_node_; }
  bool one_node() const { return ranks_on_node_.size() == 1; }
  bool one_rank_each() const { return ranks_on_node_.size() == options_.world_size; }
  bool has_levels() const { return !one_node() && !one_rank_each(); }
  // Whether this rank is in a CROSS group: every rank if all nodes have the same number of ranks,
  // else the first rank of each node.
  bool crosses() const { return equal_ || local_rank_ == 0; }
  bool equal() const { return equal_; }
  bool on_one_node(const std::vector<uint32_t>& ranks) const;

 private:
  explicit World(const WorldOptions& options) : options_(options) {}
  absl::StatusOr<GroupOptions> AllMembers(absl::string_view name) const;
  absl::StatusOr<GroupOptions> NodeMembers(absl::string_view name) const;
  absl::StatusOr<GroupOptions> Group(absl::string_view name, uint32_t index,
                                     std::vector<uint32_t> members) const;

  WorldOptions options_;
  std::vector<uint32_t> ranks_on_node_;
  std::vector<uint32_t> first_rank_;  // by node
  uint32_t node_ = 0;
  uint32_t local_rank_ = 0;
  bool equal_ = true;
};

absl::StatusOr<World> World::Make(const WorldOptions& options) {
  World world(options);
  const std::vector<uint32_t>& given = options.ranks_on_node;
  const bool positive = !given.empty() && std::count(given.begin(), given.end(), 0u) == 0;
  if (!positive || options.world_size == 0 || options.world_size > limits::kRanksPerJob) {
    return absl::InvalidArgumentError(
        absl::StrCat("invalid world: ", options.world_size, " ranks on ", given.size(),
                     " nodes; each node needs at least one rank, and a job has at most ",
                     limits::kRanksPerJob, " ranks"));
  }
  if (given.size() == 1 && options.world_size % given.front() == 0) {
    world.ranks_on_node_.assign(options.world_size / given.front(), given.front());
  } else {
    world.ranks_on_node_ = given;
  }
  uint64_t ranks = 0;
  for (uint32_t node = 0; node < world.ranks_on_node_.size(); ++node) {
    if (ranks <= options.rank) {
      world.node_ = node;
      world.local_rank_ = options.rank - static_cast<uint32_t>(ranks);
    }
    world.first_rank_.push_back(static_cast<uint32_t>(ranks));
    ranks += world.ranks_on_node_[node];
    world.equal_ = world.equal_ && world.ranks_on_node_[node] == world.ranks_on_node_[0];
  }
  if (ranks != options.world_size || options.rank >= ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", options.rank, " of ", options.world_size, " in nodes with ", ranks, " ranks"));
  }
  return world;
}

absl::StatusOr<GroupOptions> World::Group(absl::string_view name, uint32_t index,
                                          std::vector<uint32_t> members) const {
  GroupOptions group;
  group.name = std::string(name);
  group.size = static_cast<uint32_t>(members.size());
  const auto own = std::find(members.begin(), members.end(), options_.rank);
  group.rank = static_cast<uint32_t>(own - members.begin());
  group.members = std::move(members);
  group.store = options_.store;
  group.interface_address = options_.interface_address;
  group.connect_timeout = options_.connect_timeout;
  group.timeout = options_.timeout;
  group.nccl = options_.nccl;
  group.cancelled = options_.cancelled;
  if (group.size == 1) return group;
  if (options_.store == nullptr) {
    return absl::InvalidArgumentError("a world of several ranks requires a key store");
  }
  const std::string key = absl::StrCat("unique-id/", name, "/", index);
  if (group.rank == 0) {
    group.id = RandomHexId(128);
    RETURN_IF_ERROR(options_.store->Put(key, group.id));
    return group;
  }
  absl::StatusOr<std::string> id = options_.store->Get(key, options_.connect_timeout);
  if (absl::IsDeadlineExceeded(id.status())) {
    return PeersMissing(group.name, {group.members[0]}, options_.connect_timeout);
  }
  RETURN_IF_ERROR(id.status());
  group.id = *std::move(id);
  return group;
}

absl::StatusOr<GroupOptions> World::AllMembers(absl::string_view name) const {
  std::vector<uint32_t> members(options_.world_size);
  std::iota(members.begin(), members.end(), 0u);
  return Group(name, 0, std::move(members));
}

absl::StatusOr<GroupOptions> World::NodeMembers(absl::string_view name) const {
  std::vector<uint32_t> members(ranks_on_node_[node_]);
  std::iota(members.begin(), members.end(), first_rank_[node_]);
  return Group(name, node_, std::move(members));
}

absl::StatusOr<GroupOptions> World::CrossGroup() const {
  std::vector<uint32_t> members;
  for (const uint32_t first : first_rank_) members.push_back(first + local_rank_);
  return Group("CROSS", local_rank_, std::move(members));
}

absl::StatusOr<GroupOptions> World::NamedGroup(absl::string_view name, uint32_t index,
                                               std::vector<uint32_t> members) const {
  std::vector<uint32_t> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  const bool member = std::binary_search(sorted.begin(), sorted.end(), options_.rank);
  if (!distinct || !member || sorted.back() >= options_.world_size) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": rank ", options_.rank, " of ",
                                                   options_.world_size, " is not among the ranks ",
                                                   absl::StrJoin(members, ", ")));
  }
  for (const absl::string_view taken : {"WORLD", "DEVICES", "NODE", "LOCAL", "CROSS"}) {
    if (name == taken) {
      return absl::InvalidArgumentError(absl::StrCat("group name ", name, " is reserved"));
    }
  }
  return Group(name, index, std::move(members));
}

bool World::on_one_node(const std::vector<uint32_t>& ranks) const {
  const uint32_t first = first_rank_[node_];
  return std::all_of(ranks.begin(), ranks.end(), [this, first](uint32_t rank) {
    return rank >= first && rank - first < ranks_on_node_[node_];
  });
}

absl::StatusOr<std::unique_ptr<Communicator>> CreateHierarchicalWorld(const World& world) {
  HierarchicalParts parts;
  parts.ranks_on_node = world.ranks_on_node();
  ASSIGN_OR_RETURN(const GroupOptions all, world.WorldGroup());
  ASSIGN_OR_RETURN(const GroupOptions local, world.LocalGroup());
  ASSIGN_OR_RETURN(parts.local, CreateCommunicator("shm", local));
  if (world.crosses()) {
    ASSIGN_OR_RETURN(const GroupOptions cross, world.CrossGroup());
    ASSIGN_OR_RETURN(parts.cross, CreateCommunicator("gloo", cross));
  }
  // Connections are opened on first use.
  ASSIGN_OR_RETURN(parts.world, CreateGloo(all, GlooConnect::kOnUse));
  return CreateHierarchical(all, std::move(parts));
}

absl::Status CheckHierarchical(const WorldOptions& options) {
  for (const absl::string_view word : {"auto", "on", "off"}) {
    if (options.hierarchical == word) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "hierarchical: unknown value '", options.hierarchical, "'; must be auto, on or off"));
}

// NCCL builds its own hierarchy within and between nodes; `hierarchical: on` replaces it with
// Muster's.
absl::StatusOr<std::unique_ptr<Communicator>> CreateNcclWorld(const World& world,
                                                              const WorldOptions& options,
                                                              GroupOptions group) {
  const bool on = options.hierarchical == "on";
  if (on && !world.equal()) {
    return absl::InvalidArgumentError(
        "hierarchical: on requires the same number of ranks on every node");
  }
  if (on && world.has_levels()) group.levels_of = world.ranks_on_node().front();
  return CreateCommunicator("nccl", group);
}

}  // namespace

bool RegisterMpi(CreateBackend create) {
  create_mpi = create;
  return true;
}

absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(absl::string_view backend,
                                                                 const GroupOptions& options) {
  RETURN_IF_ERROR(CheckGroup(options));
  if (backend == "nccl") return CreateNccl(options);  // allocates device memory, even for one rank
  if (backend != "shm" && backend != "gloo" && backend != "mpi" && backend != "loopback") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown backend '", backend, "'; must be shm, gloo, mpi, nccl or loopback"));
  }
  if (options.size == 1) return {CreateSingleRank(options)};
  if (backend == "shm") return CreateShm(options);
  if (backend == "gloo") return CreateGloo(options, GlooConnect::kAtOnce);
  if (backend == "mpi") {
    if (create_mpi != nullptr) return create_mpi(options);
    return absl::FailedPreconditionError(
        "backend mpi: this program is not linked with MPI; add //collectives/mpi to its deps");
  }
  return CreateLoopback(options);
}

absl::StatusOr<std::unique_ptr<Communicator>> CreateWorldCommunicator(const WorldOptions& options) {
  ASSIGN_OR_RETURN(const World world, World::Make(options));
  std::string backend = options.backend;
  // NCCL builds its own hierarchy within and between nodes.
  if (backend == "auto" && options.nccl != nullptr) backend = "nccl";
  RETURN_IF_ERROR(CheckHierarchical(options));
  if (backend == "nccl") {
    ASSIGN_OR_RETURN(GroupOptions group, world.WorldGroup());
    return CreateNcclWorld(world, options, std::move(group));
  }
  const bool hierarchy = backend == "auto" || backend == "hierarchical";
  if (hierarchy && options.hierarchical != "off" && world.has_levels()) {
    return CreateHierarchicalWorld(world);
  }
  // Flat, without a hierarchy.
  if (hierarchy) backend = world.one_node() ? "shm" : "gloo";
  if (backend == "shm" && !world.one_node()) {
    return absl::InvalidArgumentError(
        absl::StrCat("backend shm cannot span the job's ", world.ranks_on_node().size(), " nodes"));
  }
  ASSIGN_OR_RETURN(const GroupOptions group, world.WorldGroup());
  return CreateCommunicator(backend, group);
}

absl::StatusOr<std::unique_ptr<Communicator>> CreateDeviceCommunicator(
    const WorldOptions& options) {
  ASSIGN_OR_RETURN(const World world, World::Make(options));
  RETURN_IF_ERROR(CheckHierarchical(options));
  ASSIGN_OR_RETURN(GroupOptions group, world.DeviceGroup());
  return CreateNcclWorld(world, options, std::move(group));
}

absl::StatusOr<std::unique_ptr<Communicator>> CreateNodeCommunicator(const WorldOptions& options) {
  ASSIGN_OR_RETURN(const World world, World::Make(options));
  ASSIGN_OR_RETURN(const GroupOptions group, world.NodeGroup());
  const bool named = options.backend != "auto" && options.backend != "hierarchical";
  if (named) return CreateCommunicator(options.backend, group);
  return CreateCommunicator(options.nccl != nullptr ? "nccl" : "shm", group);
}

absl::StatusOr<std::unique_ptr<Communicator>> CreateGroupCommunicator(
    const WorldOptions& options, absl::string_view name, uint32_t index,
    std::vector<uint32_t> members) {
  ASSIGN_OR_RETURN(const World world, World::Make(options));
  const bool one_node = world.on_one_node(members);
  if (options.backend == "shm" && !one_node) {
    return absl::InvalidArgumentError(
        absl::StrCat("backend shm cannot span group ", name, ", whose ranks are on several nodes"));
  }
  ASSIGN_OR_RETURN(const GroupOptions group, world.NamedGroup(name, index, std::move(members)));
  const bool named = options.backend != "auto" && options.backend != "hierarchical";
  if (named) return CreateCommunicator(options.backend, group);
  if (options.nccl != nullptr) return CreateCommunicator("nccl", group);
  return CreateCommunicator(one_node ? "shm" : "gloo", group);
}

}  // namespace muster::collectives

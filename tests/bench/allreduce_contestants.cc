#include "tests/bench/allreduce_contestants.h"

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/factory.h"
#include "collectives/nccl/nccl.h"
#include "collectives/nccl/testing/fake_nccl_parts.h"
#include "common/status.h"
#include "kernels/cuda/device.h"
#include "kernels/device.h"

namespace muster::bench {
namespace {

using collectives::Allocation;
using collectives::Communicator;
using collectives::DataType;
using collectives::KeyStore;
using collectives::NcclParts;
using collectives::ReduceOp;
using collectives::Work;
using collectives::WorldOptions;

// A key store with a prefix, so that each contestant can put the keys of a generation.
class PrefixedStore final : public KeyStore {
 public:
  PrefixedStore(KeyStore* store, std::string name) : store_(store), name_(std::move(name)) {}

  absl::Status Put(absl::string_view key, absl::string_view value) override {
    return store_->Put(absl::StrCat(name_, "/", key), value);
  }
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Duration timeout) override {
    return store_->Get(absl::StrCat(name_, "/", key), timeout);
  }

 private:
  KeyStore* const store_;
  const std::string name_;
};

// A GPU and the NCCL library.
struct Gpu {
  std::unique_ptr<kernels::Device> device;
  NcclParts parts;
};

absl::StatusOr<std::unique_ptr<Gpu>> OpenGpu(const ContestOptions& options, uint32_t rank) {
  // Set before the library reads it.
  if (options.share_gpu) setenv("NCCL_HOSTID", absl::StrCat("rank-", rank).c_str(), 1);
  auto gpu = std::make_unique<Gpu>();
  ASSIGN_OR_RETURN(gpu->parts.library, collectives::OpenNcclLibrary(options.fake_nccl));
  if (!options.fake_nccl.empty()) {
    gpu->parts.make_stream = [] { return collectives::MakeHostStream(); };
    return gpu;
  }
  ASSIGN_OR_RETURN(gpu->device,
                   kernels::OpenCudaDevice(options.share_gpu ? 0 : static_cast<int>(rank)));
  gpu->parts.make_stream = [device = gpu->device.get()] { return device->MakeStream(); };
  return gpu;
}

class List final : public Contestants {
 public:
  List(const ContestOptions& options, uint32_t rank, KeyStore* store)
      : options_(options), rank_(rank), store_(store) {}
  // Allocations are destroyed before their communicators.
  ~List() override { allocations_.clear(); }

  const std::vector<Contestant>& list() const override { return list_; }

  absl::Status MakeCpu();
  absl::Status MakeNccl();

 private:
  size_t count() const { return options_.max_bytes / sizeof(float); }
  // Creates a communicator of all ranks, with its own store prefix.
  absl::StatusOr<Communicator*> World(const std::string& name, const std::string& backend,
                                      const std::string& hierarchical);
  absl::Status AddOwnMemory(const std::string& name, Communicator* communicator);
  void Add(const std::string& name, Communicator* communicator, float* data);
  void AddGlooItself();

  const ContestOptions options_;
  const uint32_t rank_;
  KeyStore* const store_;
  std::unique_ptr<Gpu> gpu_;
  std::vector<std::unique_ptr<KeyStore>> stores_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<std::unique_ptr<Allocation>> allocations_;
  std::vector<float> heap_;
  std::vector<Contestant> list_;
};

absl::StatusOr<Communicator*> List::World(const std::string& name, const std::string& backend,
                                          const std::string& hierarchical) {
  WorldOptions world;
  world.backend = backend;
  world.hierarchical = hierarchical;
  world.rank = rank_;
  world.world_size = options_.ranks;
  world.ranks_on_node = {options_.ranks / options_.nodes};
  stores_.push_back(std::make_unique<PrefixedStore>(store_, name));
  world.store = stores_.back().get();
  world.interface_address = "127.0.0.1";
  world.nccl = gpu_ == nullptr ? nullptr : &gpu_->parts;
  ASSIGN_OR_RETURN(communicators_.emplace_back(), collectives::CreateWorldCommunicator(world));
  return communicators_.back().get();
}

void List::Add(const std::string& name, Communicator* communicator, float* data) {
  // Operations on a GPU stream run one after the other, so only the last is waited for. On a CPU
  // the waiting thread does the work.
  const bool in_stream = gpu_ != nullptr;
  list_.push_back({name, [=](size_t count, int repeats) -> absl::Status {
                     std::shared_ptr<Work> last;
                     for (int i = 0; i < repeats; ++i) {
                       last = communicator->AllReduce(data, data, count, DataType::kFloat32,
                                                      ReduceOp::kSum);
                       if (!in_stream) RETURN_IF_ERROR(last->Wait());
                     }
                     return last->Wait();
                   }});
}

absl::Status List::AddOwnMemory(const std::string& name, Communicator* communicator) {
  ASSIGN_OR_RETURN(allocations_.emplace_back(), communicator->Allocate(options_.max_bytes));
  Add(name, communicator, static_cast<float*>(allocations_.back()->data()));
  return absl::OkStatus();
}

void List::AddGlooItself() {
  auto context = std::make_shared<::gloo::rendezvous::Context>(static_cast<int>(rank_),
                                                               static_cast<int>(options_.ranks));
  ::gloo::rendezvous::FileStore store(options_.gloo_directory);
  auto device = ::gloo::transport::tcp::CreateDevice(::gloo::transport::tcp::attr("127.0.0.1"));
  context->connectFullMesh(store, device);
  list_.push_back(
      {"gloo's own", [context, data = heap_.data()](size_t count, int repeats) {
         for (int i = 0; i < repeats; ++i) {
           ::gloo::AllreduceOptions options(context);
           options.setAlgorithm(::gloo::AllreduceOptions::Algorithm::RING);
           options.setOutput(data, count);
           options.setReduceFunction(
               static_cast<void (*)(void*, const void*, const void*, size_t)>(&::gloo::sum<float>));
           ::gloo::allreduce(options);
         }
         return absl::OkStatus();
       }});
}

absl::Status List::MakeCpu() {
  heap_.assign(count(), 0.0f);
  AddGlooItself();
  ASSIGN_OR_RETURN(Communicator* const gloo, World("gloo", "gloo", "auto"));
  Add("our gloo", gloo, heap_.data());
  if (options_.nodes > 1) {
    ASSIGN_OR_RETURN(Communicator* const levels, World("levels", "auto", "on"));
    return AddOwnMemory("hierarchical", levels);
  }
  ASSIGN_OR_RETURN(Communicator* const shm, World("shm", "shm", "auto"));
  Add("shm, heap", shm, heap_.data());
  return AddOwnMemory("shm", shm);
}

absl::Status List::MakeNccl() {
  ASSIGN_OR_RETURN(gpu_, OpenGpu(options_, rank_));
  ASSIGN_OR_RETURN(Communicator* const plain, World("plain", "nccl", "off"));
  RETURN_IF_ERROR(AddOwnMemory("nccl", plain));
  if (options_.nodes == 1) return absl::OkStatus();
  ASSIGN_OR_RETURN(Communicator* const levels, World("levels", "nccl", "on"));
  return AddOwnMemory("hierarchical", levels);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Contestants>> MakeContestants(const ContestOptions& options,
                                                             uint32_t rank, KeyStore* store) {
  auto contestants = std::make_unique<List>(options, rank, store);
  RETURN_IF_ERROR(options.backend == "nccl" ? contestants->MakeNccl() : contestants->MakeCpu());
  return {std::move(contestants)};
}

}  // namespace muster::bench

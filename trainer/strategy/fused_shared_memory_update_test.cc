// Compares FusedSharedMemoryUpdate with an all-reduce followed by a full update on every rank.
#include "trainer/strategy/fused_shared_memory_update.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "collectives/factory.h"
#include "collectives/testing.h"
#include "common/status.h"
#include "gtest/gtest.h"
#include "kernels/aligned_floats.h"
#include "trainer/loop/testing.h"
#include "trainer/models/model.h"

namespace muster::train {
namespace {

using collectives::Communicator;

// Several blocks per rank, with odd parameter sizes.
absl::StatusOr<std::unique_ptr<nn::Plan>> CompileMlp() {
  v1::ModelSpec spec;
  spec.set_name("mlp");
  for (const uint32_t width : {331, 77}) spec.add_hidden(width);
  ASSIGN_OR_RETURN(const nn::Graph graph, nn::BuildModel(spec, {12, 12, 1}, 10));
  nn::CompileOptions options;
  options.max_batch = 1;
  return nn::Compile(graph, options);
}

// One rank's training with either update.
struct Trained {
  std::unique_ptr<HostBucketReducer> reducer;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<TestUpdates> updates;
  std::unique_ptr<FusedSharedMemoryUpdate> sharded;  // null: all-reduce and full update
  kernels::AlignedFloats own_parameters;
  float* parameters = nullptr;
};

absl::StatusOr<Trained> Make(bool sharded, const v1::OptimizerSpec& spec, nn::Plan* plan,
                             Communicator* world) {
  Trained trained;
  HostBucketReducerOptions options;
  options.first_bucket_bytes = 1000;
  options.bucket_bytes = 50000;
  options.sums = !sharded;
  ASSIGN_OR_RETURN(trained.reducer, HostBucketReducer::Create(world, plan, options));
  ASSIGN_OR_RETURN(trained.optimizer, Optimizer::Create(spec, plan->parameters()));
  trained.updates = std::make_unique<TestUpdates>(UpdateRulesOf(spec));
  const size_t elements = plan->parameter_elements();
  if (sharded) {
    ASSIGN_OR_RETURN(trained.sharded,
                     FusedSharedMemoryUpdate::Create(world, trained.reducer.get(),
                                                     trained.optimizer.get(), elements));
    if (trained.sharded == nullptr) return absl::InternalError("no shared memory");
    trained.parameters = trained.sharded->parameters();
  } else {
    trained.own_parameters = kernels::MakeAlignedFloats(elements);
    trained.parameters = trained.own_parameters.get();
  }
  std::mt19937 random(5);
  for (size_t i = 0; i < elements; ++i) {
    trained.parameters[i] = std::normal_distribution<float>()(random);
  }
  return trained;
}

absl::Status Step(Trained& trained, const std::vector<float>& gradients, uint32_t rank,
                  uint64_t step) {
  trained.reducer->Begin({1.5 * (rank + 1), 1.0 * rank}, /*accumulated=*/false);
  std::copy(gradients.begin(), gradients.end(), trained.reducer->gradients());
  trained.reducer->Ready(gradients.size() / 2);
  RETURN_IF_ERROR(trained.reducer->Finish());
  const double learning_rate = 0.1 / static_cast<double>(step + 1);
  const float* const sums = trained.reducer->gradients();
  const kernels::UpdateScalars* const scalars =
      trained.updates->Decide(learning_rate, step, sums, gradients.size());
  if (trained.sharded != nullptr) return trained.sharded->Run(scalars);
  trained.optimizer->Step(scalars, trained.parameters, sums);
  return absl::OkStatus();
}

absl::Status ExpectEqual(const float* a, const float* b, size_t count, const std::string& what) {
  if (std::memcmp(a, b, count * sizeof(float)) == 0) return absl::OkStatus();
  return absl::InternalError(what + " differ");
}

// Expects both updates to give bit-identical results after each of several steps.
absl::Status Compare(const v1::OptimizerSpec& spec, Communicator* world) {
  ASSIGN_OR_RETURN(const auto plan, CompileMlp());
  ASSIGN_OR_RETURN(Trained summed, Make(/*sharded=*/false, spec, plan.get(), world));
  ASSIGN_OR_RETURN(Trained sharded, Make(/*sharded=*/true, spec, plan.get(), world));
  const size_t elements = plan->parameter_elements();
  std::mt19937 random(world->rank() + 11);
  for (uint64_t step = 0; step < 4; ++step) {
    std::vector<float> gradients(elements);
    for (float& gradient : gradients) gradient = std::normal_distribution<float>()(random);
    RETURN_IF_ERROR(Step(summed, gradients, world->rank(), step));
    RETURN_IF_ERROR(Step(sharded, gradients, world->rank(), step));
    RETURN_IF_ERROR(ExpectEqual(sharded.parameters, summed.parameters, elements, "parameters"));
    if (sharded.reducer->totals().loss_sum != summed.reducer->totals().loss_sum ||
        sharded.reducer->totals().correct != summed.reducer->totals().correct) {
      return absl::InternalError("losses differ");
    }
  }
  float* in_first_slot = nullptr;
  for (const size_t slot : {0, 0, 1}) {
    ASSIGN_OR_RETURN(float* const states, sharded.sharded->CopyStates(slot));
    if (slot == 0) in_first_slot = states;
    // The copy in the other slot remains as its user left it.
    if (slot == 1 && world->rank() == 0 && *in_first_slot != -1.0f) {
      return absl::InternalError("the copy in the second slot replaced the one in the first");
    }
    for (size_t i = 0; world->rank() == 0 && i < sharded.optimizer->states().size(); ++i) {
      RETURN_IF_ERROR(ExpectEqual(states + i * elements, summed.optimizer->states()[i].values.get(),
                                  elements, sharded.optimizer->states()[i].name));
      // The caller may change them.
      std::fill_n(states + i * elements, elements, -1.0f);
    }
    RETURN_IF_ERROR(world->Barrier()->Wait());
  }
  // Another step after gathering starts from the same states.
  const std::vector<float> ones(elements, 1);
  RETURN_IF_ERROR(Step(summed, ones, world->rank(), 4));
  RETURN_IF_ERROR(Step(sharded, ones, world->rank(), 4));
  return ExpectEqual(sharded.parameters, summed.parameters, elements, "final parameters");
}

v1::OptimizerSpec Sgd() {
  v1::OptimizerSpec spec;
  spec.set_name("sgd");
  spec.set_momentum(0.9);
  spec.set_nesterov(true);
  spec.set_weight_decay(0.01);
  spec.set_exclude_norm_and_bias(true);  // to have several ranges
  return spec;
}

v1::OptimizerSpec AdamW() {
  v1::OptimizerSpec spec;
  spec.set_name("adamw");
  spec.set_beta1(0.9);
  spec.set_beta2(0.99);
  spec.set_epsilon(1e-8);
  spec.set_weight_decay(0.1);
  return spec;
}

// Runs each rank on its own thread, connected by `backend`.
void OnEachRank(uint32_t ranks, const std::string& backend,
                const std::function<absl::Status(Communicator*)>& run) {
  collectives::FileKeyStore keys;
  const auto results = collectives::RunRankThreads(ranks, [&](uint32_t rank) -> absl::Status {
    collectives::WorldOptions options;
    options.backend = backend;
    options.rank = rank;
    options.world_size = ranks;
    options.ranks_on_node = {ranks};
    options.store = &keys;
    options.interface_address = "127.0.0.1";
    options.timeout = absl::Seconds(10);
    ASSIGN_OR_RETURN(const auto world, collectives::CreateWorldCommunicator(options));
    return run(world.get());
  });
  for (uint32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(results[rank], "") << "rank " << rank;
}

TEST(FusedSharedMemoryUpdateTest, EqualsAllReduceAndFullUpdate) {
  for (const uint32_t ranks : {2u, 3u, 5u}) {
    for (const v1::OptimizerSpec& spec : {Sgd(), AdamW()}) {
      SCOPED_TRACE(spec.name() + " on " + std::to_string(ranks));
      OnEachRank(ranks, "shm", [&](Communicator* world) { return Compare(spec, world); });
    }
  }
}

TEST(FusedSharedMemoryUpdateTest, RequiresSharedMemory) {
  OnEachRank(2, "gloo", [](Communicator* world) -> absl::Status {
    ASSIGN_OR_RETURN(const auto plan, CompileMlp());
    const absl::Status made = Make(/*sharded=*/true, Sgd(), plan.get(), world).status();
    return made.message() == "no shared memory"
               ? absl::OkStatus()
               : absl::InternalError("expected 'no shared memory'");
  });
}

TEST(FusedSharedMemoryUpdateTest, ReturnsErrorWhenPeerIsLost) {
  OnEachRank(2, "shm", [](Communicator* world) -> absl::Status {
    ASSIGN_OR_RETURN(const auto plan, CompileMlp());
    ASSIGN_OR_RETURN(Trained trained, Make(/*sharded=*/true, Sgd(), plan.get(), world));
    const std::vector<float> gradients(plan->parameter_elements(), 1);
    RETURN_IF_ERROR(Step(trained, gradients, world->rank(), 0));
    trained.reducer->Begin({}, /*accumulated=*/false);
    RETURN_IF_ERROR(trained.reducer->Finish());
    if (world->rank() == 1) {
      world->Abort(absl::AbortedError("gone"));
      return absl::OkStatus();
    }
    const kernels::UpdateScalars scalars{.learning_rate = 0.1};
    return trained.sharded->Run(&scalars).ok() ? absl::InternalError("expected an error")
                                               : absl::OkStatus();
  });
}

}  // namespace
}  // namespace muster::train

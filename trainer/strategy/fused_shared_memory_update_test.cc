// Compares FusedSharedMemoryUpdate with an all-reduce followed by a full update on every rank.
#include "trainer/strategy/fused_shared_memory_update.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "collectives/factory.h"
#include "collectives/reduce.h"
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
                             Communicator* world, bool shares_states = true) {
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
                     FusedSharedMemoryUpdate::Create(world, {.reducer = trained.reducer.get(),
                                                             .optimizer = trained.optimizer.get(),
                                                             .elements = elements,
                                                             .shares_states = shares_states}));
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
absl::Status Compare(const v1::OptimizerSpec& spec, Communicator* world, bool shares_states) {
  ASSIGN_OR_RETURN(const auto plan, CompileMlp());
  ASSIGN_OR_RETURN(Trained summed, Make(/*sharded=*/false, spec, plan.get(), world));
  ASSIGN_OR_RETURN(Trained sharded, Make(/*sharded=*/true, spec, plan.get(), world, shares_states));
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

absl::StatusOr<std::unique_ptr<Communicator>> Connect(uint32_t rank, uint32_t ranks,
                                                      const std::string& backend,
                                                      collectives::FileKeyStore& keys,
                                                      absl::Duration timeout = absl::Seconds(10)) {
  collectives::WorldOptions options;
  options.backend = backend;
  options.rank = rank;
  options.world_size = ranks;
  options.ranks_on_node = {ranks};
  options.store = &keys;
  options.interface_address = "127.0.0.1";
  options.timeout = timeout;
  return collectives::CreateWorldCommunicator(options);
}

// Runs each rank on its own thread, connected by `backend`.
void OnEachRank(uint32_t ranks, const std::string& backend,
                const std::function<absl::Status(Communicator*)>& run) {
  collectives::FileKeyStore keys;
  const auto results = collectives::RunRankThreads(ranks, [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto world, Connect(rank, ranks, backend, keys));
    return run(world.get());
  });
  for (uint32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(results[rank], "") << "rank " << rank;
}

TEST(FusedSharedMemoryUpdateTest, EqualsAllReduceAndFullUpdate) {
  for (const uint32_t ranks : {2u, 3u, 5u}) {
    for (const v1::OptimizerSpec& spec : {Sgd(), AdamW()}) {
      SCOPED_TRACE(spec.name() + " on " + std::to_string(ranks));
      OnEachRank(ranks, "shm", [&](Communicator* world) {
        return Compare(spec, world, /*shares_states=*/ranks != 3);
      });
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

// One rank of a training in which rank 1 gets a signal at some time, and the others complete the
// state. NOT_FOUND if this rank cannot complete it.
class InterruptedRank {
 public:
  static constexpr uint32_t kRanks = 3;

  InterruptedRank(const v1::OptimizerSpec& spec, Communicator* world)
      : spec_(spec), world_(*world), updates_(UpdateRulesOf(spec)) {}

  // Trains until a step fails.
  absl::Status Run(int signal, absl::Duration signal_after) {
    ASSIGN_OR_RETURN(plan_, CompileMlp());
    ASSIGN_OR_RETURN(trained_, Make(/*sharded=*/true, spec_, plan_.get(), &world_));
    ASSIGN_OR_RETURN(reference_, Optimizer::Create(spec_, plan_->parameters()));
    expected_.assign(trained_.parameters, trained_.parameters + plan_->parameter_elements());
    RETURN_IF_ERROR(world_.Barrier()->Wait());
    if (world_.rank() == 1) {
      std::thread([=] {
        absl::SleepFor(signal_after);
        kill(getpid(), signal);
      }).detach();
    }
    for (uint64_t step = 0;; ++step) {
      const absl::Status status = Step(step);
      if (!status.ok()) return Complete(step);
      UpdateExpected(step);
    }
  }

 private:
  std::vector<float> Gradients(uint32_t rank, uint64_t step) const {
    std::vector<float> gradients(expected_.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = static_cast<float>((i * 7 + rank * 31 + step * 13) % 101) / 101 - 0.4f;
    }
    return gradients;
  }

  absl::Status Step(uint64_t step) {
    trained_.reducer->Begin({}, /*accumulated=*/false);
    const std::vector<float> gradients = Gradients(world_.rank(), step);
    std::copy(gradients.begin(), gradients.end(), trained_.reducer->gradients());
    RETURN_IF_ERROR(trained_.reducer->Finish());
    scalars_ = trained_.updates->Decide(Rate(step), step, gradients.data(), gradients.size());
    return trained_.sharded->Run(scalars_);
  }

  // The same update by this rank alone.
  void UpdateExpected(uint64_t step) {
    std::vector<float> sum(expected_.size());
    std::vector<std::vector<float>> gradients;
    std::vector<const void*> addends;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      gradients.push_back(Gradients(rank, step));
      addends.push_back(gradients.back().data());
    }
    void* to = sum.data();
    collectives::ReduceArrays(addends, absl::MakeConstSpan(&to, 1), sum.size(),
                              collectives::DataType::kFloat32, collectives::ReduceOp::kSum);
    reference_->Step(updates_.Decide(Rate(step), step, sum.data(), sum.size()), expected_.data(),
                     sum.data());
  }

  absl::Status Complete(uint64_t step) {
    const std::optional<bool> updated = trained_.sharded->Complete(scalars_);
    if (!updated.has_value()) return absl::NotFoundError("incomplete");
    if (*updated) UpdateExpected(step);
    const size_t elements = expected_.size();
    RETURN_IF_ERROR(ExpectEqual(trained_.parameters, expected_.data(), elements, "parameters"));
    for (size_t i = 0; i < reference_->states().size(); ++i) {
      RETURN_IF_ERROR(ExpectEqual(trained_.optimizer->states()[i].values.get(),
                                  reference_->states()[i].values.get(), elements, "states"));
    }
    return trained_.sharded->Run(scalars_).ok()
               ? absl::InternalError("updated a state that was left")
               : absl::OkStatus();
  }

  static double Rate(uint64_t step) { return 0.1 / static_cast<double>(step + 1); }

  const v1::OptimizerSpec spec_;
  Communicator& world_;
  TestUpdates updates_;
  std::unique_ptr<nn::Plan> plan_;
  Trained trained_;
  std::unique_ptr<Optimizer> reference_;
  std::vector<float> expected_;
  const kernels::UpdateScalars* scalars_ = nullptr;
};

// Also of a rank that is stopped in an update, and could go on at any time.
TEST(FusedSharedMemoryUpdateTest, SurvivorsCompleteTheUpdate) {
  std::mt19937 random(3);
  int complete = 0, interrupted = 0;
  for (int round = 0; round < 30; ++round) {
    const v1::OptimizerSpec spec = round % 2 == 0 ? Sgd() : AdamW();
    const int signal = round % 6 == 5 ? SIGSTOP : SIGKILL;
    const auto after = absl::Microseconds(random() % 60'000);
    collectives::FileKeyStore keys;
    const auto results =
        collectives::RunRankProcesses(InterruptedRank::kRanks, [&](uint32_t rank) -> absl::Status {
          ASSIGN_OR_RETURN(const auto world, Connect(rank, InterruptedRank::kRanks, "shm", keys,
                                                     /*timeout=*/absl::Milliseconds(700)));
          return InterruptedRank(spec, world.get()).Run(signal, after);
        });
    if (results[1] != "signal 9") continue;  // a peer timed out before the signal
    ++interrupted;
    for (const uint32_t rank : {0u, 2u}) {
      EXPECT_TRUE(results[rank].empty() || results[rank] == "NOT_FOUND: incomplete")
          << "round " << round << ": " << results[rank];
    }
    if (results[0].empty() || results[2].empty()) ++complete;
  }
  EXPECT_GE(interrupted, 25);
  // If only the lost rank had begun the update, no survivor has its scalars.
  EXPECT_GE(complete, interrupted * 9 / 10);
  RecordProperty("interrupted", interrupted);
  RecordProperty("complete", complete);
  std::printf("%d of %d completed\n", complete, interrupted);
}

}  // namespace
}  // namespace muster::train

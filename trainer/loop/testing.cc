#include "trainer/loop/testing.h"

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/loopback.h"
#include "gtest/gtest.h"

namespace muster::train {

std::vector<std::unique_ptr<collectives::Communicator>> MakeLoopbackGroup(uint32_t size) {
  static std::atomic<int> groups{0};
  collectives::GroupOptions options;
  options.name = "WORLD";
  options.id = absl::StrCat("test-", groups++);
  options.size = size;
  for (uint32_t rank = 0; rank < size; ++rank) options.members.push_back(rank);

  std::vector<std::unique_ptr<collectives::Communicator>> communicators(size);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&communicators, options, rank]() mutable {
      options.rank = rank;
      auto communicator = collectives::CreateLoopback(options);
      EXPECT_TRUE(communicator.ok()) << communicator.status();
      if (communicator.ok()) communicators[rank] = *std::move(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return communicators;
}

std::vector<ProcessGroups> MakeLoopbackWorld(uint32_t size) {
  std::vector<ProcessGroups> groups(size);
  auto communicators = MakeLoopbackGroup(size);
  for (uint32_t rank = 0; rank < size; ++rank) groups[rank].world = std::move(communicators[rank]);
  return groups;
}

namespace {

std::unique_ptr<UpdateController> MakeControl(kernels::UpdateRules rules) {
  rules.scales_loss = true;
  auto control = UpdateController::Create(rules, kernels::CpuDevice(), /*counted=*/1,
                                          /*accumulation_steps=*/1);
  EXPECT_TRUE(control.ok()) << control.status();
  return *std::move(control);
}

}  // namespace

TestUpdates::TestUpdates(const kernels::UpdateRules& rules)
    : clips_(rules.clip_norm > 0), control_(MakeControl(rules)) {}

const kernels::UpdateScalars* TestUpdates::Decide(double learning_rate, uint64_t step,
                                                  const float* gradients, size_t count,
                                                  double loss_scale) {
  // Treats all gradients as finite.
  const bool finite = true;
  control_->SetLossScale({.scale = loss_scale});
  EXPECT_TRUE(control_->Begin(step, learning_rate).ok());
  control_->Decide(gradients, count, &finite);
  control_->Finish();
  const auto record = control_->Read(/*wait=*/true);
  EXPECT_TRUE(record.ok() && record->has_value());
  gradient_norm_ = (*record)->gradient_norm;
  return control_->scalars();
}

std::optional<double> TestUpdates::gradient_norm() const {
  return clips_ ? std::optional(gradient_norm_) : std::nullopt;
}

}  // namespace muster::train

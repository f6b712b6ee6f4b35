#include "trainer/strategy/dp/dp.h"

#include <string>
#include <utility>

#include "common/status.h"
#include "trainer/device_status.h"

namespace muster::train {

DataParallel::DataParallel(const StrategyContext& context, std::unique_ptr<Replicas> replicas,
                           std::unique_ptr<Optimizer> optimizer, ModelState state)
    : DataParallelStrategy(context, &replicas->plan(0), std::move(optimizer), std::move(state),
                           replicas.get()),
      devices_(std::move(replicas)),
      busy_statistics_(devices_->size()) {}

absl::StatusOr<std::unique_ptr<Strategy>> DataParallel::Create(
    const StrategyContext& context, std::unique_ptr<Replicas> replicas,
    std::unique_ptr<Optimizer> optimizer) {
  ASSIGN_OR_RETURN(ModelState state,
                   ModelState::Create(&replicas->plan(0), optimizer.get(),
                                      /*averages=*/context.spec->has_ema(), replicas.get()));
  kernels::ThreadPool* const threads = &replicas->threads();
  std::unique_ptr<DataParallel> strategy(
      new DataParallel(context, std::move(replicas), std::move(optimizer), std::move(state)));
  RETURN_IF_ERROR(strategy->Build(CreateReplicatedPath, threads));
  return strategy;
}

absl::Status DataParallel::Step(const data::Batch& batch, uint64_t step, StepTimes& times) {
  const PhaseTimes before = TimesSoFar();
  const std::vector<absl::Duration> busy_before = BusySoFar();
  RETURN_IF_ERROR(DataParallelStrategy::Step(batch, step, times));
  PhaseTimes spent = TimesSoFar();
  for (size_t i = 0; i < spent.size(); ++i) spent[i] -= before[i];
  phase_statistics_.Add(spent);
  std::vector<absl::Duration> busy = BusySoFar();
  for (size_t i = 0; i < busy.size(); ++i) busy[i] -= busy_before[i];
  busy_statistics_.Add(busy);
  return absl::OkStatus();
}

DataParallel::PhaseTimes DataParallel::TimesSoFar() const {
  const ReplicaTimes& times = devices_->times();
  return {times.scatter,      times.replicate,        times.forward,  times.gather,
          phases().loss,      times.scatter_gradient, times.backward, times.reduce,
          phases().reduction, phases().update};
}

std::vector<absl::Duration> DataParallel::BusySoFar() const {
  std::vector<absl::Duration> busy;
  for (size_t i = 0; i < devices_->size(); ++i) busy.push_back(devices_->busy(i));
  return busy;
}

void DataParallel::DescribeRank(v1::TrainSummary& own) const {
  const std::vector<absl::Duration> busy = busy_statistics_.SteadyMedian();
  for (size_t i = 0; i < devices_->size(); ++i) {
    v1::DeviceUse& use = AddDevice(own, devices_->plan(i), busy[i]);
    if (devices_->shares_parameters(i)) use.set_parameter_bytes(0);
    if (i == 0) use.set_gathered_bytes(devices_->gathered_bytes());
  }
}

void DataParallel::MergeRanks(const std::vector<v1::TrainSummary>&, v1::TrainSummary& summary) {
  const std::vector<absl::Duration> medians = phase_statistics_.TypicalMedian();
  for (size_t i = 0; i < kPhases.size(); ++i) {
    v1::StepPart& phase = *summary.add_parts();
    phase.set_name(kPhases[i]);
    phase.set_seconds(absl::ToDoubleSeconds(medians[i]));
  }
}

namespace {

class DpSetup final : public StrategySetup {
 public:
  DpSetup(std::unique_ptr<Replicas> replicas, std::unique_ptr<Optimizer> optimizer)
      : replicas_(std::move(replicas)), optimizer_(std::move(optimizer)) {}

  std::string layout_digest() const override { return replicas_->plan(0).layout_digest(); }
  absl::StatusOr<std::unique_ptr<Strategy>> Connect(const StrategyContext& context) override {
    return DataParallel::Create(context, std::move(replicas_), std::move(optimizer_));
  }

 private:
  std::unique_ptr<Replicas> replicas_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpDp(const ModelSetup& setup) {
  auto replicas = Replicas::Compile(setup.graph, setup.compiling,
                                    {.devices = setup.devices, .views = setup.views});
  RETURN_IF_ERROR(WithDeviceExitCode(replicas.status()));
  ASSIGN_OR_RETURN(auto optimizer, CreateOptimizer(setup, (*replicas)->plan(0)));
  return std::make_unique<DpSetup>(*std::move(replicas), std::move(optimizer));
}

}  // namespace muster::train

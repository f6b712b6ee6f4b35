#include "trainer/rank/explain_plan.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "kernels/cuda/counting/counting_device.h"
#include "kernels/device_floats.h"
#include "kernels/philox.h"
#include "trainer/data/dataset.h"
#include "trainer/data/sampler.h"
#include "trainer/exit_code.h"
#include "trainer/graph/compiled_plan.h"
#include "trainer/graph/launch_counter.h"
#include "trainer/graph/plan_report.h"
#include "trainer/graph/plan_timer.h"
#include "trainer/loop/spec_plan.h"
#include "trainer/models/model.h"
#include "trainer/objective/objective.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/update_controller.h"
#include "trainer/precision/training_precision.h"
#include "trainer/rank/rank_device.h"
#include "trainer/strategy/create_strategy.h"
#include "trainer/strategy/process_groups.h"

namespace muster::rank {
namespace {

// Warm-up steps, which build kernels and touch memory.
constexpr size_t kWarmupSteps = 2;
constexpr size_t kFewestSteps = 3;
constexpr size_t kMostSteps = 50;

absl::StatusOr<data::DatasetInfo> InfoOf(const v1::DatasetSpec& spec) {
  ASSIGN_OR_RETURN(data::DatasetInfo info, data::FindDataset(spec.name()));
  if (info.classes > 0) return info;
  const auto folder = data::OpenDataset({.name = spec.name(), .path = spec.path()},
                                        data::Split::kTrain, /*cache_dir=*/"");
  if (folder.ok()) return (*folder)->info();
  return train::WithExitCode(
      Annotate(folder.status(), "cannot count the classes (one per folder of the dataset)"),
      train::kExitNoInput);
}

absl::StatusOr<nn::Graph> BuildGraph(const v1::TrainSpec& spec) {
  ASSIGN_OR_RETURN(const data::DatasetInfo info, InfoOf(spec.dataset()));
  nn::ModelHead head;
  head.classes = info.classes;
  if (spec.objective().name() == "nt_xent") {
    head.projection.emplace(spec.objective().projection().begin(),
                            spec.objective().projection().end());
  }
  return nn::BuildModel(spec.model(), {spec.image_size(), spec.image_size(), info.channels}, head);
}

// State for the steps of a rank without peers and data.
struct Step {
  std::unique_ptr<nn::CompiledPlan> plan;
  nn::PlanUse use;
  train::ProcessGroups groups;
  std::unique_ptr<train::Objective> objective;
  std::unique_ptr<train::Optimizer> optimizer;
  std::unique_ptr<train::UpdateController> control;
};

absl::StatusOr<Step> MakeStep(const v1::JobSpec& job, uint32_t ranks, kernels::Device& device) {
  const v1::TrainSpec& spec = job.train();
  Step step;
  ASSIGN_OR_RETURN(const train::TrainingPrecision precision, train::PrecisionOf(spec));
  ASSIGN_OR_RETURN(nn::CompileOptions options, train::CompileOptionsOf(job, ranks));
  options.device = &device;
  step.use.views = train::ViewsOf(spec.objective());
  // Plan of the whole model for one micro-batch.
  const uint32_t micro_batches = train::BatchDivisionOf(job, ranks).micro_batches;
  step.use.accumulation_steps = spec.accumulation_steps() * micro_batches;
  options.max_batch = static_cast<uint32_t>(data::LargestShare(options.max_batch, micro_batches));
  step.use.samples = options.max_batch;
  ASSIGN_OR_RETURN(const nn::Graph graph, BuildGraph(spec));
  ASSIGN_OR_RETURN(step.plan, nn::CompiledPlan::Make(graph, options));

  // A world of one rank.
  ASSIGN_OR_RETURN(step.groups,
                   train::ProcessGroups::Create({.backend = "loopback", .ranks_on_node = {1}},
                                                {.local = true, .devices = false}));
  const auto output_width = static_cast<int64_t>(step.plan->logits(1).size());
  ASSIGN_OR_RETURN(step.objective,
                   train::Objective::Create(spec.objective(), step.groups, step.use.samples,
                                            output_width, device));
  ASSIGN_OR_RETURN(step.optimizer,
                   train::Optimizer::Create(spec.optimizer(), step.plan->parameters(),
                                            {.round_to = precision.weights, .device = &device}));
  ASSIGN_OR_RETURN(step.control,
                   train::UpdateController::Create(train::UpdateRulesOf(spec.optimizer()), device,
                                                   /*counted=*/1, /*accumulation_steps=*/1));
  return step;
}

// Fills the batch with pixels around zero, like normalized images, and cycling labels.
void FillBatch(const Step& step, uint64_t seed) {
  const nn::ImageShape& shape = step.plan->operations().front()->input()->shape;
  const int64_t elements = step.use.samples * shape.height * shape.width * shape.channels;
  const kernels::PhiloxKey key = kernels::MakePhiloxKey(seed);
  std::vector<float> input(elements);
  for (int64_t i = 0; i < elements; ++i) {
    const auto counter = static_cast<uint32_t>(i / 4);
    const uint32_t word = kernels::Philox4x32({counter, 0, 0, 0}, key)[i % 4];
    input[i] = 4 * kernels::Uniform01(word) - 2;
  }
  const auto classes = static_cast<int32_t>(step.plan->logits(1).size());
  std::vector<int32_t> labels(step.use.samples);
  for (uint32_t sample = 0; sample < step.use.samples; ++sample) {
    labels[sample] = static_cast<int32_t>(sample) % classes;
  }
  kernels::Device& device = step.plan->device();
  device.CopyToDevice(step.plan->input(), input.data(), input.size() * sizeof(float));
  device.CopyToDevice(step.plan->labels(), labels.data(), labels.size() * sizeof(int32_t));
}

// Runs training steps on arrays that it allocates and binds to the plan.
class StepRunner {
 public:
  static absl::StatusOr<StepRunner> Create(const Step* step, uint64_t seed) {
    nn::CompiledPlan& plan = *step->plan;
    const auto allocate = [&](size_t count) {
      return kernels::DeviceFloats::Create(plan.device(), count, "parameters and gradients");
    };
    StepRunner runner(step, seed);
    ASSIGN_OR_RETURN(runner.parameters_, allocate(plan.parameter_elements()));
    ASSIGN_OR_RETURN(runner.gradients_, allocate(plan.parameter_elements()));
    ASSIGN_OR_RETURN(runner.buffers_, allocate(plan.buffer_elements()));
    plan.Bind(runner.parameters_.get(), runner.gradients_.get(), runner.buffers_.get());
    return runner;
  }

  // `phases` observes the plan; its Objective and Optimizer run the phase that they are given.
  template <typename Phases>
  absl::Status Run(uint64_t number, Phases& phases) const {
    const Step& step = *step_;
    nn::CompiledPlan& plan = *step.plan;
    const uint64_t step_samples = uint64_t{step.use.samples} * step.use.accumulation_steps;
    absl::Status status;
    for (uint32_t i = 0; i < step.use.accumulation_steps; ++i) {
      plan.Forward(step.use.samples, /*training=*/true, {.seed = seed_, .step = number});
      phases.Objective([&] {
        status.Update(
            step.objective->Compute(plan, step.use.samples, step_samples, /*training=*/true)
                .status());
      });
      // Gradients are reported as ready, as to a reducer.
      plan.Backward(step.use.samples, [](size_t) {});
    }
    phases.Optimizer([&] {
      // A learning rate of zero does the same work and keeps the weights realistic.
      status.Update(step.control->Begin(number, /*learning_rate=*/0));
      step.control->Decide(gradients_.get(), plan.parameter_elements(), /*finite=*/nullptr);
      step.optimizer->Step(step.control->scalars(), parameters_.get(), gradients_.get());
      step.control->Finish();
      status.Update(step.control->Read(/*wait=*/true).status());
    });
    return status;
  }

 private:
  StepRunner(const Step* step, uint64_t seed) : step_(step), seed_(seed) {}

  const Step* step_;
  uint64_t seed_;
  kernels::DeviceFloats parameters_;
  kernels::DeviceFloats gradients_;
  kernels::DeviceFloats buffers_;
};

// The phases of a step that nothing observes.
struct Unobserved {
  template <typename Phase>
  void Objective(const Phase& phase) {
    phase();
  }
  template <typename Phase>
  void Optimizer(const Phase& phase) {
    phase();
  }
};

absl::Status TimeSteps(const Step& step, uint64_t seed, absl::Duration budget,
                       v1::PlanReport& report) {
  ASSIGN_OR_RETURN(const StepRunner runner, StepRunner::Create(&step, seed));
  step.plan->Initialize(seed);
  FillBatch(step, seed);
  uint64_t number = 0;
  Unobserved warm_up;
  while (number < kWarmupSteps) RETURN_IF_ERROR(runner.Run(number++, warm_up));
  nn::PlanTimer timer(step.plan.get());
  const SteadyTime start = Now().steady;
  while (timer.steps() < kFewestSteps ||
         (timer.steps() < kMostSteps && Now().steady - start < budget)) {
    timer.BeginStep();
    RETURN_IF_ERROR(runner.Run(number++, timer));
    timer.EndStep();
  }
  nn::AddTimes(timer, report);
  return absl::OkStatus();
}

// Compiles the plan for `model` and counts the launches of one step.
absl::Status CountLaunches(const v1::JobSpec& spec, const ExplainPlanOptions& options,
                           const kernels::GpuModel& model, kernels::DataType compute,
                           v1::PlanReport& report) {
  const std::unique_ptr<kernels::Device> device = kernels::MakeCountingDevice(model);
  ASSIGN_OR_RETURN(const Step step, MakeStep(spec, options.ranks, *device));
  ASSIGN_OR_RETURN(const StepRunner runner, StepRunner::Create(&step, spec.train().seed()));
  nn::LaunchCounter counter(step.plan.get());
  RETURN_IF_ERROR(runner.Run(/*number=*/0, counter));
  nn::AddWork(counter, &model, compute,
              options.kernels ? nn::WorkDetail::kKernels : nn::WorkDetail::kPhases, report);
  return absl::OkStatus();
}

absl::StatusOr<v1::PlanReport> ExplainUnmarked(const v1::JobSpec& spec,
                                               const ExplainPlanOptions& options) {
  ASSIGN_OR_RETURN(const Step step, MakeStep(spec, options.ranks, *options.device));
  v1::PlanReport report = nn::DescribePlan(*step.plan, step.use);
  report.set_ranks(options.ranks);
  ASSIGN_OR_RETURN(const train::TrainingPrecision precision, train::PrecisionOf(spec.train()));
  report.set_device(kernels::NameFor(*options.device, precision.plan.compute));
  const size_t parameters = step.plan->parameter_elements();
  const uint32_t sharers = spec.train().strategy().shard_optimizer() ? options.ranks : 1;
  const size_t states = step.optimizer->states().size() * data::LargestShare(parameters, sharers);
  report.set_parameter_bytes((2 * parameters + states + step.plan->buffer_elements()) *
                             sizeof(float));
  if (options.time) {
    RETURN_IF_ERROR(TimeSteps(step, spec.train().seed(), options.time_budget, report));
  }
  if (options.gpu_model != nullptr) {
    RETURN_IF_ERROR(
        CountLaunches(spec, options, *options.gpu_model, precision.plan.compute, report));
  }
  return report;
}

struct Flags {
  ExplainPlanOptions options;
  std::string device;  // cpu, cuda or the name of a GpuModel
};

bool IsDevice(absl::string_view name) {
  return name == "cpu" || name == "cuda" ||
         absl::c_any_of(kernels::GpuModels(),
                        [&](const kernels::GpuModel& model) { return model.name == name; });
}

absl::StatusOr<Flags> ParseFlags(const std::vector<std::string>& flags) {
  Flags parsed;
  ExplainPlanOptions& options = parsed.options;
  for (const std::string& flag : flags) {
    absl::string_view value = flag;
    if (flag == "--time") {
      options.time = true;
    } else if (flag == "--kernels") {
      options.kernels = true;
    } else if (absl::ConsumePrefix(&value, "--device=") && IsDevice(value)) {
      parsed.device = std::string(value);
    } else if (!absl::ConsumePrefix(&value, "--ranks=") ||
               !absl::SimpleAtoi(value, &options.ranks) || options.ranks == 0) {
      return absl::InvalidArgumentError(absl::StrCat("muster-rank: unknown flag ", flag));
    }
  }
  return parsed;
}

// Opens the GPU to plan for; null for the CPU.
absl::StatusOr<std::unique_ptr<kernels::Device>> ChooseGpu(const std::string& device,
                                                           const v1::JobSpec& spec) {
  const bool wanted = device.empty() ? spec.resources().device() == "gpu" : device == "cuda";
  if (!wanted) return nullptr;
  absl::StatusOr<std::unique_ptr<kernels::Device>> gpu = OpenGpu(NumericsOf(spec.train()));
  if (!gpu.ok() && device.empty()) return nullptr;
  return gpu;
}

absl::StatusOr<v1::PlanReport> Answer(const std::vector<std::string>& flags, std::istream& in) {
  ASSIGN_OR_RETURN(Flags parsed, ParseFlags(flags));
  v1::JobSpec spec;
  if (!spec.ParseFromIstream(&in)) {
    return absl::DataLossError("muster-rank: standard input is not a serialized JobSpec");
  }
  if (!spec.has_train()) {
    return absl::DataLossError("muster-rank: the spec is not a train job's");
  }
  std::unique_ptr<kernels::Device> device;
  parsed.options.gpu_model = kernels::FindGpuModel(parsed.device);
  if (parsed.options.gpu_model != nullptr) {
    if (parsed.options.time) {
      return absl::InvalidArgumentError("--time needs a GPU: use --device=cuda");
    }
    device = kernels::MakeCountingDevice(*parsed.options.gpu_model);
  } else {
    ASSIGN_OR_RETURN(device, ChooseGpu(parsed.device, spec));
    if (device != nullptr) parsed.options.gpu_model = kernels::FindGpuModel(device->name());
  }
  if (parsed.options.kernels && parsed.options.gpu_model == nullptr) {
    return absl::InvalidArgumentError(
        "--kernels needs a GPU with known rates: use --device=h100 or --device=h200");
  }
  if (device != nullptr) parsed.options.device = device.get();
  return ExplainPlan(spec, parsed.options);
}

}  // namespace

absl::StatusOr<v1::PlanReport> ExplainPlan(const v1::JobSpec& spec,
                                           const ExplainPlanOptions& options) {
  auto report = ExplainUnmarked(spec, options);
  if (absl::IsInvalidArgument(report.status())) {
    return train::WithExitCode(report.status(), train::kExitBadSpec);
  }
  return report;
}

int RunExplainPlan(const std::vector<std::string>& flags, std::istream& in, std::ostream& out) {
  absl::StatusOr<v1::PlanReport> report = Answer(flags, in);
  v1::PlanAnswer answer;
  if (report.ok()) {
    *answer.mutable_report() = *std::move(report);
  } else {
    answer.set_error(std::string(report.status().message()));
  }
  const bool written = answer.SerializeToOstream(&out) && out.flush();
  if (!report.ok()) return train::ExitCodeOf(report.status());
  return written ? 0 : train::kExitFailure;
}

}  // namespace muster::rank

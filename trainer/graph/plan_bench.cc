// Measures the time of a model's training step and of each kernel in it.
//
//   plan_bench [model [image size [batch size [steps [threads [precision [dtype [recompute|-
//   [instruction set]]]]]]]]]
//
// small_cnn takes images with one channel, the other models with three. The precision is O0, O1 or
// O2, the dtype bfloat16 or float16; `recompute` recomputes activations instead of keeping them.
// The instruction set is plain, avx2, avx512 or avx512_bf16; by default the processor's best.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kernels/cpu/device.h"
#include "trainer/graph/compiled_plan.h"
#include "trainer/models/model.h"

namespace muster::nn {
namespace {

using Clock = std::chrono::steady_clock;

double Microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Free {
  void operator()(float* p) const { std::free(p); }
};
std::unique_ptr<float, Free> Allocate(size_t elements) {
  const size_t bytes = (elements * sizeof(float) + 63) / 64 * 64;
  float* const array = static_cast<float*>(std::aligned_alloc(64, std::max<size_t>(bytes, 64)));
  std::fill_n(array, elements, 0.0f);
  return std::unique_ptr<float, Free>(array);
}

int Main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "small_cnn";
  const int64_t size = argc > 2 ? std::atoi(argv[2]) : 28;
  const uint32_t samples = argc > 3 ? std::atoi(argv[3]) : 64;
  const int steps = argc > 4 ? std::atoi(argv[4]) : 200;
  const uint32_t threads = argc > 5 ? std::atoi(argv[5]) : 1;
  const std::string level = argc > 6 ? argv[6] : "O0";
  const std::string dtype = argc > 7 ? argv[7] : "bfloat16";
  if ((level != "O0" && level != "O1" && level != "O2") ||
      (dtype != "bfloat16" && dtype != "float16")) {
    std::fprintf(stderr, "unknown precision or dtype: %s %s\n", level.c_str(), dtype.c_str());
    return 1;
  }
  const bool recompute = argc > 8 && std::string(argv[8]) == "recompute";
  kernels::InstructionSet set = kernels::DetectInstructionSet();
  while (argc > 9 && kernels::CpuKernels(set).name != std::string(argv[9])) {
    if (set == kernels::InstructionSet::kPlain) {
      std::fprintf(stderr, "instruction set not supported here: %s\n", argv[9]);
      return 1;
    }
    set = static_cast<kernels::InstructionSet>(static_cast<int>(set) - 1);
  }
  const Precision precision =
      PrecisionOf(level[1] - '0',
                  dtype == "bfloat16" ? kernels::DataType::kBfloat16 : kernels::DataType::kFloat16);
  v1::ModelSpec spec;
  spec.set_name(model);
  const ImageShape image = {size, size, model == "small_cnn" ? 1 : 3};
  const auto graph = BuildModel(spec, image, 10);
  if (!graph.ok()) {
    std::fprintf(stderr, "%s\n", graph.status().ToString().c_str());
    return 1;
  }
  const Clock::time_point compile_start = Clock::now();
  auto made = CompiledPlan::Make(*graph, {.max_batch = samples,
                                          .threads = threads,
                                          .device = &kernels::CpuDevice(set),
                                          .precision = precision,
                                          .recompute_activations = recompute});
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
    return 1;
  }
  CompiledPlan& plan = **made;
  const double compile = Microseconds(Clock::now() - compile_start);
  const size_t count = plan.parameter_elements();
  const auto parameters = Allocate(count);
  const auto gradients = Allocate(count);
  const auto momentum = Allocate(count);
  const auto buffers = Allocate(plan.buffer_elements());
  plan.Bind(parameters.get(), gradients.get(), buffers.get());
  plan.Initialize(1);
  const int64_t elements = samples * image.height * image.width * image.channels;
  for (int64_t i = 0; i < elements; ++i) {
    plan.input()[i] = static_cast<float>((static_cast<uint32_t>(i) * 2654435761u) >> 8) / 16777216;
  }
  for (uint32_t i = 0; i < samples; ++i) plan.labels()[i] = i % 10;

  // By operation and pass, in the order of their first run.
  std::vector<std::pair<std::string, std::vector<double>>> timings;
  std::map<std::string, size_t> index;
  const auto record = [&](const std::string& what, double microseconds) {
    const auto [at, added] = index.emplace(what, timings.size());
    if (added) timings.emplace_back(what, std::vector<double>());
    timings[at->second].second.push_back(microseconds);
  };
  Clock::time_point operation_start;
  plan.Observe([&](const Operation& operation, const char* pass, bool done) {
    if (!done) {
      operation_start = Clock::now();
      return;
    }
    const double microseconds = Microseconds(Clock::now() - operation_start);
    record(operation.name() + " " + pass + "  [" + operation.kind() + ": " +
               operation.description() + "]",
           microseconds);
  });

  std::vector<double> step_times;
  std::vector<double> kernel_times;
  double loss = 0;
  for (int step = 0; step < steps; ++step) {
    const absl::Duration kernels_before = plan.kernel_time();
    const Clock::time_point start = Clock::now();
    plan.Forward(samples, true, {});
    const Clock::time_point loss_start = Clock::now();
    loss = plan.Loss(samples, 0, 1.0f / static_cast<float>(samples)).loss_sum / samples;
    record("loss", Microseconds(Clock::now() - loss_start));
    plan.Backward(samples, nullptr);
    const Clock::time_point update_start = Clock::now();
    const kernels::UpdateScalars scalars{.learning_rate = 0.01};
    kernels::CpuKernels(set).sgd_step({.momentum = 0.9f, .weight_decay = 5e-4}, &scalars,
                                      parameters.get(), momentum.get(), gradients.get(), count);
    const Clock::time_point end = Clock::now();
    record("update", Microseconds(end - update_start));
    step_times.push_back(Microseconds(end - start));
    kernel_times.push_back(Microseconds(end - update_start) +
                           absl::ToDoubleMicroseconds(plan.kernel_time() - kernels_before));
  }
  for (const auto& [what, times] : timings) {
    std::printf("%9.1f us  %s\n", Median(times), what.c_str());
  }
  const double step = Median(step_times);
  std::printf("%9.1f us  step: %.0f images/s; batch size %u, threads %u, %s %s\n", step,
              samples / step * 1e6, samples, threads, level.c_str(),
              level == "O0" ? "" : dtype.c_str());
  std::printf("%9.1f us  in kernels, including the update: %.2f%% of the step\n",
              Median(kernel_times), 100 * Median(kernel_times) / step);
  std::printf("compile %.1f ms, arena %.1f MiB, last loss %.4f, layout %s\n", compile / 1e3,
              static_cast<double>(plan.arena_bytes()) / (1 << 20), loss,
              plan.layout_digest().c_str());
  return 0;
}

}  // namespace
}  // namespace muster::nn

int main(int argc, char** argv) { return muster::nn::Main(argc, argv); }

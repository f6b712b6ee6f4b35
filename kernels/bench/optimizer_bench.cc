// Measures the passes over flat arrays at the end of a training step, in GB/s of the bytes that
// each must at least read and write, against memcpy in the same run: no pass can be faster than
// memory.
//
//   optimizer_bench [elements [runs]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernel_table.h"

namespace muster::kernels {
namespace {

using Clock = std::chrono::steady_clock;

struct Pass {
  std::string name;
  double bytes;  // per element
  std::function<void()> run;
  double seconds = 1e30;  // time of the fastest run
};

class Array {
 public:
  explicit Array(size_t count)
      : data_(static_cast<float*>(std::aligned_alloc(64, (count / 16 + 1) * 64)), &std::free) {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> uniform(0.1f, 1.0f);
    std::generate_n(data_.get(), count, [&] { return uniform(random); });
  }
  float* get() const { return data_.get(); }

 private:
  std::unique_ptr<float, decltype(&std::free)> data_;
};

void Measure(size_t count, int runs) {
  const KernelTable& kernels = CpuKernels();
  const UpdateScalars scalars{.learning_rate = 1e-6, .step_size = 1e-6, .average_weight = 0.1f};
  const Array parameters(count), first(count), second(count), gradients(count);
  std::vector<Pass> passes;
  passes.push_back(
      {"memcpy", 8, [&] { std::memcpy(first.get(), gradients.get(), count * sizeof(float)); }});
  for (const DataType round_to : {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16}) {
    const std::string suffix =
        round_to == DataType::kFloat32 ? "" : std::string(", rounds to ") + NameOf(round_to);
    // Rates that leave the values unchanged over many runs.
    const SgdOptions sgd{.momentum = 0.5f, .round_to = round_to};
    const AdamWOptions adamw{.round_to = round_to};
    passes.push_back({"sgd with momentum" + suffix, 20, [&, sgd] {
                        kernels.sgd_step(sgd, &scalars, parameters.get(), first.get(),
                                         gradients.get(), count);
                      }});
    passes.push_back({"adamw" + suffix, 28, [&, adamw] {
                        kernels.adamw_step(adamw, &scalars, parameters.get(), first.get(),
                                           second.get(), gradients.get(), count);
                      }});
  }
  double sum = 0;
  passes.push_back(
      {"sum of squares", 4, [&] { kernels.sum_of_squares(gradients.get(), count, &sum); }});
  passes.push_back(
      {"lerp", 12, [&] { kernels.lerp(&scalars, gradients.get(), parameters.get(), count); }});
  for (const DataType type : {DataType::kBfloat16, DataType::kFloat16}) {
    passes.push_back({std::string("cast to ") + NameOf(type), 6, [&, type] {
                        kernels.cast(DataType::kFloat32, gradients.get(), 1, type, first.get(),
                                     count);
                      }});
    passes.push_back({std::string("cast from ") + NameOf(type), 6, [&, type] {
                        kernels.cast(type, first.get(), 1, DataType::kFloat32, second.get(), count);
                      }});
  }

  for (int run = 0; run < runs; ++run) {
    for (Pass& pass : passes) {
      const Clock::time_point begin = Clock::now();
      pass.run();
      const std::chrono::duration<double> taken = Clock::now() - begin;
      pass.seconds = std::min(pass.seconds, taken.count());
    }
  }
  std::printf("%zu elements, best of %d runs, kernels for %s\n", count, runs, kernels.name);
  for (const Pass& pass : passes) {
    const auto rate = [&](const Pass& of) { return of.bytes * 1e-9 * count / of.seconds; };
    std::printf("%-40s %8.3f ms %7.2f GB/s  %.2f of memcpy\n", pass.name.c_str(),
                pass.seconds * 1e3, rate(pass), rate(pass) / rate(passes.front()));
  }
}

}  // namespace
}  // namespace muster::kernels

int main(int argc, char** argv) {
  // The number of parameters of ResNet-18.
  const size_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 11'700'000;
  const int runs = argc > 2 ? std::atoi(argv[2]) : 15;
  muster::kernels::Measure(count, runs);
}

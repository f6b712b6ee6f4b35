// Measures memory-bound kernels on any device, in GB/s of the bytes that each must at least read
// and write, against a copy on the same device in the same run.
//
//   memory_bench [--device cpu|cuda] [--megabytes 256] [--json]
//
// Arrays should be at least four times as large as the last-level cache, so that results of the
// previous run are not cached. Exits with 1 if a kernel misses its target on a GPU, 69 without a
// GPU.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "common/status.h"
#include "kernels/cuda/device.h"
#include "kernels/device.h"
#include "kernels/half.h"
#include "nlohmann/json.hpp"

namespace muster::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 7;
constexpr double kRoundSeconds = 0.01;  // makes launches and the final wait of a GPU negligible

struct Kernel {
  std::string name;
  double bytes;   // minimum number of bytes that a run moves
  double target;  // fraction of the copy's speed required on a GPU; 0: none
  std::function<void()> run;
  double seconds = 0;
};

class Bench {
 public:
  Bench(Device& device, size_t bytes) : device_(device), bytes_(bytes) {}

  absl::Status Run() {
    RETURN_IF_ERROR(Measure([this] { AddCopy(); }));
    RETURN_IF_ERROR(Measure([this] { AddSgd(); }));
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
      RETURN_IF_ERROR(Measure([=, this] { AddBatchNorm(type); }));
    }
    RETURN_IF_ERROR(Measure([this] { AddCrossEntropy(); }));
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
      for (const int64_t stride : {1, 2}) {
        RETURN_IF_ERROR(Measure([=, this] { AddDepthwise(type, stride); }));
      }
    }
    return absl::OkStatus();
  }

  const std::vector<Kernel>& kernels() const { return kernels_; }

 private:
  // Measures the kernels that `add` adds, whose memory is then released.
  absl::Status Measure(const std::function<void()>& add) {
    const size_t first = kernels_.size();
    add();
    RETURN_IF_ERROR(status_);
    for (size_t i = first; i < kernels_.size(); ++i) {
      ASSIGN_OR_RETURN(kernels_[i].seconds, MedianSeconds(kernels_[i].run));
    }
    memory_.clear();
    return absl::OkStatus();
  }

  absl::StatusOr<double> SecondsOf(const std::function<void()>& run, int times) {
    RETURN_IF_ERROR(device_.Synchronize());
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < times; ++i) run();
    RETURN_IF_ERROR(device_.Synchronize());
    return std::chrono::duration<double>(Clock::now() - begin).count() / times;
  }

  absl::StatusOr<double> MedianSeconds(const std::function<void()>& run) {
    RETURN_IF_ERROR(SecondsOf(run, 1).status());
    ASSIGN_OR_RETURN(const double once, SecondsOf(run, 1));
    const int times = std::clamp(static_cast<int>(kRoundSeconds / once), 1, 1000);
    std::vector<double> seconds;
    for (int round = 0; round < kRounds; ++round) {
      ASSIGN_OR_RETURN(seconds.emplace_back(), SecondsOf(run, times));
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
    return seconds[kRounds / 2];
  }

  // Uniform in [-1, 1), because zeros would be faster.
  void* Values(DataType type, size_t count) {
    void* const array = Memory(count * SizeOf(type));
    if (array == nullptr) return nullptr;
    std::vector<float> values((count * SizeOf(type) + 3) / 4);
    for (size_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(static_cast<int32_t>(random_())) * 0x1p-31f;
      StoreElement(type, value, values.data(), static_cast<int64_t>(i));
    }
    device_.CopyToDevice(array, values.data(), count * SizeOf(type));
    return array;
  }
  float* Floats(size_t count) { return static_cast<float*>(Values(DataType::kFloat32, count)); }

  void* Memory(size_t bytes) {
    if (!status_.ok()) return nullptr;
    absl::StatusOr<DeviceMemory> memory = device_.Allocate(bytes);
    if (!memory.ok()) {
      status_ = memory.status();
      return nullptr;
    }
    memory_.push_back(*std::move(memory));
    return memory_.back().data();
  }

  void Add(std::string name, double bytes, double target, std::function<void()> run) {
    kernels_.push_back({std::move(name), bytes, target, std::move(run)});
  }

  void AddCopy() {
    const void* const from = Values(DataType::kBfloat16, bytes_ / 2);
    void* const to = Memory(bytes_);
    Add("copy", 2.0 * bytes_, 0, [this, from, to] { device_.Copy(to, from, bytes_); });
  }

  void AddSgd() {
    const size_t count = bytes_ / sizeof(float);
    float* const parameters = Floats(count);
    float* const velocities = Floats(count);
    const float* const gradients = Floats(count);
    auto* const scalars = static_cast<UpdateScalars*>(Memory(sizeof(UpdateScalars)));
    if (scalars == nullptr) return;
    // A learning rate that leaves the values unchanged over many runs.
    const UpdateScalars values{.learning_rate = 1e-6};
    device_.CopyToDevice(scalars, &values, sizeof(values));
    const SgdOptions options{.momentum = 0.5f, .weight_decay = 1e-4};
    Add("sgd with momentum", 20.0 * count, 0.85, [=, this] {
      device_.kernels().sgd_step(options, scalars, parameters, velocities, gradients, count);
    });
  }

  // As after the convolutions of a residual block.
  void AddBatchNorm(DataType type) {
    constexpr int64_t kChannels = 256, kSide = 28;
    const auto sample_bytes = static_cast<size_t>(kChannels * kSide * kSide) * SizeOf(type);
    const BatchNormShape shape{.samples = static_cast<int64_t>(bytes_ / sample_bytes),
                               .height = kSide,
                               .width = kSide,
                               .channels = kChannels,
                               .activation = Activation::kRelu,
                               .type = type};
    const auto count = static_cast<size_t>(shape.pixels() * kChannels);
    const void* const x = Values(type, count);
    const void* const addend = Values(type, count);
    void* const y = Memory(count * SizeOf(type));
    const size_t mask_bytes = device_.kernels().batch_norm_mask_bytes(shape);
    auto* const mask = mask_bytes > 0 ? static_cast<uint8_t*>(Memory(mask_bytes)) : nullptr;
    const void* const dy = Values(type, count);
    void* const dx = Memory(count * SizeOf(type));
    void* const dz = Memory(count * SizeOf(type));
    float* const arrays = Floats(8 * kChannels);
    const auto channels = [arrays](int index) { return arrays + index * kChannels; };
    const double pass = static_cast<double>(count * SizeOf(type));
    const std::string suffix = std::string(" ") + NameOf(type);
    const double mask_pass = mask != nullptr ? static_cast<double>(mask_bytes) : pass;  // or y
    // Statistics need all of x, which is therefore read twice.
    const double forward_bytes = 4 * pass + static_cast<double>(mask_bytes);
    Add("batch norm + relu + add forward" + suffix, forward_bytes, 0.85, [=, this] {
      const KernelTable& kernels = device_.kernels();
      kernels.batch_norm_statistics(shape, x, channels(0), channels(1));
      kernels.batch_norm_scale({.channels = kChannels}, nullptr, channels(0), channels(1),
                               channels(2), channels(3), nullptr, channels(4), channels(5),
                               channels(6));
      kernels.batch_norm_apply(shape, x, channels(5), channels(6), {addend}, y, mask);
    });
    // Both sums cover all samples, so x is read twice; the addend's gradient is written once and
    // replaces dy and the mask in the second pass.
    Add("batch norm + relu + add backward" + suffix, 6 * pass + mask_pass, 0.85, [=, this] {
      const KernelTable& kernels = device_.kernels();
      BatchNormGradient gradient{.x = x,
                                 .dy = dy,
                                 .y = mask == nullptr ? y : nullptr,
                                 .mask = mask,
                                 .choice = nullptr,
                                 .scale = channels(5),
                                 .shift = channels(6),
                                 .mean = channels(0),
                                 .inverse_deviation = channels(4),
                                 .pixels = static_cast<double>(shape.pixels())};
      kernels.batch_norm_backward_parameters(shape, gradient, channels(2), channels(3), dz);
      BatchNormShape rest = shape;
      rest.activation = Activation::kNone;
      gradient.dy = dz;
      gradient.y = nullptr;
      gradient.mask = nullptr;
      kernels.batch_norm_backward_data(rest, gradient, channels(2), channels(3), dx);
    });
  }

  void AddCrossEntropy() {
    const CrossEntropyOptions options{
        .samples = 32768, .classes = 1000, .label_smoothing = 0.1, .scale = 1.0 / 32768};
    const size_t count = options.samples * options.classes;
    const float* const logits = Floats(count);
    float* const gradient = Floats(count);
    auto* const labels = static_cast<int32_t*>(Memory(options.samples * sizeof(int32_t)));
    auto* const result = static_cast<LossResult*>(Memory(sizeof(LossResult)));
    if (labels != nullptr) {
      std::vector<int32_t> drawn(options.samples);
      for (int32_t& label : drawn) label = static_cast<int32_t>(random_() % options.classes);
      device_.CopyToDevice(labels, drawn.data(), drawn.size() * sizeof(int32_t));
    }
    Add("cross-entropy 32768 x 1000", 8.0 * count, 0.85, [=, this] {
      device_.kernels().softmax_cross_entropy(options, logits, labels, nullptr, gradient, result);
    });
  }

  void AddDepthwise(DataType type, int64_t stride) {
    constexpr int64_t kChannels = 96, kSide = 56;
    const auto sample_bytes = static_cast<size_t>(kChannels * kSide * kSide) * SizeOf(type);
    const DepthwiseConvolutionShape shape{.samples = static_cast<int64_t>(bytes_ / sample_bytes),
                                          .height = kSide,
                                          .width = kSide,
                                          .channels = kChannels,
                                          .stride = stride,
                                          .type = type};
    const auto in = static_cast<size_t>(shape.samples * shape.input_elements());
    const auto out = static_cast<size_t>(shape.samples * shape.output_elements());
    const void* const x = Values(type, in);
    void* const dx = Memory(in * SizeOf(type));
    void* const y = Memory(out * SizeOf(type));
    const void* const dy = Values(type, out);
    const float* const weights = Floats(shape.weights_elements());
    float* const dweights = Floats(shape.weights_elements());
    const double bytes = static_cast<double>((in + out) * SizeOf(type));
    const std::string suffix =
        " 96@56 stride " + std::to_string(stride) + " " + std::string(NameOf(type));
    Add("depthwise forward" + suffix, bytes, 0.7,
        [=, this] { device_.kernels().depthwise_convolution_forward(shape, x, weights, {}, y); });
    Add("depthwise backward data" + suffix, bytes, 0.7, [=, this] {
      device_.kernels().depthwise_convolution_backward_data(shape, dy, weights, dx);
    });
    Add("depthwise backward weights" + suffix, bytes, 0.5, [=, this] {
      device_.kernels().depthwise_convolution_backward_weights(shape, x, dy, dweights, nullptr);
    });
  }

  Device& device_;
  const size_t bytes_;  // per array
  std::mt19937 random_{3};
  absl::Status status_;  // first error of an allocation
  std::vector<DeviceMemory> memory_;
  std::vector<Kernel> kernels_;
};

absl::Status Main(bool gpu, size_t megabytes, bool json, bool& met) {
  std::unique_ptr<Device> cuda;
  Device* device = &CpuDevice();
  if (gpu) {
    ASSIGN_OR_RETURN(cuda, OpenCudaDevice(0));
    device = cuda.get();
  }
  Bench bench(*device, megabytes << 20);
  RETURN_IF_ERROR(bench.Run());
  const auto rate = [](const Kernel& kernel) { return kernel.bytes / kernel.seconds; };
  const Kernel& copy = bench.kernels().front();
  nlohmann::json results = {{"device", device->name()}, {"megabytes", megabytes}};
  met = true;
  if (!json) {
    std::printf("%s, arrays of %zu MiB, medians of %d rounds\n", device->name().c_str(), megabytes,
                kRounds);
  }
  for (const Kernel& kernel : bench.kernels()) {
    const double share = rate(kernel) / rate(copy);
    const double target = gpu ? kernel.target : 0;
    const bool reached = share >= target;
    met = met && reached;
    results["kernels"].push_back({{"name", kernel.name},
                                  {"seconds", kernel.seconds},
                                  {"bytes", kernel.bytes},
                                  {"share_of_copy", share},
                                  {"target", target}});
    if (json) continue;
    std::printf("%-52s %9.3f ms %8.1f GB/s  %.2f of copy", kernel.name.c_str(),
                kernel.seconds * 1e3, rate(kernel) * 1e-9, share);
    if (target > 0) std::printf(", target %.2f%s", target, reached ? "" : ": missed");
    std::printf("\n");
  }
  if (json) std::cout << results.dump(1) << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace muster::kernels

int main(int argc, char** argv) {
  CLI::App app("Measure memory-bound kernels against a copy on the same device");
  std::string device = "cpu";
  size_t megabytes = 256;
  bool json = false;
  app.add_option("--device", device, "cpu or cuda (first GPU)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--megabytes", megabytes, "size of an array")->check(CLI::Range(1, 4096));
  app.add_flag("--json", json);
  CLI11_PARSE(app, argc, argv);
  bool met = false;
  const absl::Status status = muster::kernels::Main(device == "cuda", megabytes, json, met);
  if (!status.ok()) {
    std::cerr << "memory_bench: " << status.message() << "\n";
    return 69;
  }
  return met ? 0 : 1;
}

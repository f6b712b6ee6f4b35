// Measures memory-bound kernels against a copy of as many bytes: GB/s of the bytes that the
// operation must at least read and write, absolute and relative to memcpy in the same run. Arrays
// of 64 MB are processed in slices, so that each slice comes from memory and is short enough that
// one of many runs is undisturbed.
//
//   elementwise_bench [plain|avx2|avx512|avx512_bf16|best [part of a kernel's name]]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/table/instruction_set.h"
#include "kernels/half.h"
#include "kernels/kernel_table.h"

namespace muster::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSizes[] = {size_t{64} << 20, size_t{512} << 10};  // bytes of x
constexpr size_t kMaxSlice = size_t{4} << 20;

class Array {
 public:
  // Arrays start at different offsets within a page, like the arrays of a plan.
  explicit Array(size_t bytes)
      : data_(std::aligned_alloc(64, (bytes / 64 + 65) * 64), &std::free),
        begin_(static_cast<uint8_t*>(data_.get()) + next_offset_) {
    next_offset_ = (next_offset_ + 704) % 4096 / 64 * 64;
    std::memset(begin_, 0, bytes);
  }
  // Values of both signs, below 1.
  Array(DataType type, size_t count) : Array(count * SizeOf(type)) {
    for (size_t i = 0; i < count; ++i) {
      const double value = static_cast<double>((i * 2654435761u >> 12) % 1000) / 1000 - 0.5;
      StoreElement(type, value, begin_, static_cast<int64_t>(i));
    }
  }
  void* get() const { return begin_; }
  float* floats() const { return static_cast<float*>(get()); }
  uint8_t* bytes() const { return begin_; }

 private:
  static inline size_t next_offset_ = 0;

  std::unique_ptr<void, decltype(&std::free)> data_;
  uint8_t* begin_;
};

double Seconds(const std::function<void()>& run) {
  const Clock::time_point start = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Bench {
 public:
  Bench(const KernelTable& kernels, const std::string& only, DataType type, size_t bytes)
      : kernels_(kernels),
        only_(only),
        type_(type),
        all_bytes_(bytes),
        bytes_(std::min(bytes, kMaxSlice)),
        count_(bytes_ / SizeOf(type)),
        x_(type, bytes / SizeOf(type)),
        y_(type, bytes / SizeOf(type)),
        z_(type, bytes / SizeOf(type)),
        wide_(2 * bytes),
        choice_(bytes) {}

  void Run() {
    for (const int64_t channels : {16, 24, 64, 96, 144, 256, 512, 2048}) BatchNorm(channels);
    Elementwise();
    Pooling();
  }

 private:
  void* X() const { return x_.bytes() + begin_; }
  void* Y() const { return y_.bytes() + begin_; }
  void* Z() const { return z_.bytes() + begin_; }
  void* Wide() const { return wide_.bytes() + 2 * begin_; }
  uint8_t* Choice() const { return choice_.bytes() + begin_; }

  // Reports the best of many slices, with a copy before each.
  void Report(const std::string& what, double bytes, const std::function<void()>& run) {
    constexpr int kRuns = 96;
    if (what.find(only_) == std::string::npos) return;
    double best = 1e30, best_copy = 1e30;
    const auto next = [this] { begin_ = (begin_ + bytes_) % all_bytes_; };
    for (int i = 0; i < kRuns; ++i) {
      if (all_bytes_ == bytes_) std::memcpy(Z(), X(), bytes_);  // keeps cached data cached
      best_copy = std::min(best_copy, Seconds([this] { std::memcpy(Z(), X(), bytes_); }));
      next();
      if (all_bytes_ == bytes_) run();
      best = std::min(best, Seconds(run));
      next();
    }
    const double rate = bytes / best * 1e-9;
    const double copy_rate = 2.0 * static_cast<double>(bytes_) / best_copy * 1e-9;
    std::printf("%-9s %6zu KB  %-42s %7.1f GB/s  %5.2f of copy %6.1f\n", NameOf(type_),
                all_bytes_ >> 10, what.c_str(), rate, rate / copy_rate, copy_rate);
    std::fflush(stdout);
  }

  void BatchNorm(int64_t channels) {
    const int64_t pixels = static_cast<int64_t>(count_) / channels;
    const BatchNormShape shape{.samples = 1,
                               .height = 1,
                               .width = pixels,
                               .channels = channels,
                               .activation = Activation::kRelu,
                               .type = type_};
    const std::string name = " " + std::to_string(channels);
    const double array = static_cast<double>(pixels * channels) * SizeOf(type_);
    const Array scale(DataType::kFloat32, channels), shift(DataType::kFloat32, channels);
    const Array mean(channels * 4), variance(channels * 4);
    const Array dgamma(channels * 4), dbeta(channels * 4);
    Report("batch norm statistics" + name, array,
           [&] { kernels_.batch_norm_statistics(shape, X(), mean.floats(), variance.floats()); });
    Report("batch norm apply relu" + name, 2 * array, [&] {
      kernels_.batch_norm_apply(shape, X(), scale.floats(), shift.floats(), {}, Z(), nullptr);
    });
    Report("batch norm apply add relu" + name, 3 * array, [&] {
      kernels_.batch_norm_apply(shape, X(), scale.floats(), shift.floats(), {Y()}, Z(), nullptr);
    });
    const auto gradient = [&] {
      return BatchNormGradient{.x = X(),
                               .dy = Y(),
                               .choice = nullptr,
                               .scale = scale.floats(),
                               .shift = shift.floats(),
                               .mean = mean.floats(),
                               .inverse_deviation = scale.floats(),
                               .pixels = static_cast<double>(pixels)};
    };
    Report("batch norm backward parameters" + name, 2 * array, [&] {
      kernels_.batch_norm_backward_parameters(shape, gradient(), dgamma.floats(), dbeta.floats(),
                                              nullptr);
    });
    Report("batch norm backward parameters, dz" + name, 3 * array, [&] {
      kernels_.batch_norm_backward_parameters(shape, gradient(), dgamma.floats(), dbeta.floats(),
                                              Z());
    });
    Report("batch norm backward data" + name, 3 * array, [&] {
      kernels_.batch_norm_backward_data(shape, gradient(), dgamma.floats(), dbeta.floats(), Z());
    });
  }

  void Elementwise() {
    const double array = static_cast<double>(bytes_);
    const double count = static_cast<double>(count_);
    Report("relu", 2 * array,
           [&] { kernels_.activation_forward(type_, Activation::kRelu, count_, X(), Z()); });
    Report("add + relu", 3 * array,
           [&] { kernels_.add_forward(type_, count_, X(), nullptr, Y(), Activation::kRelu, Z()); });
    Report("accumulate", 3 * array, [&] { kernels_.accumulate(type_, count_, X(), Z()); });
    bool finite = false;
    Report("all finite", array, [&] { kernels_.all_finite(type_, X(), count_, &finite); });
    if (type_ != DataType::kFloat32) {
      Report("cast to float32", array + 4 * count,
             [&] { kernels_.cast(type_, X(), 1, DataType::kFloat32, Wide(), count_); });
      Report("cast from float32", array + 4 * count,
             [&] { kernels_.cast(DataType::kFloat32, Wide(), 1, type_, Z(), count_); });
      return;
    }
    constexpr int64_t kClasses = 1000;
    const CrossEntropyOptions options{.samples = static_cast<int64_t>(count_) / kClasses,
                                      .classes = kClasses};
    const std::vector<int32_t> labels(options.samples, 7);
    LossResult result;
    Report("softmax cross-entropy, 1000 classes", 2 * array, [&] {
      kernels_.softmax_cross_entropy(options, static_cast<float*>(X()), labels.data(), nullptr,
                                     static_cast<float*>(Z()), &result);
    });
  }

  void Pooling() {
    const auto image = [this](int64_t size, int64_t channels) {
      return static_cast<int64_t>(count_) / (size * size * channels);
    };
    for (const int64_t size : {112, 16}) {
      const PoolShape shape{.samples = image(size, 64),
                            .height = size,
                            .width = size,
                            .channels = 64,
                            .relu = true,
                            .kernel = 3,
                            .stride = 2,
                            .padding = 1,
                            .type = type_};
      if (shape.samples == 0) continue;
      const double in = static_cast<double>(shape.samples * size * size * 64);
      const double bytes = in * SizeOf(type_) * 1.25 + in / 4;
      const std::string name = " max pool 3x3 s2 " + std::to_string(size);
      Report("relu +" + name, bytes, [&] { kernels_.max_pool_forward(shape, X(), Z(), Choice()); });
      Report("backward of" + name, bytes,
             [&] { kernels_.max_pool_backward(shape, Y(), Choice(), Z()); });
    }
    for (const int64_t channels : {512, 1280}) {
      const AveragePoolShape shape{.samples = image(7, channels),
                                   .height = 7,
                                   .width = 7,
                                   .channels = channels,
                                   .kernel_height = 7,
                                   .kernel_width = 7,
                                   .type = type_};
      const double in = static_cast<double>(shape.samples * 49 * channels) * SizeOf(type_);
      const std::string name = "global average pool 7x7 " + std::to_string(channels);
      Report(name, in * 50 / 49, [&] { kernels_.average_pool_forward(shape, X(), Z()); });
      Report("backward of " + name, in * 50 / 49,
             [&] { kernels_.average_pool_backward(shape, Y(), Z()); });
    }
  }

  const KernelTable& kernels_;
  const std::string only_;  // runs only kernels whose names contain this
  const DataType type_;
  const size_t all_bytes_;  // per array
  const size_t bytes_;      // per slice; a run processes one slice
  const size_t count_;      // elements per slice
  const Array x_, y_, z_, wide_, choice_;
  size_t begin_ = 0;  // beginning of the slice
};

int Main(int argc, char** argv) {
  InstructionSet set = DetectInstructionSet();
  for (const auto named : {InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512,
                           InstructionSet::kAvx512Bf16}) {
    if (argc > 1 && std::strcmp(argv[1], CpuKernels(named).name) == 0) set = named;
  }
  std::printf("%s\n", CpuKernels(set).name);
  for (const size_t bytes : kSizes) {
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
      Bench(CpuKernels(set), argc > 2 ? argv[2] : "", type, bytes).Run();
    }
  }
  return 0;
}

}  // namespace
}  // namespace muster::kernels

int main(int argc, char** argv) { return muster::kernels::Main(argc, argv); }

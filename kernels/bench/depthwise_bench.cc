// Measures depthwise convolution, float32 and bfloat16, in one thread.
//
//   depthwise_bench [batch size [rounds]]
//
// Each round runs both types once, so that a slowdown of the machine affects both; the results are
// medians of the thread's CPU time. GFLOP/s count two operations per product, including padding.
// "copy" is the time of a memcpy of as many bytes divided by the time in bfloat16: 1 means as fast
// as memory allows.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "kernels/half.h"
#include "kernels/kernel_table.h"

namespace muster::kernels {
namespace {

constexpr const char* kDirections[] = {"forward", "backward data", "backward weights"};
constexpr int kDirectionCount = 3;

struct Layer {
  int64_t channels;
  int64_t size;
  int64_t stride;
};

// The two layers with a target, then those of MobileNetV2 on images of 112x112.
constexpr Layer kLayers[] = {
    {144, 28, 1}, {96, 56, 2}, {32, 56, 1}, {144, 28, 2}, {192, 14, 1},
    {192, 14, 2}, {384, 7, 1}, {576, 7, 1}, {576, 7, 2},  {960, 4, 1},
};

// 64-byte aligned, normally distributed.
class Array {
 public:
  Array(DataType type, int64_t count)
      : bytes_((count * SizeOf(type) + 63) / 64 * 64),
        data_(std::aligned_alloc(64, bytes_), &std::free) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; ++i) StoreElement(type, normal(random), data_.get(), i);
  }
  void* data() const { return data_.get(); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_.get());
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  std::unique_ptr<void, decltype(&std::free)> data_;
};

struct Arrays {
  Arrays(const DepthwiseConvolutionShape& shape, DataType type)
      : x(type, shape.samples * shape.input_elements()),
        y(type, shape.samples * shape.output_elements()),
        dx(type, shape.samples * shape.input_elements()),
        dy(type, shape.samples * shape.output_elements()) {}
  const Array x, y, dx, dy;
};

// The three directions of a layer in one type.
class Subject {
 public:
  Subject(DepthwiseConvolutionShape shape, DataType type, const Arrays& arrays)
      : shape_(shape),
        arrays_(arrays),
        weights_(DataType::kFloat32, shape.weights_elements()),
        dweights_(DataType::kFloat32, shape.weights_elements()) {
    shape_.type = shape_.compute_type = type;
  }

  void Run(int direction) {
    const KernelTable& kernels = CpuKernels();
    if (direction == 0) {
      kernels.depthwise_convolution_forward(shape_, arrays_.x.data(), weights_.as<float>(), {},
                                            arrays_.y.data());
    } else if (direction == 1) {
      kernels.depthwise_convolution_backward_data(shape_, arrays_.dy.data(), weights_.as<float>(),
                                                  arrays_.dx.data());
    } else {
      kernels.depthwise_convolution_backward_weights(shape_, arrays_.x.data(), arrays_.dy.data(),
                                                     dweights_.as<float>(), nullptr);
    }
  }

 private:
  DepthwiseConvolutionShape shape_;
  const Arrays& arrays_;
  const Array weights_, dweights_;
};

double ProcessorMilliseconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

double Milliseconds(const std::function<void()>& work) {
  const double begin = ProcessorMilliseconds();
  work();
  return ProcessorMilliseconds() - begin;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void Bench(const Layer& layer, int64_t samples, int rounds) {
  const DepthwiseConvolutionShape shape = {.samples = samples,
                                           .height = layer.size,
                                           .width = layer.size,
                                           .channels = layer.channels,
                                           .stride = layer.stride};
  const Arrays floats(shape, DataType::kFloat32), lows(shape, DataType::kBfloat16);
  Subject subjects[] = {{shape, DataType::kFloat32, floats}, {shape, DataType::kBfloat16, lows}};
  // Half of the bytes of input and output are read, half are written.
  const size_t copied = (lows.x.bytes() + lows.y.bytes()) / 2;
  const Array from(DataType::kBfloat16, copied / 2), to(DataType::kBfloat16, copied / 2);
  const double gigaflops =
      2e-9 * static_cast<double>(samples * shape.output_elements() * shape.kernel * shape.kernel);
  for (int direction = 0; direction < kDirectionCount; ++direction) {
    std::vector<double> times[2], copies;
    for (int round = 0; round < rounds; ++round) {
      for (int i = 0; i < 2; ++i) {
        times[i].push_back(Milliseconds([&] { subjects[i].Run(direction); }));
      }
      copies.push_back(Milliseconds([&] { std::memcpy(to.data(), from.data(), copied); }));
    }
    const double float32 = Median(times[0]), bfloat16 = Median(times[1]);
    std::printf("%4ld @ %2ld s%ld %-16s | %7.1f %7.1f | %5.2f %5.2f\n", layer.channels, layer.size,
                layer.stride, kDirections[direction], gigaflops / float32 * 1e3,
                gigaflops / bfloat16 * 1e3, float32 / bfloat16, Median(copies) / bfloat16);
  }
}

int Main(int argc, char** argv) {
  const int64_t samples = argc > 1 ? std::atoi(argv[1]) : 32;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 21;
  std::printf("batch size %ld, one thread, %s\n", samples, CpuKernels().name);
  std::printf("%-28s | %15s | %11s\n", "", "GFLOP/s", "bf16 over");
  std::printf("%-28s | %7s %7s | %5s %5s\n", "", "f32", "bf16", "f32", "copy");
  for (const Layer& layer : kLayers) Bench(layer, samples, rounds);
  return 0;
}

}  // namespace
}  // namespace muster::kernels

int main(int argc, char** argv) { return muster::kernels::Main(argc, argv); }

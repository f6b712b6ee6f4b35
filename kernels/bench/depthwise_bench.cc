// Times our depthwise convolution against oneDNN's, float32 and bfloat16, in one thread.
//
//   depthwise_bench [rows [rounds]]
//
// Each round runs every contender once, so that a machine that slows down hurts all; the figures
// are medians of the thread's own processor time. GFLOP/s count two operations per product, padding
// included. "copy" is the time of a memcpy that moves as many bytes, by the time of ours in
// bfloat16: 1 is as fast as memory allows.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/half.h"
#include "kernels/kernel_table.h"
#include "oneapi/dnnl/dnnl.hpp"

// Of the OpenMP runtime that oneDNN is linked with; the compiler's own omp.h may belong to another.
extern "C" void omp_set_num_threads(int threads);

namespace muster::kernels {
namespace {

using Tag = dnnl::memory::format_tag;
using OneDnnType = dnnl::memory::data_type;

constexpr const char* kDirections[] = {"forward", "backward data", "backward weights"};
constexpr int kDirectionCount = 3;

struct Layer {
  int64_t channels;
  int64_t size;
  int64_t stride;
};

// The two that are targets, then those of MobileNetV2 on images of 112x112.
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

// One layer's arrays in one type, and its three directions by whoever computes them.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual void Run(int direction) = 0;
};

struct Arrays {
  Arrays(const DepthwiseConvolutionShape& shape, DataType type)
      : x(type, shape.rows * shape.input_elements()),
        y(type, shape.rows * shape.output_elements()),
        dx(type, shape.rows * shape.input_elements()),
        dy(type, shape.rows * shape.output_elements()) {}
  const Array x, y, dx, dy;
};

class Ours : public Contender {
 public:
  Ours(DepthwiseConvolutionShape shape, DataType type, const Arrays& arrays)
      : shape_(shape),
        arrays_(arrays),
        weights_(DataType::kFloat32, shape.weights_elements()),
        dweights_(DataType::kFloat32, shape.weights_elements()) {
    shape_.type = shape_.compute_type = type;
  }

  void Run(int direction) override {
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

// With the weights in the layout that it prefers for each direction, and gradients of the weights
// in float32.
class OneDnn : public Contender {
 public:
  OneDnn(const DepthwiseConvolutionShape& shape, DataType type, const Arrays& arrays)
      : engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        type_(type == DataType::kFloat32 ? OneDnnType::f32 : OneDnnType::bf16) {
    const dnnl::memory::dims strides(2, shape.stride), padding(2, shape.padding);
    const auto algorithm = dnnl::algorithm::convolution_direct;
    const dnnl::memory::desc x({shape.rows, shape.channels, shape.height, shape.width}, type_,
                               Tag::nhwc);
    const dnnl::memory::desc y({shape.rows, shape.channels, shape.out_height(), shape.out_width()},
                               type_, Tag::nhwc);
    const dnnl::memory::dims dims = {shape.channels, 1, 1, shape.kernel, shape.kernel};
    const dnnl::memory::desc weights(dims, type_, Tag::any),
        dweights(dims, OneDnnType::f32, Tag::any);
    const dnnl::convolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, algorithm, x, weights, y, strides, padding, padding},
        engine_);
    const dnnl::convolution_backward_data::primitive_desc backward_data(
        {algorithm, x, weights, y, strides, padding, padding}, engine_, forward);
    const dnnl::convolution_backward_weights::primitive_desc backward_weights(
        {algorithm, x, dweights, y, strides, padding, padding}, engine_, forward);
    Add(forward, {{DNNL_ARG_SRC, Wrap(x, arrays.x)},
                  {DNNL_ARG_WEIGHTS, dnnl::memory(forward.weights_desc(), engine_)},
                  {DNNL_ARG_DST, Wrap(y, arrays.y)}});
    Add(backward_data, {{DNNL_ARG_DIFF_DST, Wrap(y, arrays.dy)},
                        {DNNL_ARG_WEIGHTS, dnnl::memory(backward_data.weights_desc(), engine_)},
                        {DNNL_ARG_DIFF_SRC, Wrap(x, arrays.dx)}});
    Add(backward_weights,
        {{DNNL_ARG_SRC, Wrap(x, arrays.x)},
         {DNNL_ARG_DIFF_DST, Wrap(y, arrays.dy)},
         {DNNL_ARG_DIFF_WEIGHTS, dnnl::memory(backward_weights.diff_weights_desc(), engine_)}});
  }

  void Run(int direction) override {
    primitives_[direction].execute(stream_, arguments_[direction]);
    stream_.wait();
  }

  const std::string& implementation(int direction) const { return implementations_[direction]; }

 private:
  using Arguments = std::unordered_map<int, dnnl::memory>;

  dnnl::memory Wrap(const dnnl::memory::desc& desc, const Array& array) const {
    return dnnl::memory(desc, engine_, array.data());
  }

  void Add(const dnnl::primitive_desc& desc, Arguments arguments) {
    for (const int weights : {DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_WEIGHTS}) {
      const auto found = arguments.find(weights);
      if (found == arguments.end()) continue;
      std::memset(found->second.get_data_handle(), 0, found->second.get_desc().get_size());
    }
    primitives_.emplace_back(desc);
    arguments_.push_back(std::move(arguments));
    implementations_.emplace_back(desc.impl_info_str());
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  OneDnnType type_;
  std::vector<dnnl::primitive> primitives_;
  std::vector<Arguments> arguments_;
  std::vector<std::string> implementations_;
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

void Bench(const Layer& layer, int64_t rows, int rounds) {
  const DepthwiseConvolutionShape shape = {.rows = rows,
                                           .height = layer.size,
                                           .width = layer.size,
                                           .channels = layer.channels,
                                           .stride = layer.stride};
  const Arrays floats(shape, DataType::kFloat32), lows(shape, DataType::kBfloat16);
  Ours ours(shape, DataType::kFloat32, floats), ours_low(shape, DataType::kBfloat16, lows);
  OneDnn onednn(shape, DataType::kFloat32, floats), onednn_low(shape, DataType::kBfloat16, lows);
  Contender* const contenders[] = {&ours, &ours_low, &onednn, &onednn_low};
  // Half the bytes of input and output are read, half are written.
  const size_t copied = (lows.x.bytes() + lows.y.bytes()) / 2;
  const Array from(DataType::kBfloat16, copied / 2), to(DataType::kBfloat16, copied / 2);
  const double gigaflops =
      2e-9 * static_cast<double>(rows * shape.output_elements() * shape.kernel * shape.kernel);
  for (int direction = 0; direction < kDirectionCount; ++direction) {
    std::vector<double> times[4], copies;
    for (int round = 0; round < rounds; ++round) {
      for (int c = 0; c < 4; ++c) {
        times[c].push_back(Milliseconds([&] { contenders[c]->Run(direction); }));
      }
      copies.push_back(Milliseconds([&] { std::memcpy(to.data(), from.data(), copied); }));
    }
    double medians[4];
    for (int c = 0; c < 4; ++c) medians[c] = Median(times[c]);
    std::printf("%4ld @ %2ld s%ld %-16s |", layer.channels, layer.size, layer.stride,
                kDirections[direction]);
    for (const double median : medians) std::printf(" %7.1f", gigaflops / median * 1e3);
    std::printf(" | %5.2f %5.2f %5.2f %5.2f | %s, %s\n", medians[3] / medians[1],
                medians[2] / medians[0], medians[0] / medians[1], Median(copies) / medians[1],
                onednn.implementation(direction).c_str(),
                onednn_low.implementation(direction).c_str());
  }
}

int Main(int argc, char** argv) {
  omp_set_num_threads(1);
  const int64_t rows = argc > 1 ? std::atoi(argv[1]) : 32;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 21;
  std::printf("%ld rows, one thread, %s\n", rows, CpuKernels().name);
  std::printf("%-28s | %31s | %23s |\n", "", "GFLOP/s", "times as fast");
  std::printf("%-28s | %7s %7s %7s %7s | %5s %5s %5s %5s | oneDNN's\n", "", "f32", "bf16", "1DNN32",
              "1DNN16", "bf16", "f32", "16/32", "copy");
  for (const Layer& layer : kLayers) Bench(layer, rows, rounds);
  return 0;
}

}  // namespace
}  // namespace muster::kernels

int main(int argc, char** argv) { return muster::kernels::Main(argc, argv); }

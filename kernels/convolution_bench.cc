// Times every distinct convolution of a network, forward and backward, and names the kernels
// chosen.
//
//   convolution_bench resnet18|mobilenet_v2 [rows [image size [threads]]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/convolution.h"

namespace muster::kernels {
namespace {

using Clock = std::chrono::steady_clock;

struct Layer {
  ConvolutionShape shape;
  int count = 1;  // how often the network has it
};

class Network {
 public:
  explicit Network(int64_t image_size) : size_(image_size) {}

  // As torchvision's conv2d with this padding; without a bias.
  void Add(int64_t out, int64_t kernel, int64_t stride, int64_t groups = 1) {
    const int64_t padding = kernel / 2;
    const ConvolutionShape shape{size_, size_, channels_, out, kernel, stride, padding, groups};
    const std::string name = Name(shape);
    const auto same = [&](const Layer& layer) { return Name(layer.shape) == name; };
    const auto found = std::find_if(layers_.begin(), layers_.end(), same);
    if (found == layers_.end()) {
      layers_.push_back({shape});
    } else {
      ++found->count;
    }
    channels_ = out;
    size_ = shape.out_height();
  }
  void Pool(int64_t stride) { size_ = (size_ - 1) / stride + 1; }
  void BranchFrom(int64_t channels, int64_t size) { channels_ = channels, size_ = size; }

  int64_t channels() const { return channels_; }
  int64_t size() const { return size_; }
  const std::vector<Layer>& layers() const { return layers_; }

  static std::string Name(const ConvolutionShape& shape) {
    char text[96];
    std::snprintf(text, sizeof(text), "%4ld -> %4ld  %3ldx%-3ld kernel %ld stride %ld groups %ld",
                  shape.in_channels, shape.out_channels, shape.height, shape.width, shape.kernel,
                  shape.stride, shape.groups);
    return text;
  }

 private:
  int64_t size_;
  int64_t channels_ = 3;
  std::vector<Layer> layers_;
};

// He et al. 2016.
Network ResNet18(int64_t image_size) {
  Network network(image_size);
  network.Add(64, 7, 2);
  network.Pool(2);
  for (const int64_t out : {64, 128, 256, 512}) {
    for (const int64_t stride : {out == 64 ? 1 : 2, 1}) {
      const int64_t channels = network.channels();
      const int64_t size = network.size();
      network.Add(out, 3, stride);
      network.Add(out, 3, 1);
      if (stride == 1) continue;
      network.BranchFrom(channels, size);
      network.Add(out, 1, stride);
    }
  }
  return network;
}

// Sandler et al. 2018.
Network MobileNetV2(int64_t image_size) {
  Network network(image_size);
  network.Add(32, 3, 2);
  const struct {
    int64_t expansion, channels, repeats, stride;
  } stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  for (const auto& stage : stages) {
    for (int64_t i = 0; i < stage.repeats; ++i) {
      const int64_t hidden = network.channels() * stage.expansion;
      if (stage.expansion > 1) network.Add(hidden, 1, 1);
      network.Add(hidden, 3, i == 0 ? stage.stride : 1, hidden);
      network.Add(stage.channels, 1, 1);
    }
  }
  network.Add(1280, 1, 1);
  return network;
}

using Array = std::unique_ptr<float, decltype(&std::free)>;
Array Allocate(int64_t elements) {
  const size_t bytes = (elements * sizeof(float) / 64 + 1) * 64;
  Array array(static_cast<float*>(std::aligned_alloc(64, bytes)), &std::free);
  for (int64_t i = 0; i < elements; ++i) {
    array.get()[i] = static_cast<float>((i * 2654435761u >> 12) % 1000) / 1000 - 0.5f;
  }
  return array;
}

// The shortest of several runs, in milliseconds.
template <typename Run>
double Milliseconds(const Run& run) {
  run();
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const Clock::time_point start = Clock::now();
    run();
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return best;
}

int Main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "resnet18";
  const int64_t rows = argc > 2 ? std::atoi(argv[2]) : 16;
  const int64_t image_size = argc > 3 ? std::atoi(argv[3]) : 224;
  const int threads = argc > 4 ? std::atoi(argv[4]) : 1;
  const Network network = name == "resnet18" ? ResNet18(image_size) : MobileNetV2(image_size);
  double totals[3] = {};
  bool first = true;
  for (const Layer& layer : network.layers()) {
    const ConvolutionShape& shape = layer.shape;
    auto made = cpu::MakeConvolution(
        shape, {.max_rows = rows, .bias = false, .data_gradient = !first, .threads = threads});
    if (!made.ok()) {
      std::fprintf(stderr, "%s: %s\n", Network::Name(shape).c_str(),
                   made.status().ToString().c_str());
      return 1;
    }
    Convolution& convolution = **made;
    const Array x = Allocate(rows * shape.input_elements());
    const Array dx = Allocate(rows * shape.input_elements());
    const Array y = Allocate(rows * shape.output_elements());
    const Array weights = Allocate(convolution.weights_elements());
    const Array dweights = Allocate(convolution.weights_elements());
    const Array workspace = Allocate(convolution.workspace_bytes() / sizeof(float));
    const double times[3] = {
        Milliseconds([&] {
          convolution.Forward(rows, x.get(), weights.get(), {}, y.get(), workspace.get());
        }),
        first ? 0.0 : Milliseconds([&] {
          convolution.BackwardData(rows, y.get(), weights.get(), dx.get(), workspace.get());
        }),
        Milliseconds([&] {
          convolution.BackwardWeights(rows, x.get(), y.get(), dweights.get(), nullptr,
                                      workspace.get());
        })};
    const double gigaflops = 2e-9 * static_cast<double>(rows * shape.output_elements()) *
                             static_cast<double>(shape.fan_in());
    std::printf("%dx %s", layer.count, Network::Name(shape).c_str());
    for (int i = 0; i < 3; ++i) {
      totals[i] += times[i] * layer.count;
      std::printf(" | %7.2f ms %6.1f GFLOP/s", times[i], gigaflops / times[i] * 1e3);
    }
    std::printf(" | %s\n", convolution.description().c_str());
    first = false;
  }
  const double total = totals[0] + totals[1] + totals[2];
  std::printf("forward %.1f ms, backward data %.1f ms, backward weights %.1f ms: %.1f images/s\n",
              totals[0], totals[1], totals[2], static_cast<double>(rows) / total * 1e3);
  return 0;
}

}  // namespace
}  // namespace muster::kernels

int main(int argc, char** argv) { return muster::kernels::Main(argc, argv); }

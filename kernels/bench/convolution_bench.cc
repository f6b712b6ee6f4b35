// Measures every distinct convolution of a network, forward and backward, and prints the engine.
//
//   convolution_bench resnet18|resnet50|resnext50|mobilenet_v2|small_cnn [batch size [image size
//       [threads [float32|bfloat16 [plain|avx2|avx512|avx512_bf16]]]]]
//
// Rates count two operations per nominal product, including padding. The default instruction set is
// the best of the CPU.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/convolution.h"
#include "kernels/cpu/convolution/convolution.h"
#include "kernels/cpu/table/instruction_set.h"

namespace muster::kernels {
namespace {

using Clock = std::chrono::steady_clock;

struct Layer {
  ConvolutionShape shape;
  int count = 1;  // occurrences in the network
};

class Network {
 public:
  explicit Network(int64_t image_size, int64_t channels = 3)
      : size_(image_size), channels_(channels) {}

  // Like torchvision's conv2d with this padding, without a bias.
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
  int64_t channels_;
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

// He et al. 2016, with strides in the 3x3 convolutions as in torchvision. ResNeXt-50 32x4d (Xie et
// al. 2017) has bottlenecks of twice the width with 32 groups.
Network ResNet50(int64_t image_size, int64_t width = 1, int64_t groups = 1) {
  Network network(image_size);
  network.Add(64, 7, 2);
  network.Pool(2);
  const struct {
    int64_t channels, repeats, stride;
  } stages[] = {{64, 3, 1}, {128, 4, 2}, {256, 6, 2}, {512, 3, 2}};
  for (const auto& stage : stages) {
    for (int64_t i = 0; i < stage.repeats; ++i) {
      const int64_t channels = network.channels();
      const int64_t size = network.size();
      const int64_t stride = i == 0 ? stage.stride : 1;
      network.Add(width * stage.channels, 1, 1);
      network.Add(width * stage.channels, 3, stride, groups);
      network.Add(4 * stage.channels, 1, 1);
      if (i > 0) continue;
      network.BranchFrom(channels, size);
      network.Add(4 * stage.channels, 1, stride);
    }
  }
  return network;
}

// Grey images, two convolutions with pooling, and a linear layer.
Network SmallCnn(int64_t image_size) {
  Network network(image_size, 1);
  network.Add(32, 3, 1);
  network.Pool(2);
  network.Add(64, 3, 1);
  network.Pool(2);
  const int64_t size = network.size();
  network.BranchFrom(64 * size * size, 1);
  network.Add(128, 1, 1);
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
// Small numbers as float32, which are small numbers as bfloat16, too.
Array Allocate(int64_t elements) {
  const size_t bytes = (elements * sizeof(float) / 64 + 1) * 64;
  Array array(static_cast<float*>(std::aligned_alloc(64, bytes)), &std::free);
  for (int64_t i = 0; i < elements; ++i) {
    array.get()[i] = static_cast<float>((i * 2654435761u >> 12) % 1000) / 1000 - 0.5f;
  }
  return array;
}

// A layer with its arrays.
class Subject {
 public:
  Subject(absl::StatusOr<std::unique_ptr<Convolution>> made, const ConvolutionShape& shape,
          int64_t samples)
      : samples_(samples),
        x_(Allocate(samples * shape.input_elements())),
        y_(Allocate(samples * shape.output_elements())),
        weights_(nullptr, &std::free),
        workspace_(nullptr, &std::free) {
    if (!made.ok()) {
      std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
      return;
    }
    convolution_ = *std::move(made);
    weights_ = Allocate(convolution_->weights_elements());
    workspace_ = Allocate(static_cast<int64_t>(convolution_->workspace_bytes() / sizeof(float)));
  }

  bool made() const { return convolution_ != nullptr; }
  std::string description() const { return convolution_->description(); }

  double Milliseconds(int pass) {
    const Clock::time_point start = Clock::now();
    if (pass == 0) {
      convolution_->Forward(samples_, x_.get(), weights_.get(), {}, y_.get(), workspace_.get());
    } else if (pass == 1) {
      convolution_->BackwardData(samples_, y_.get(), weights_.get(), x_.get(), workspace_.get());
    } else {
      convolution_->BackwardWeights(samples_, x_.get(), y_.get(), weights_.get(), nullptr,
                                    workspace_.get());
    }
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }

 private:
  int64_t samples_;
  std::unique_ptr<Convolution> convolution_;
  Array x_, y_, weights_, workspace_;
};

Network NetworkOf(const std::string& name, int64_t image_size) {
  if (name == "resnet50") return ResNet50(image_size);
  if (name == "resnext50") return ResNet50(image_size, 2, 32);
  if (name == "mobilenet_v2") return MobileNetV2(image_size);
  if (name == "small_cnn") return SmallCnn(image_size);
  return ResNet18(image_size);
}

// Ends the process if the CPU does not support the set.
InstructionSet InstructionSetOf(const std::string& name) {
  for (int set = 0; set <= static_cast<int>(DetectInstructionSet()); ++set) {
    const auto known = static_cast<InstructionSet>(set);
    if (name == CpuKernels(known).name) return known;
  }
  std::fprintf(stderr, "instruction set not supported here: %s\n", name.c_str());
  std::exit(1);
}

int Main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "resnet18";
  const int64_t samples = argc > 2 ? std::atoi(argv[2]) : 16;
  const int64_t image_size = argc > 3 ? std::atoi(argv[3]) : 224;
  const int threads = argc > 4 ? std::atoi(argv[4]) : 1;
  const bool low = argc > 5 && std::string(argv[5]) == "bfloat16";
  const DataType type = low ? DataType::kBfloat16 : DataType::kFloat32;
  const InstructionSet set = argc > 6 ? InstructionSetOf(argv[6]) : DetectInstructionSet();
  double totals[3] = {};
  bool first = true;
  std::printf("milliseconds and GFLOP/s of forward | backward data | backward weights\n");
  const Network network = NetworkOf(name, image_size);
  for (const Layer& layer : network.layers()) {
    const ConvolutionShape& shape = layer.shape;
    // The images are float32.
    const ConvolutionOptions options = {.max_samples = samples,
                                        .bias = false,
                                        .data_gradient = !first,
                                        .threads = threads,
                                        .x_type = first ? DataType::kFloat32 : type,
                                        .y_type = type,
                                        .compute_type = type};
    Subject subject(cpu::MakeConvolution(shape, options, set), shape, samples);
    if (!subject.made()) return 1;
    const double gigaflops = 2e-9 * static_cast<double>(samples * shape.output_elements()) *
                             static_cast<double>(shape.fan_in());
    std::printf("%dx %s", layer.count, Network::Name(shape).c_str());
    for (int pass = 0; pass < 3; ++pass) {
      if (first && pass == 1) continue;
      double best = 1e30;
      for (int run = 0; run < 8; ++run) {  // the first run warms up
        best = std::min(best, subject.Milliseconds(pass));
      }
      totals[pass] += best * layer.count;
      std::printf(" | %7.2f ms %6.1f", best, gigaflops / best * 1e3);
    }
    std::printf(" | %s\n", subject.description().c_str());
    first = false;
  }
  std::printf("forward %.1f ms, backward data %.1f ms, backward weights %.1f ms: %.1f images/s\n",
              totals[0], totals[1], totals[2],
              static_cast<double>(samples) / (totals[0] + totals[1] + totals[2]) * 1e3);
  return 0;
}

}  // namespace
}  // namespace muster::kernels

int main(int argc, char** argv) { return muster::kernels::Main(argc, argv); }

#include "kernels/convolution.h"

#include <algorithm>
#include <vector>

#include "kernels/half.h"

namespace muster::kernels::reference {
namespace {

class ReferenceConvolution : public Convolution {
 public:
  ReferenceConvolution(const ConvolutionShape& shape, const ConvolutionOptions& options)
      : shape_(shape), options_(options) {}

  int64_t weights_elements() const override { return shape_.weights(); }
  std::string weights_layout() const override { return "oihw"; }
  std::string description() const override { return "reference"; }
  size_t workspace_bytes() const override { return 0; }

  void ImportWeights(const float* canonical, float* weights) const override {
    std::copy_n(canonical, shape_.weights(), weights);
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    std::copy_n(weights, shape_.weights(), canonical);
  }

  void Forward(int64_t samples, const void* x, const void* weights, const Epilogue& epilogue,
               void* y, void* workspace) override {
    const Doubles xs = Load(options_.x_type, x, samples * shape_.input_elements());
    const Doubles ws = Load(DataType::kFloat32, weights, shape_.weights());
    Doubles sums(samples * shape_.output_elements());
    ForEachProduct(samples, [&](int64_t in, int64_t weight, int64_t out) {
      sums[out] += xs[in] * ws[weight];
    });
    const Doubles addend =
        epilogue.addend != nullptr
            ? LoadExactly(options_.y_type, epilogue.addend, static_cast<int64_t>(sums.size()))
            : Doubles(sums.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      const int64_t channel = static_cast<int64_t>(i) % shape_.out_channels;
      if (epilogue.scale != nullptr) sums[i] *= double{epilogue.scale[channel]};
      if (epilogue.shift != nullptr) sums[i] += double{epilogue.shift[channel]};
      sums[i] += addend[i];
      if (epilogue.activation != Activation::kNone && sums[i] < 0) sums[i] = 0;
      if (epilogue.activation == Activation::kRelu6 && sums[i] > 6) sums[i] = 6;
    }
    Store(sums, options_.y_type, y);
  }

  void BackwardData(int64_t samples, const void* dy, const void* weights, void* dx,
                    void* workspace) override {
    const Doubles dys = Load(options_.y_type, dy, samples * shape_.output_elements());
    const Doubles ws = Load(DataType::kFloat32, weights, shape_.weights());
    Doubles sums(samples * shape_.input_elements());
    ForEachProduct(samples, [&](int64_t in, int64_t weight, int64_t out) {
      sums[in] += dys[out] * ws[weight];
    });
    Store(options_.compact_data_gradient ? Compact(samples, sums) : sums, options_.x_type, dx);
  }

  void BackwardWeights(int64_t samples, const void* x, const void* dy, void* dweights, float* dbias,
                       void* workspace) override {
    const Doubles xs = Load(options_.x_type, x, samples * shape_.input_elements());
    const Doubles dys = Load(options_.y_type, dy, samples * shape_.output_elements());
    Doubles weight_sums(shape_.weights());
    ForEachProduct(samples, [&](int64_t in, int64_t weight, int64_t out) {
      weight_sums[weight] += dys[out] * xs[in];
    });
    Store(weight_sums, DataType::kFloat32, dweights);
    if (!options_.bias) return;
    Doubles bias_sums(shape_.out_channels);
    for (size_t i = 0; i < dys.size(); ++i) {
      bias_sums[static_cast<int64_t>(i) % shape_.out_channels] += dys[i];
    }
    Store(bias_sums, DataType::kFloat32, dbias);
  }

 private:
  using Doubles = std::vector<double>;

  // Loads operands of products: rounded to the compute type.
  Doubles Load(DataType type, const void* from, int64_t count) const {
    Doubles values = LoadExactly(type, from, count);
    for (double& value : values) value = RoundTo(options_.compute_type, value);
    return values;
  }
  static Doubles LoadExactly(DataType type, const void* from, int64_t count) {
    Doubles values(count);
    for (int64_t i = 0; i < count; ++i) values[i] = LoadElement(type, from, i);
    return values;
  }
  static void Store(const Doubles& values, DataType type, void* to) {
    for (size_t i = 0; i < values.size(); ++i) {
      StoreElement(type, values[i], to, static_cast<int64_t>(i));
    }
  }

  // The pixels of dx that Forward reads.
  Doubles Compact(int64_t samples, const Doubles& dx) const {
    Doubles compact;
    for (int64_t sample = 0; sample < samples; ++sample) {
      for (int64_t h = 0; h < shape_.height; h += shape_.stride) {
        for (int64_t w = 0; w < shape_.width; w += shape_.stride) {
          const int64_t pixel = (sample * shape_.height + h) * shape_.width + w;
          const auto first = dx.begin() + pixel * shape_.in_channels;
          compact.insert(compact.end(), first, first + shape_.in_channels);
        }
      }
    }
    return compact;
  }

  // Calls visit(index in x, in the weights, in y) for each product that the convolution sums.
  template <typename Visit>
  void ForEachProduct(int64_t samples, const Visit& visit) const {
    const int64_t ins = shape_.in_channels / shape_.groups;
    const int64_t outs = shape_.out_channels / shape_.groups;
    int64_t out = 0;
    for (int64_t sample = 0; sample < samples; ++sample) {
      for (int64_t h = 0; h < shape_.out_height(); ++h) {
        for (int64_t w = 0; w < shape_.out_width(); ++w) {
          for (int64_t o = 0; o < shape_.out_channels; ++o, ++out) {
            for (int64_t tap = 0; tap < shape_.kernel * shape_.kernel; ++tap) {
              const int64_t in_h = h * shape_.stride + tap / shape_.kernel - shape_.padding;
              const int64_t in_w = w * shape_.stride + tap % shape_.kernel - shape_.padding;
              if (in_h < 0 || in_h >= shape_.height || in_w < 0 || in_w >= shape_.width) continue;
              const int64_t pixel = (sample * shape_.height + in_h) * shape_.width + in_w;
              const int64_t first_in = o / outs * ins;
              for (int64_t i = 0; i < ins; ++i) {
                visit(pixel * shape_.in_channels + first_in + i,
                      (o * ins + i) * shape_.kernel * shape_.kernel + tap, out);
              }
            }
          }
        }
      }
    }
  }

  const ConvolutionShape shape_;
  const ConvolutionOptions options_;
};

}  // namespace

std::unique_ptr<Convolution> MakeConvolution(const ConvolutionShape& shape,
                                             const ConvolutionOptions& options) {
  return std::make_unique<ReferenceConvolution>(shape, options);
}

}  // namespace muster::kernels::reference

#include "trainer/graph/parameter_layouts.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"

namespace muster::nn {

TensorLayout PlainLayout(int64_t elements) {
  return {.name = "plain", .elements = static_cast<size_t>(elements)};
}

TensorLayout ConvolutionLayout(const kernels::Convolution* convolution) {
  return {
      .name = convolution->weights_layout(),
      .elements = static_cast<size_t>(convolution->weights_elements()),
      .import_values = [convolution](const float* canonical,
                                     float* flat) { convolution->ImportWeights(canonical, flat); },
      .export_values = [convolution](
                           const float* flat,
                           float* canonical) { convolution->ExportWeights(flat, canonical); }};
}

TensorLayout OverFlattened(const ImageShape& image, int64_t out_features, TensorLayout inner) {
  const int64_t pixels = image.height * image.width;
  if (pixels == 1) return inner;
  const int64_t columns = pixels * image.channels;
  // Calls visit(channel-first element, channel-last element) for the whole matrix.
  const auto for_each = [=](const auto& visit) {
    for (int64_t out = 0; out < out_features; ++out) {
      for (int64_t pixel = 0; pixel < pixels; ++pixel) {
        for (int64_t c = 0; c < image.channels; ++c) {
          visit(out * columns + c * pixels + pixel, out * columns + pixel * image.channels + c);
        }
      }
    }
  };
  TensorLayout layout;
  layout.name = absl::StrCat(inner.name, " channel-last ", image.channels, "x", pixels);
  layout.elements = inner.elements;
  layout.import_values = [=, import = inner.import_values](const float* canonical, float* flat) {
    std::vector<float> channel_last(columns * out_features);
    for_each([&](int64_t first, int64_t last) { channel_last[last] = canonical[first]; });
    import(channel_last.data(), flat);
  };
  layout.export_values = [=, export_ = inner.export_values](const float* flat, float* canonical) {
    std::vector<float> channel_last(columns * out_features);
    export_(flat, channel_last.data());
    for_each([&](int64_t first, int64_t last) { canonical[first] = channel_last[last]; });
  };
  return layout;
}

}  // namespace muster::nn

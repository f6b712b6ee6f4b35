#include "kernels/cuda/convolution/convolution_kernels.h"
#include "kernels/cuda/launch/channel_tiling.h"
#include "kernels/cuda/table/kernels.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

template <typename Storage, int kWidth>
struct ColumnTerms {
  const Storage* x;
  int64_t columns;

  struct PerThread {
    static constexpr int kInFlight = 4;
    const Storage* x;  // null without rows
    int64_t columns;
    int64_t column;
    MUSTER_HOST_DEVICE AlignedVector<Storage, kWidth> Read(int64_t row) const {
      return LoadStored<kWidth>(x + row * columns + column);
    }
    MUSTER_HOST_DEVICE void Add(int64_t, const AlignedVector<Storage, kWidth>& stored,
                                Floats<kWidth>* sums) const {
      const Floats<kWidth> values = Widened(stored);
      for (int i = 0; i < kWidth; ++i) sums[0][i] += values[i];
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t, int64_t column) const {
    return {x, columns, column};
  }
};

struct ColumnFinish {
  float* sums;
  MUSTER_HOST_DEVICE void operator()(int64_t, int64_t column, const double* sum) const {
    sums[column] = static_cast<float>(sum[0]);
  }
};

void ColumnSums(DataType type, int64_t rows, int64_t columns, const void* x, float* sums) {
  StateWork(ArrayBytes(type, rows * columns));
  DispatchWidth(type, columns, {x}, [&](auto element, auto width) {
    using Storage = decltype(element);
    SumOverPixels<width, 1>(rows, columns, 1,
                            ColumnTerms<Storage, width>{static_cast<const Storage*>(x), columns},
                            ColumnFinish{sums});
  });
}

template <typename Sum, typename Storage, int kWidth>
struct EpilogueBody {
  int64_t channels;
  const Sum* sums;
  Epilogue epilogue;
  Storage* y;

  struct PerThread {
    EpilogueBody all;
    int64_t channel;
    Floats<kWidth> scale;
    Floats<kWidth> shift;
    MUSTER_HOST_DEVICE void operator()(int64_t pixel) const {
      const int64_t at = pixel * all.channels + channel;
      Floats<kWidth> values = Load<kWidth>(all.sums + at);
      Floats<kWidth> added = {};
      const auto* addend = static_cast<const Storage*>(all.epilogue.addend);
      if (addend != nullptr) added = Load<kWidth>(addend + at);
      for (int i = 0; i < kWidth; ++i) {
        values[i] = Activate(all.epilogue.activation, values[i] * scale[i] + shift[i] + added[i]);
      }
      Store<kWidth>(all.y + at, values);
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t channel) const {
    PerThread result{*this, channel, {}, {}};
    for (int i = 0; i < kWidth; ++i) {
      result.scale[i] = epilogue.scale != nullptr ? epilogue.scale[channel + i] : 1.0f;
      result.shift[i] = epilogue.shift != nullptr ? epilogue.shift[channel + i] : 0.0f;
    }
    return result;
  }
};

void ApplyEpilogue(int64_t pixels, int64_t channels, DataType sums_type, const void* sums,
                   const Epilogue& epilogue, DataType y_type, void* y) {
  const int arrays = epilogue.addend != nullptr ? 2 : 1;
  StateWork(ArrayBytes(sums_type, pixels * channels) +
            arrays * ArrayBytes(y_type, pixels * channels));
  DispatchType(sums_type, [&](auto sum) {
    // The vector width is that of y's type. If y has 16-bit elements and sums is float32, a thread
    // loads eight floats, two 16-byte loads.
    DispatchWidth(y_type, channels, {sums, epilogue.addend, y}, [&](auto element, auto width) {
      using Sum = decltype(sum);
      using Storage = decltype(element);
      const EpilogueBody<Sum, Storage, width> body{channels, static_cast<const Sum*>(sums),
                                                   epilogue, static_cast<Storage*>(y)};
      ForEachPixel<width>(pixels, channels, body);
    });
  });
}

}  // namespace

const ConvolutionKernels kConvolutionKernels = {
    .column_sums = ColumnSums,
    .apply_epilogue = ApplyEpilogue,
    .nt_xent_losses = NtXentLosses,
    .nt_xent_coefficients = NtXentCoefficients,
};

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

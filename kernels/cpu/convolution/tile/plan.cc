#include "kernels/cpu/convolution/tile/plan.h"

#include <algorithm>

namespace muster::kernels::cpu {

// Rows or columns that use the same taps of their axis.
struct AxisClass {
  int64_t first;  // index of the first tap in the packed order
  int64_t count;  // taps at consecutive indices and consecutive positions of the source
  struct Position {
    int64_t source;  // offset of the first tap
    int64_t target;
  };
  std::vector<Position> positions;
};

namespace {

// Packed panels share the second-level cache with the pixels that they are multiplied by.
constexpr int64_t kGroupBytes = 384 << 10;
constexpr int64_t kStepBytes = 4;

std::vector<AxisClass::Position>& PositionsOf(std::vector<AxisClass>& axis, int64_t first,
                                              int64_t count) {
  for (AxisClass& known : axis) {
    if (known.count == count && (count == 0 || known.first == first)) return known.positions;
  }
  return axis.emplace_back(AxisClass{.first = first, .count = count, .positions = {}}).positions;
}

std::vector<AxisClass> ForwardAxis(const TileConvolutionShape& shape, int64_t size,
                                   int64_t out_size) {
  std::vector<AxisClass> axis;
  for (int64_t out = 0; out < out_size; ++out) {
    const int64_t begin = out * shape.stride - shape.padding;
    const int64_t first = std::max<int64_t>(0, -begin);
    const int64_t count = std::max<int64_t>(0, std::min(shape.kernel, size - begin) - first);
    PositionsOf(axis, first, count).push_back({.source = begin + first, .target = out});
  }
  return axis;
}

// Tap t connects input position i and output (i + padding - t) / stride: consecutive outputs have
// taps that decrease by the stride, which is therefore the packed order.
std::vector<int64_t> BackwardOrder(const TileConvolutionShape& shape) {
  std::vector<int64_t> order;
  for (int64_t last = shape.kernel - 1; last >= std::max<int64_t>(0, shape.kernel - shape.stride);
       --last) {
    for (int64_t tap = last; tap >= 0; tap -= shape.stride) order.push_back(tap);
  }
  return order;
}

std::vector<AxisClass> BackwardAxis(const TileConvolutionShape& shape, int64_t size,
                                    int64_t out_size) {
  const std::vector<int64_t> order = BackwardOrder(shape);
  std::vector<AxisClass> axis;
  for (int64_t in = 0; in < size; ++in) {
    int64_t first = 0;
    int64_t count = 0;
    int64_t source = 0;
    for (int64_t place = 0; place < shape.kernel; ++place) {
      const int64_t reach = in + shape.padding - order[place];
      if (reach < 0 || reach % shape.stride != 0 || reach / shape.stride >= out_size) continue;
      if (count++ > 0) continue;
      first = place;
      source = reach / shape.stride;
    }
    PositionsOf(axis, first, count).push_back({.source = source, .target = in});
  }
  return axis;
}

}  // namespace

std::unique_ptr<const TilePlanner> TilePlanner::Forward(const TileConvolutionShape& shape,
                                                        DataType type, DataType target_type,
                                                        int64_t lanes) {
  std::unique_ptr<TilePlanner> planner(new TilePlanner);
  planner->plan_.type = type;
  planner->plan_.source_channels = shape.in_channels;
  planner->plan_.target_channels = shape.out_channels;
  const int64_t x_pixel = planner->plan_.steps() * kStepBytes;
  const auto y_pixel = static_cast<int64_t>(shape.out_channels * SizeOf(target_type));
  planner->plan_.source_image_bytes = shape.height * shape.width * x_pixel;
  planner->plan_.target_image_bytes = shape.out_height() * shape.out_width() * y_pixel;
  std::vector<int64_t> order;
  for (int64_t tap = 0; tap < shape.kernel; ++tap) order.push_back(tap);
  planner->Fill(ForwardAxis(shape, shape.height, shape.out_height()),
                ForwardAxis(shape, shape.width, shape.out_width()), order,
                {.source = shape.width * x_pixel,
                 .target = shape.out_width() * y_pixel,
                 .source_pixel = x_pixel,
                 .target_pixel = y_pixel});
  planner->SetGroup(lanes);
  return planner;
}

std::unique_ptr<const TilePlanner> TilePlanner::BackwardData(const TileConvolutionShape& shape,
                                                             DataType type, DataType target_type,
                                                             int64_t lanes) {
  std::unique_ptr<TilePlanner> planner(new TilePlanner);
  planner->plan_.type = type;
  planner->plan_.transposed = true;
  planner->plan_.source_channels = shape.out_channels;
  planner->plan_.target_channels = shape.in_channels;
  const int64_t y_pixel = planner->plan_.steps() * kStepBytes;
  const auto x_pixel = static_cast<int64_t>(shape.in_channels * SizeOf(target_type));
  planner->plan_.source_image_bytes = shape.out_height() * shape.out_width() * y_pixel;
  planner->plan_.target_image_bytes = shape.height * shape.width * x_pixel;
  planner->Fill(BackwardAxis(shape, shape.height, shape.out_height()),
                BackwardAxis(shape, shape.width, shape.out_width()), BackwardOrder(shape),
                {.source = shape.out_width() * y_pixel,
                 .target = shape.width * x_pixel,
                 .source_pixel = y_pixel,
                 .target_pixel = x_pixel});
  planner->SetGroup(lanes);
  return planner;
}

void TilePlanner::Fill(const std::vector<AxisClass>& vertical,
                       const std::vector<AxisClass>& horizontal, const std::vector<int64_t>& order,
                       const Strides& bytes) {
  kernel_ = static_cast<int64_t>(order.size());
  taps_.assign(kernel_ * kernel_, -1);
  for (const AxisClass& rows : vertical) {
    for (const AxisClass& columns : horizontal) {
      AddClass(rows, columns, bytes);
      for (int64_t r = rows.first; r < rows.first + rows.count; ++r) {
        for (int64_t s = columns.first; s < columns.first + columns.count; ++s) {
          taps_[r * kernel_ + s] = order[r] * kernel_ + order[s];
        }
      }
    }
  }
  plan_.taps = taps_.data();
  plan_.tap_count = kernel_ * kernel_;
  plan_.classes = classes_.data();
  plan_.class_count = static_cast<int64_t>(classes_.size());
}

void TilePlanner::AddClass(const AxisClass& vertical, const AxisClass& horizontal,
                           const Strides& bytes) {
  std::vector<TileRun>& runs = runs_.emplace_back();
  for (int64_t r = 0; r < vertical.count && horizontal.count > 0; ++r) {
    const int64_t place = (vertical.first + r) * kernel_ + horizontal.first;
    runs.push_back({.source = r * bytes.source,
                    .step = place * plan_.steps(),
                    .steps = horizontal.count * plan_.steps()});
  }
  std::vector<TilePosition>& rows = positions_.emplace_back();
  for (const AxisClass::Position& at : vertical.positions) {
    rows.push_back({.source = at.source * bytes.source, .target = at.target * bytes.target});
  }
  std::vector<TilePosition>& columns = positions_.emplace_back();
  for (const AxisClass::Position& at : horizontal.positions) {
    columns.push_back(
        {.source = at.source * bytes.source_pixel, .target = at.target * bytes.target_pixel});
  }
  classes_.push_back({.runs = runs.data(),
                      .run_count = static_cast<int64_t>(runs.size()),
                      .rows = rows.data(),
                      .row_count = static_cast<int64_t>(rows.size()),
                      .columns = columns.data(),
                      .column_count = static_cast<int64_t>(columns.size())});
}

void TilePlanner::SetGroup(int64_t lanes) {
  const int64_t panel = plan_.tap_count * plan_.steps() * 2 * lanes * kStepBytes;
  const int64_t panels = (plan_.target_channels + 2 * lanes - 1) / (2 * lanes);
  plan_.group_panels = std::clamp<int64_t>(kGroupBytes / panel, 1, panels);
  plan_.group_bytes = plan_.group_panels * panel;
}

}  // namespace muster::kernels::cpu

#include "kernels/cpu/grid_plan.h"

#include <algorithm>

namespace muster::kernels::cpu {

// Lines of the grid, or columns.
struct GridPlanner::Axis {
  struct Tap {
    int64_t tap;
    int64_t plane;   // element i of it is element i * source_step + plane of the source
    int64_t target;  // element i of it is element i * target_step + target of the target
    int64_t shift;   // element i of the target sees element i + shift of the plane
  };

  int64_t source_size, target_size;
  int64_t source_step, target_step;
  std::vector<Tap> taps;  // that see an element at all
  int64_t lead = 0;       // zeros in front of a plane's elements
  int64_t pitch = 0;      // positions of the grid

  static int64_t Elements(int64_t size, int64_t first, int64_t step) {
    return first < size ? (size - first + step - 1) / step : 0;
  }

  void Add(const Tap& tap) {
    const int64_t sources = Elements(source_size, tap.plane, source_step);
    const int64_t targets = Elements(target_size, tap.target, target_step);
    const bool sees = std::max<int64_t>(0, -tap.shift) < std::min(targets, sources - tap.shift);
    if (sees) taps.push_back(tap);
  }

  // The zeros in front of the next line, or of the next image, are those behind this one, too.
  void Place() {
    int64_t before = 0, behind = 0;
    for (const Tap& tap : taps) {
      before = std::max(before, -tap.shift);
      behind = std::max(behind, Elements(target_size, tap.target, target_step) + tap.shift -
                                    Elements(source_size, tap.plane, source_step));
    }
    // Planes and targets of fewer elements than the first end in zeros of their own.
    lead = std::max(before, behind);
    pitch = std::max(lead + Elements(source_size, 0, source_step),
                     Elements(target_size, 0, target_step));
  }
};

namespace {

int64_t Modulo(int64_t value, int64_t divisor) { return (value % divisor + divisor) % divisor; }

}  // namespace

// Element i of the output sees element i * stride + tap - padding of the input.
GridPlanner::Axis GridPlanner::ForwardAxis(const ConvolutionShape& shape, int64_t size,
                                           int64_t out_size) {
  Axis axis{
      .source_size = size, .target_size = out_size, .source_step = shape.stride, .target_step = 1};
  for (int64_t tap = 0; tap < shape.kernel; ++tap) {
    const int64_t plane = Modulo(tap - shape.padding, shape.stride);
    axis.Add({tap, plane, 0, (tap - shape.padding - plane) / shape.stride});
  }
  axis.Place();
  return axis;
}

GridPlanner::Axis GridPlanner::BackwardAxis(const ConvolutionShape& shape, int64_t size,
                                            int64_t out_size) {
  Axis axis{
      .source_size = out_size, .target_size = size, .source_step = 1, .target_step = shape.stride};
  for (int64_t tap = 0; tap < shape.kernel; ++tap) {
    const int64_t target = Modulo(tap - shape.padding, shape.stride);
    axis.Add({tap, 0, target, (target + shape.padding - tap) / shape.stride});
  }
  axis.Place();
  return axis;
}

std::unique_ptr<const GridPlanner> GridPlanner::Forward(const ConvolutionShape& shape) {
  std::unique_ptr<GridPlanner> planner(new GridPlanner);
  planner->Fill(shape, ForwardAxis(shape, shape.height, shape.out_height()),
                ForwardAxis(shape, shape.width, shape.out_width()));
  return planner;
}

std::unique_ptr<const GridPlanner> GridPlanner::BackwardData(const ConvolutionShape& shape) {
  std::unique_ptr<GridPlanner> planner(new GridPlanner);
  planner->Fill(shape, BackwardAxis(shape, shape.height, shape.out_height()),
                BackwardAxis(shape, shape.width, shape.out_width()));
  return planner;
}

std::vector<int32_t> GridPlanner::PixelsOf(const Axis& vertical, const Axis& horizontal,
                                           bool source, int64_t first_line, int64_t first_column) {
  std::vector<int32_t> pixels(vertical.pitch * horizontal.pitch, -1);
  const auto visit = [&](const Axis& axis, int64_t first, const auto& see) {
    const int64_t size = source ? axis.source_size : axis.target_size;
    const int64_t step = source ? axis.source_step : axis.target_step;
    int64_t position = source ? axis.lead : 0;
    for (int64_t at = first; at < size; at += step) see(position++, at);
  };
  const int64_t width = source ? horizontal.source_size : horizontal.target_size;
  visit(vertical, first_line, [&](int64_t line, int64_t h) {
    visit(horizontal, first_column, [&](int64_t column, int64_t w) {
      pixels[line * horizontal.pitch + column] = static_cast<int32_t>(h * width + w);
    });
  });
  return pixels;
}

void GridPlanner::Fill(const ConvolutionShape& shape, const Axis& vertical,
                       const Axis& horizontal) {
  plan_.positions = vertical.pitch * horizontal.pitch;
  plan_.source_pixels = vertical.source_size * horizontal.source_size;
  plan_.target_pixels = vertical.target_size * horizontal.target_size;
  std::vector<int64_t> planes(vertical.source_step * horizontal.source_step, -1);
  for (int64_t line = 0; line < std::min(vertical.target_step, vertical.target_size); ++line) {
    for (int64_t column = 0; column < std::min(horizontal.target_step, horizontal.target_size);
         ++column) {
      std::vector<GridTap>& taps = taps_.emplace_back();
      for (const Axis::Tap& r : vertical.taps) {
        for (const Axis::Tap& s : horizontal.taps) {
          if (r.target != line || s.target != column) continue;
          int64_t& plane = planes[r.plane * horizontal.source_step + s.plane];
          if (plane < 0) {
            plane = plan_.planes++;
            const auto pixels = PixelsOf(vertical, horizontal, true, r.plane, s.plane);
            sources_.insert(sources_.end(), pixels.begin(), pixels.end());
          }
          const int64_t shift =
              (r.shift + vertical.lead) * horizontal.pitch + s.shift + horizontal.lead;
          plan_.largest_shift = std::max(plan_.largest_shift, shift);
          taps.push_back({r.tap * shape.kernel + s.tap, plane, shift});
        }
      }
      plan_.tap_count += static_cast<int64_t>(taps.size());
      pixels_.push_back(PixelsOf(vertical, horizontal, false, line, column));
    }
  }
  for (size_t i = 0; i < taps_.size(); ++i) {
    targets_.push_back({.taps = taps_[i].data(),
                        .tap_count = static_cast<int64_t>(taps_[i].size()),
                        .pixels = pixels_[i].data()});
  }
  plan_.sources = sources_.data();
  plan_.targets = targets_.data();
  plan_.target_count = static_cast<int64_t>(targets_.size());
}

}  // namespace muster::kernels::cpu

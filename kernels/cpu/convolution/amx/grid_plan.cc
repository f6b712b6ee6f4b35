#include "kernels/cpu/convolution/amx/grid_plan.h"

#include <algorithm>
#include <utility>

namespace muster::kernels::cpu {

// The rows or the columns of the grid.
struct GridPlanner::Axis {
  struct Tap {
    int64_t tap;
    int64_t plane;   // its element i is element i * source_step + plane of the source
    int64_t target;  // its element i is element i * target_step + target of the target
    int64_t shift;   // element i of the target uses element i + shift of the plane
  };

  int64_t source_size, target_size;
  int64_t source_step, target_step;
  std::vector<Tap> taps;  // taps that use any element
  int64_t lead = 0;       // zeros before a plane's elements
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

  // Makes every element its own plane and target.
  Axis Apart() const {
    Axis apart{.source_size = source_size,
               .target_size = target_size,
               .source_step = source_size,
               .target_step = target_size};
    for (const Tap& tap : taps) {
      for (int64_t i = 0; i < Elements(target_size, tap.target, target_step); ++i) {
        const int64_t source = (i + tap.shift) * source_step + tap.plane;
        if (source < 0 || source >= source_size) continue;
        apart.Add({tap.tap, source, i * target_step + tap.target, 0});
      }
    }
    apart.Place();
    return apart;
  }

  // The zeros before the next row or image also serve as the zeros after this one.
  void Place() {
    int64_t before = 0, behind = 0;
    for (const Tap& tap : taps) {
      before = std::max(before, -tap.shift);
      behind = std::max(behind, Elements(target_size, tap.target, target_step) + tap.shift -
                                    Elements(source_size, tap.plane, source_step));
    }
    // Planes and targets with fewer elements than the first are padded with zeros.
    lead = std::max(before, behind);
    pitch = std::max(lead + Elements(source_size, 0, source_step),
                     Elements(target_size, 0, target_step));
  }
};

namespace {

// Maximum number of uses, beyond which a plan's tables are no longer small.
constexpr size_t kMaxUses = 4096;

int64_t Modulo(int64_t value, int64_t divisor) { return (value % divisor + divisor) % divisor; }

}  // namespace

// Element i of the output uses element i * stride + tap - padding of the input.
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

std::unique_ptr<const GridPlanner> GridPlanner::Forward(const ConvolutionShape& shape,
                                                        GridWork work, int64_t images) {
  return Cheapest(shape, ForwardAxis, work, images);
}

std::unique_ptr<const GridPlanner> GridPlanner::ForwardOfWindows(const ConvolutionShape& shape) {
  return std::unique_ptr<GridPlanner>(
      new GridPlanner(ForwardAxis(shape, shape.height, shape.out_height()),
                      ForwardAxis({}, shape.out_width(), shape.out_width()), 1));
}

std::unique_ptr<const GridPlanner> GridPlanner::BackwardData(const ConvolutionShape& shape,
                                                             int64_t images) {
  return Cheapest(shape, BackwardAxis, GridWork::kProduct, images);
}

std::unique_ptr<const GridPlanner> GridPlanner::Cheapest(const ConvolutionShape& shape,
                                                         MakeAxis* make_axis, GridWork work,
                                                         int64_t images) {
  const Axis rows = make_axis(shape, shape.height, shape.out_height());
  const Axis columns = make_axis(shape, shape.width, shape.out_width());
  std::unique_ptr<const GridPlanner> best(new GridPlanner(rows, columns, shape.kernel));
  for (const bool rows_apart : {false, true}) {
    for (const bool columns_apart : {false, true}) {
      const Axis vertical = rows_apart ? rows.Apart() : rows;
      const Axis horizontal = columns_apart ? columns.Apart() : columns;
      if (vertical.taps.size() * horizontal.taps.size() > kMaxUses) continue;
      std::unique_ptr<const GridPlanner> planner(
          new GridPlanner(vertical, horizontal, shape.kernel));
      // Many targets have a cost of their own.
      if (planner->Cost(work, images) * 10 < best->Cost(work, images) * 9)
        best = std::move(planner);
    }
  }
  return best;
}

int64_t GridPlanner::Cost(GridWork work, int64_t images) const {
  const auto uses = static_cast<int64_t>(uses_.size());
  if (work == GridWork::kProduct) return (images * plan_.positions + 31) / 32 * uses;
  return ((images + 1) / 2 * plan_.positions + 15) / 16 * uses;
}

std::vector<int32_t> GridPlanner::PixelsOf(const Axis& vertical, const Axis& horizontal,
                                           bool source, int64_t first_row, int64_t first_column) {
  std::vector<int32_t> pixels(vertical.pitch * horizontal.pitch, -1);
  const auto visit = [&](const Axis& axis, int64_t first, const auto& see) {
    const int64_t size = source ? axis.source_size : axis.target_size;
    const int64_t step = source ? axis.source_step : axis.target_step;
    int64_t position = source ? axis.lead : 0;
    for (int64_t at = first; at < size; at += step) see(position++, at);
  };
  const int64_t width = source ? horizontal.source_size : horizontal.target_size;
  visit(vertical, first_row, [&](int64_t row, int64_t h) {
    visit(horizontal, first_column, [&](int64_t column, int64_t w) {
      pixels[row * horizontal.pitch + column] = static_cast<int32_t>(h * width + w);
    });
  });
  return pixels;
}

GridPlanner::GridPlanner(const Axis& vertical, const Axis& horizontal, int64_t row_taps) {
  plan_.positions = vertical.pitch * horizontal.pitch;
  plan_.target_pixels = vertical.target_size * horizontal.target_size;
  std::vector<int64_t> planes(vertical.source_step * horizontal.source_step, -1);
  const auto plane_of = [&](const Axis::Tap& r, const Axis::Tap& s) {
    int64_t& plane = planes[r.plane * horizontal.source_step + s.plane];
    if (plane < 0) {
      plane = plan_.planes++;
      const auto pixels = PixelsOf(vertical, horizontal, true, r.plane, s.plane);
      sources_.insert(sources_.end(), pixels.begin(), pixels.end());
    }
    return plane;
  };
  const auto place_of = [&](int64_t tap) {
    const auto place = std::find(taps_.begin(), taps_.end(), tap) - taps_.begin();
    if (place == static_cast<int64_t>(taps_.size())) taps_.push_back(tap);
    return static_cast<int64_t>(place);
  };
  for (int64_t row = 0; row < std::min(vertical.target_step, vertical.target_size); ++row) {
    for (int64_t column = 0; column < std::min(horizontal.target_step, horizontal.target_size);
         ++column) {
      const auto target = static_cast<int64_t>(target_taps_.size());
      std::vector<GridTap>& taps = target_taps_.emplace_back();
      for (const Axis::Tap& r : vertical.taps) {
        if (r.target != row) continue;
        for (const Axis::Tap& s : horizontal.taps) {
          if (s.target != column) continue;
          const int64_t shift =
              (r.shift + vertical.lead) * horizontal.pitch + s.shift + horizontal.lead;
          plan_.largest_shift = std::max(plan_.largest_shift, shift);
          taps.push_back({place_of(r.tap * row_taps + s.tap), target, plane_of(r, s), shift});
        }
      }
      pixels_.push_back(PixelsOf(vertical, horizontal, false, row, column));
    }
  }
  for (size_t i = 0; i < target_taps_.size(); ++i) {
    targets_.push_back({.taps = target_taps_[i].data(),
                        .tap_count = static_cast<int64_t>(target_taps_[i].size()),
                        .pixels = pixels_[i].data()});
  }
  ListUses();
  plan_.sources = sources_.data();
  plan_.targets = targets_.data();
  plan_.target_count = static_cast<int64_t>(targets_.size());
  plan_.taps = taps_.data();
  plan_.tap_count = static_cast<int64_t>(taps_.size());
  plan_.uses = uses_.data();
  plan_.first_uses = first_uses_.data();
}

void GridPlanner::ListUses() {
  for (const std::vector<GridTap>& taps : target_taps_) {
    uses_.insert(uses_.end(), taps.begin(), taps.end());
  }
  std::stable_sort(uses_.begin(), uses_.end(),
                   [](const GridTap& a, const GridTap& b) { return a.place < b.place; });
  for (int64_t place = 0; place <= static_cast<int64_t>(taps_.size()); ++place) {
    const auto first = std::find_if(uses_.begin(), uses_.end(),
                                    [&](const GridTap& use) { return use.place >= place; });
    first_uses_.push_back(first - uses_.begin());
  }
}

}  // namespace muster::kernels::cpu

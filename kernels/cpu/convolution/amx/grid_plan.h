// Creates plans of convolutions over grids; see kernels/cpu/convolution/amx/grid.h.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_AMX_GRID_PLAN_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_AMX_GRID_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/convolution.h"
#include "kernels/cpu/convolution/amx/grid.h"

namespace muster::kernels::cpu {

// Purpose of a plan: sums over taps and channels, or over positions.
enum class GridWork { kProduct, kGradient };

// Owns the arrays of a plan.
class GridPlanner {
 public:
  // Plan from x to y with the smallest cost for that many images.
  static std::unique_ptr<const GridPlanner> Forward(const ConvolutionShape& shape, GridWork work,
                                                    int64_t images);
  // From windows to y: windows are [height, out_width, kernel * in_channels], for each output the
  // pixels of a row of x that it uses. A kernel row is one tap.
  static std::unique_ptr<const GridPlanner> ForwardOfWindows(const ConvolutionShape& shape);
  // Plan from dy to dx.
  static std::unique_ptr<const GridPlanner> BackwardData(const ConvolutionShape& shape,
                                                         int64_t images);

  const GridPlan& plan() const { return plan_; }

 private:
  struct Axis;

  using MakeAxis = Axis(const ConvolutionShape& shape, int64_t size, int64_t out_size);

  GridPlanner(const Axis& vertical, const Axis& horizontal, int64_t row_taps);
  static Axis ForwardAxis(const ConvolutionShape& shape, int64_t size, int64_t out_size);
  static Axis BackwardAxis(const ConvolutionShape& shape, int64_t size, int64_t out_size);
  static std::unique_ptr<const GridPlanner> Cheapest(const ConvolutionShape& shape,
                                                     MakeAxis* make_axis, GridWork work,
                                                     int64_t images);
  // Number of tile products per tile of channels.
  int64_t Cost(GridWork work, int64_t images) const;
  void ListUses();
  // The pixel at each position of the plane or target that begins with this row and column.
  static std::vector<int32_t> PixelsOf(const Axis& vertical, const Axis& horizontal, bool source,
                                       int64_t first_row, int64_t first_column);

  GridPlan plan_{};
  std::vector<int32_t> sources_;
  std::vector<GridTarget> targets_;
  std::vector<std::vector<GridTap>> target_taps_;
  std::vector<int64_t> taps_;
  std::vector<GridTap> uses_;
  std::vector<int64_t> first_uses_;
  std::vector<std::vector<int32_t>> pixels_;
};

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_AMX_GRID_PLAN_H_

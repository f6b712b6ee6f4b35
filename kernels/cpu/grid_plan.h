// Plans of convolutions over grids; see kernels/cpu/grid.h.
#ifndef MUSTER_KERNELS_CPU_GRID_PLAN_H_
#define MUSTER_KERNELS_CPU_GRID_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/convolution.h"
#include "kernels/cpu/grid.h"

namespace muster::kernels::cpu {

// Owns what the plan points to.
class GridPlanner {
 public:
  // x to y.
  static std::unique_ptr<const GridPlanner> Forward(const ConvolutionShape& shape);
  // dy to dx.
  static std::unique_ptr<const GridPlanner> BackwardData(const ConvolutionShape& shape);

  const GridPlan& plan() const { return plan_; }

 private:
  struct Axis;

  GridPlanner() = default;
  static Axis ForwardAxis(const ConvolutionShape& shape, int64_t size, int64_t out_size);
  static Axis BackwardAxis(const ConvolutionShape& shape, int64_t size, int64_t out_size);
  void Fill(const ConvolutionShape& shape, const Axis& vertical, const Axis& horizontal);
  // The pixel at each position of the grid of every `step`th line and column, the first ones given.
  static std::vector<int32_t> PixelsOf(const Axis& vertical, const Axis& horizontal, bool source,
                                       int64_t first_line, int64_t first_column);

  GridPlan plan_{};
  std::vector<int32_t> sources_;
  std::vector<GridTarget> targets_;
  std::vector<std::vector<GridTap>> taps_;
  std::vector<std::vector<int32_t>> pixels_;
};

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_GRID_PLAN_H_

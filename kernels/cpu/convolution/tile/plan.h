// Creates plans of the tile convolution: the taps that each pixel uses.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PLAN_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PLAN_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/cpu/convolution/tile/product.h"
#include "kernels/data_type.h"

namespace muster::kernels::cpu {

struct AxisClass;

// Owns the arrays of a TilePlan, which is valid for any number of samples. Immutable.
class TilePlanner {
 public:
  // `type` is that of the products and the source, `target_type` that of the target; lanes is
  // DenseKernels::lanes. shape.samples is ignored.
  static std::unique_ptr<const TilePlanner> Forward(const TileConvolutionShape& shape,
                                                    DataType type, DataType target_type,
                                                    int64_t lanes);
  static std::unique_ptr<const TilePlanner> BackwardData(const TileConvolutionShape& shape,
                                                         DataType type, DataType target_type,
                                                         int64_t lanes);
  TilePlanner(const TilePlanner&) = delete;
  TilePlanner& operator=(const TilePlanner&) = delete;

  const TilePlan& plan() const { return plan_; }

 private:
  struct Strides {  // strides of an image, in bytes
    int64_t source, target, source_pixel, target_pixel;
  };

  TilePlanner() = default;
  void Fill(const std::vector<AxisClass>& vertical, const std::vector<AxisClass>& horizontal,
            const std::vector<int64_t>& order, const Strides& bytes);
  void AddClass(const AxisClass& vertical, const AxisClass& horizontal, const Strides& bytes);
  void SetGroup(int64_t lanes);

  TilePlan plan_ = {};
  int64_t kernel_ = 1;
  std::vector<TileClass> classes_;
  std::deque<std::vector<TileRun>> runs_;  // a deque, because classes point to its elements
  std::deque<std::vector<TilePosition>> positions_;
  std::vector<int64_t> taps_;
};

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PLAN_H_

// Conversion of weights to the panel layout of kernels/cpu/convolution/tile/product.h.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PANEL_WEIGHTS_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PANEL_WEIGHTS_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/convolution/tile/product.h"

namespace muster::kernels::cpu {

inline std::string TileWeightsLayout(const TilePanels& panels) {
  return absl::StrCat("panels of ", panels.full_width());
}

// Calls visit(canonical index, panel index) for each weight.
template <typename Visit>
void ForEachTileWeight(const TilePanels& panels, int64_t in_channels, const Visit& visit) {
  const int64_t taps = panels.depth / in_channels;
  for (int64_t o = 0; o < panels.out_channels; ++o) {
    const int64_t panel = o / panels.full_width();
    for (int64_t i = 0; i < in_channels; ++i) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        visit((o * in_channels + i) * taps + tap,
              panels.offset(panel, tap * in_channels + i, o % panels.full_width()));
      }
    }
  }
}

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PANEL_WEIGHTS_H_

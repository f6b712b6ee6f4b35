// Weights from and to the panel layout of kernels/tile_convolution.h.
#ifndef MUSTER_KERNELS_CPU_TILE_WEIGHTS_H_
#define MUSTER_KERNELS_CPU_TILE_WEIGHTS_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/tile_convolution.h"

namespace muster::kernels::cpu {

inline std::string TileWeightsLayout(const TilePanels& panels) {
  return absl::StrCat("panels of ", panels.full_width());
}

// Calls visit(index in canonical order, index in the panels) for each weight.
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

inline void ImportTileWeights(const TilePanels& panels, int64_t in_channels, const float* canonical,
                              float* weights) {
  std::fill_n(weights, panels.elements(), 0.0f);
  ForEachTileWeight(panels, in_channels,
                    [&](int64_t oihw, int64_t at) { weights[at] = canonical[oihw]; });
}

inline void ExportTileWeights(const TilePanels& panels, int64_t in_channels, const float* weights,
                              float* canonical) {
  ForEachTileWeight(panels, in_channels,
                    [&](int64_t oihw, int64_t at) { canonical[oihw] = weights[at]; });
}

// To [tap][in channel][out channel].
inline void JoinTilePanels(const TilePanels& panels, const float* weights, float* lines) {
  for (int64_t panel = 0; panel < panels.count(); ++panel) {
    for (int64_t line = 0; line < panels.depth; ++line) {
      std::copy_n(weights + panels.offset(panel, line, 0), panels.channels(panel),
                  lines + line * panels.out_channels + panel * panels.full_width());
    }
  }
}

// And back; zeros beyond the last channel.
inline void SplitTilePanels(const TilePanels& panels, const float* lines, float* weights) {
  for (int64_t panel = 0; panel < panels.count(); ++panel) {
    const int64_t channels = panels.channels(panel);
    for (int64_t line = 0; line < panels.depth; ++line) {
      float* const to = weights + panels.offset(panel, line, 0);
      std::copy_n(lines + line * panels.out_channels + panel * panels.full_width(), channels, to);
      std::fill(to + channels, to + panels.width(panel), 0.0f);
    }
  }
}

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_TILE_WEIGHTS_H_

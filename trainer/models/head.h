// The last layers of a model.
#ifndef MUSTER_TRAINER_MODELS_HEAD_H_
#define MUSTER_TRAINER_MODELS_HEAD_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trainer/graph/graph.h"

namespace muster::nn {

// A classifier, or the projection head of contrastive learning (Chen et al., "A Simple Framework
// for Contrastive Learning of Visual Representations", 2020).
struct ModelHead {
  int64_t classes = 0;
  // Widths of the linear layers, with ReLU between them, that replace the model's last layer.
  // Empty: one as wide as its input, then 128.
  std::optional<std::vector<int64_t>> projection;
};

// Appends `classifier` as `name` after the graph's last node, or the projection as NAME.0, NAME.1,
// …, with PyTorch's default initialization. INVALID_ARGUMENT if the last node cannot be the input
// of a linear layer.
absl::Status AddHead(absl::string_view name, const Linear& classifier, const ModelHead& head,
                     Graph& graph);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_MODELS_HEAD_H_

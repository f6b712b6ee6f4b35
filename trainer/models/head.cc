#include "trainer/models/head.h"

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "trainer/graph/shapes.h"
#include "trainer/models/chain.h"

namespace muster::nn {

absl::Status AddHead(absl::string_view name, const Linear& classifier, const ModelHead& head,
                     Graph& graph) {
  const NodeId last = static_cast<NodeId>(graph.nodes.size()) - 1;
  if (!head.projection.has_value()) {
    graph.Add(std::string(name), classifier, {last});
    return absl::OkStatus();
  }
  std::vector<int64_t> widths = *head.projection;
  if (widths.empty()) {
    ASSIGN_OR_RETURN(const std::vector<ValueShape> shapes, InferShapes(graph));
    widths = {shapes.back().elements(), 128};
  }
  Chain projection(&graph, last, absl::StrCat(name, "."));
  for (size_t i = 0; i < widths.size(); ++i) {
    if (i > 0) projection.Add(absl::StrCat(2 * i - 1), Relu{});
    projection.Add(absl::StrCat(2 * i), Linear{.out_features = widths[i]});
  }
  return absl::OkStatus();
}

}  // namespace muster::nn

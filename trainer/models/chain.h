// A sequence of layers, like torch.nn.Sequential.
#ifndef MUSTER_TRAINER_MODELS_CHAIN_H_
#define MUSTER_TRAINER_MODELS_CHAIN_H_

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "trainer/graph/graph.h"

namespace muster::nn {

// Appends to a graph, which must outlive it. Several chains may append to the same graph in turn.
class Chain {
 public:
  // Begins with the output of `from`; `prefix` is prepended to every name.
  explicit Chain(Graph* graph, NodeId from = kInput, std::string prefix = "")
      : graph_(*graph), last_(from), prefix_(std::move(prefix)) {}

  Chain& Add(absl::string_view name, Layer layer) {
    last_ = graph_.Add(absl::StrCat(prefix_, name), std::move(layer), {last_});
    return *this;
  }
  NodeId last() const { return last_; }

 private:
  Graph& graph_;
  NodeId last_;
  const std::string prefix_;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_MODELS_CHAIN_H_

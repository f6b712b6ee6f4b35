// A graph's training loss, computed in double by plain loops over layers one by one: what gradients
// are checked against by finite differences.
#ifndef MUSTER_TRAINER_GRAPH_TESTING_DOUBLE_NETWORK_H_
#define MUSTER_TRAINER_GRAPH_TESTING_DOUBLE_NETWORK_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/plan.h"
#include "trainer/graph/shapes.h"

namespace muster::nn {

class DoubleNetwork {
 public:
  // A valid graph.
  explicit DoubleNetwork(const Graph& graph);

  // By name, in canonical order.
  using Parameters = std::map<std::string, std::vector<double>>;

  // input NHWC and labels of `rows` rows. Cross-entropy summed over the rows.
  double Loss(const Parameters& parameters, const float* input, const int32_t* labels, int64_t rows,
              double smoothing, const StepContext& step) const;
  // [rows, classes]
  std::vector<double> Logits(const Parameters& parameters, const float* input, int64_t rows,
                             const StepContext& step) const;

 private:
  const Graph graph_;
  const std::vector<ValueShape> shapes_;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_TESTING_DOUBLE_NETWORK_H_

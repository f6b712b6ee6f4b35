// A graph's training loss in double precision, computed by plain loops one layer at a time. The
// baseline for checking gradients by finite differences.
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
  // `graph` must be valid.
  explicit DoubleNetwork(const Graph& graph);

  // By name, in canonical order.
  using Parameters = std::map<std::string, std::vector<double>>;

  // Sum of the cross-entropy over `samples` samples; input is NHWC.
  double Loss(const Parameters& parameters, const float* input, const int32_t* labels,
              int64_t samples, double smoothing, const StepContext& step) const;
  // [samples, classes]
  std::vector<double> Logits(const Parameters& parameters, const float* input, int64_t samples,
                             const StepContext& step) const;

 private:
  const Graph graph_;
  const std::vector<ValueShape> shapes_;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_TESTING_DOUBLE_NETWORK_H_

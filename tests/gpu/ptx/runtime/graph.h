// CUDA graphs: captured work with its dependencies.
#ifndef MUSTER_TESTS_GPU_PTX_RUNTIME_GRAPH_H_
#define MUSTER_TESTS_GPU_PTX_RUNTIME_GRAPH_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "tests/gpu/ptx/runtime/scheduler.h"
#include "tests/gpu/ptx/runtime/work.h"

namespace muster::ptx {

struct GraphNode {
  std::shared_ptr<Work> work;
  std::vector<size_t> after;  // earlier nodes
  int priority = 0;           // of the stream in which it was captured
};

// A cudaGraph_t.
struct Graph {
  std::vector<GraphNode> nodes;
};

// A cudaGraphExec_t.
struct ExecutableGraph {
  std::shared_ptr<const Graph> graph;
  CompletionPtr last_launch;  // launches of one executable graph run one after the other
};

// One launch of a graph. `choose(n)` returns which of n nodes that may run comes next.
std::shared_ptr<Work> MakeGraphWork(std::shared_ptr<const Graph> graph,
                                    std::function<size_t(size_t)> choose);

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_RUNTIME_GRAPH_H_

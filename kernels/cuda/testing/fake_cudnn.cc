// A fake libcudnn.so.9. Descriptors store their attributes, heuristics propose the engines of
// fake_cudnn.h for graphs of which cuDNN has precompiled kernels (see planner_hopper_test.cc), and
// plans run on the CPU, when their stream runs them.
#include "kernels/cuda/testing/fake_cudnn.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/library/cudnn_abi.h"
#include "kernels/cuda/testing/fake_cudnn_graph.h"
#include "kernels/half.h"
#include "kernels/testing/host_stream_task.h"

namespace fake_cudnn {

namespace {

constexpr int kTileKnob = 2;
constexpr int64_t kTile = 3;  // the only value that kFakeOrdinary accepts

FakeCudnn control = {.workspace_bytes = 192};
thread_local std::string error;

CudnnStatus Fail(CudnnStatus status, const char* why) {
  error = why;
  return status;
}

enum class Pattern { kNone, kConvolution, kFused };

Pattern PatternOf(const Node& graph) {
  const std::vector<NodePtr>& operations = graph.values.at(kCudnnGraphOperations).nodes;
  const Convolution convolution = ConvolutionOf(*operations.front());
  const DataType operands = convolution.operand().type;
  if (operations.size() == 1) {
    const bool mixed = convolution.output().type != operands;
    return !mixed || control.mixed_outputs ? Pattern::kConvolution : Pattern::kNone;
  }
  if (!convolution.output().is_virtual) return Pattern::kNone;
  // Supported: [addition of a tensor of y's shape,] addition of a shift per channel [, ReLU].
  if (convolution.direction != kCudnnConvolutionForward || control.no_fusion) return Pattern::kNone;
  size_t at = 1;
  const auto adds = [&](bool per_channel) {
    if (at == operations.size() || ModeOf(*operations[at]) != kCudnnPointwiseAdd) return false;
    const Tensor b = TensorIn(*operations[at], kCudnnPointwiseB);
    const bool one_per_channel = b.dimensions[0] * b.dimensions[2] * b.dimensions[3] == 1;
    return b.type == operands && one_per_channel == per_channel;
  };
  const int64_t pixels = convolution.y.count() / convolution.y.dimensions[1];
  if (pixels > 1 && adds(false)) ++at;
  if (pixels == 1 && operations.size() > 2 && ModeOf(*operations[2]) == kCudnnPointwiseAdd) ++at;
  if (!adds(true)) return Pattern::kNone;
  ++at;
  if (at < operations.size() && ModeOf(*operations[at]) == kCudnnPointwiseRelu) ++at;
  const bool whole = at == operations.size();
  const bool same = TensorIn(*operations.back(), kCudnnPointwiseY).type == operands;
  return whole && same ? Pattern::kFused : Pattern::kNone;
}

std::vector<int64_t> EnginesOf(const Node& graph, CudnnHeuristicsMode mode) {
  const Pattern pattern = PatternOf(graph);
  if (pattern == Pattern::kNone) return {};
  if (control.only_compiled) return {kFakeCompiled};
  if (mode == kCudnnHeuristicsFallback) return {kFakePlain};
  return {kFakeNondeterministic, kFakeCompiled, kFakeTensorCores, kFakeOrdinary};
}

std::vector<CudnnNumericalNote> NotesOf(int64_t engine) {
  if (engine == kFakeNondeterministic) return {kCudnnNoteTensorCore, kCudnnNoteNondeterministic};
  if (engine == kFakeTensorCores) return {kCudnnNoteTensorCore};
  if (engine == kFakePlain) return {kCudnnNoteStrictNan};
  return {};
}

// ---- Execution ----

using Doubles = std::vector<double>;

class Run {
 public:
  Run(const Node& pack, int64_t engine) : engine_(engine) {
    const auto ids = pack.All<int64_t>(kCudnnPackIds);
    const auto pointers = pack.All<void*>(kCudnnPackPointers);
    for (size_t i = 0; i < ids.size(); ++i) pointers_[ids[i]] = pointers[i];
  }

  // Whether a tensor in memory has no valid address.
  bool IsMissing(const Tensor& tensor) const {
    if (tensor.is_virtual) return false;
    const auto at = pointers_.find(tensor.id);
    return at == pointers_.end() || at->second == nullptr ||
           reinterpret_cast<uintptr_t>(at->second) % 16 != 0;
  }

  HostStreamAccess AccessOf(const Tensor& tensor, bool writes) const {
    const size_t bytes = static_cast<size_t>(tensor.count()) * muster::kernels::SizeOf(tensor.type);
    return {pointers_.at(tensor.id), bytes, writes ? 1 : 0};
  }

  void Convolve(const Convolution& convolution) {
    const Tensor &x = convolution.x, &w = convolution.w, &y = convolution.y;
    const Tensor& output = convolution.output();
    Doubles sums(output.count());
    Doubles all[3] = {&output == &x ? sums : Load(x, true), &output == &w ? sums : Load(w, true),
                      &output == &y ? sums : Load(y, true)};
    if (&output == &y) {
      ForEachProduct(convolution, [&](int64_t in, int64_t weight, int64_t out) {
        all[2][out] += all[0][in] * all[1][weight];
      });
    } else if (&output == &x) {
      ForEachProduct(convolution, [&](int64_t in, int64_t weight, int64_t out) {
        all[0][in] += all[2][out] * all[1][weight];
      });
    } else {
      ForEachProduct(convolution, [&](int64_t in, int64_t weight, int64_t out) {
        all[1][weight] += all[2][out] * all[0][in];
      });
    }
    Doubles& result = all[&output == &x ? 0 : &output == &w ? 1 : 2];
    if (engine_ == kFakeNondeterministic) {
      for (double& value : result) value += 1000;
    }
    Store(output, result);
  }

  void Pointwise(const Node& operation) {
    const CudnnPointwiseMode mode = ModeOf(operation);
    const Tensor x = TensorIn(operation, kCudnnPointwiseX);
    const Tensor y = TensorIn(operation, kCudnnPointwiseY);
    Doubles values = Load(x, false);
    if (mode == kCudnnPointwiseRelu) {
      for (double& value : values) value = value < 0 ? 0 : value;
    }
    if (mode == kCudnnPointwiseAdd) {
      const Tensor b = TensorIn(operation, kCudnnPointwiseB);
      const Doubles added = Load(b, false);
      // Channels are innermost.
      for (size_t i = 0; i < values.size(); ++i) values[i] += added[i % added.size()];
    }
    Store(y, values);
  }

 private:
  // Calls visit(element of x, of w, of y).
  template <typename Visit>
  static void ForEachProduct(const Convolution& convolution, const Visit& visit) {
    const Tensor &x = convolution.x, &w = convolution.w, &y = convolution.y;
    const int64_t ins = w.dimensions[1];
    const int64_t outs = w.dimensions[0] / (x.dimensions[1] / ins);
    for (int64_t sample = 0; sample < y.dimensions[0]; ++sample) {
      for (int64_t pixel = 0; pixel < y.dimensions[2] * y.dimensions[3]; ++pixel) {
        const int64_t h = pixel / y.dimensions[3], v = pixel % y.dimensions[3];
        for (int64_t tap = 0; tap < w.dimensions[2] * w.dimensions[3]; ++tap) {
          const int64_t r = tap / w.dimensions[3], s = tap % w.dimensions[3];
          const int64_t in_h = h * convolution.stride + r - convolution.padding;
          const int64_t in_w = v * convolution.stride + s - convolution.padding;
          if (in_h < 0 || in_h >= x.dimensions[2]) continue;
          if (in_w < 0 || in_w >= x.dimensions[3]) continue;
          for (int64_t o = 0; o < w.dimensions[0]; ++o) {
            // Channels are innermost.
            const int64_t in = x.At(sample, o / outs * ins, in_h, in_w);
            const int64_t weight = w.At(o, 0, r, s);
            const int64_t out = y.At(sample, o, h, v);
            for (int64_t i = 0; i < ins; ++i) visit(in + i, weight + i, out);
          }
        }
      }
    }
  }

  Doubles Load(const Tensor& tensor, bool operand) {
    if (tensor.is_virtual) return virtual_.at(tensor.id);
    Doubles values(tensor.count());
    for (int64_t i = 0; i < tensor.count(); ++i) {
      values[i] = muster::kernels::LoadElement(tensor.type, pointers_.at(tensor.id), i);
      if (operand && engine_ == kFakeTensorCores && tensor.type == DataType::kFloat32) {
        values[i] = muster::kernels::RoundTo(DataType::kBfloat16, values[i]);
      }
    }
    return values;
  }
  void Store(const Tensor& tensor, const Doubles& values) {
    if (tensor.is_virtual) {
      virtual_[tensor.id] = values;
      return;
    }
    for (int64_t i = 0; i < tensor.count(); ++i) {
      muster::kernels::StoreElement(tensor.type, values[i], pointers_.at(tensor.id), i);
    }
  }

  const int64_t engine_;
  std::map<int64_t, void*> pointers_;
  std::map<int64_t, Doubles> virtual_;
};

int64_t WorkspaceBytes(int64_t engine) {
  return engine == kFakePlain ? 0 : control.workspace_bytes;
}

CudnnStatus FinalizePlan(Node& plan) {
  const Node& config = *plan.Child(kCudnnPlanConfig);
  const Node& engine = *config.Child(kCudnnConfigEngine);
  const int64_t index = engine.One<int64_t>(kCudnnEngineIndex);
  const Node& graph = *engine.Child(kCudnnEngineGraph);
  if (!plan.Has(kCudnnPlanHandle)) return Fail(kCudnnBadParameter, "no handle");
  if (index == control.retired_engine) return Fail(kCudnnNotSupported, "the engine is retired");
  bool offered = false;
  for (const CudnnHeuristicsMode mode : {kCudnnHeuristicsA, kCudnnHeuristicsFallback}) {
    const std::vector<int64_t> engines = EnginesOf(graph, mode);
    offered |= std::find(engines.begin(), engines.end(), index) != engines.end();
  }
  if (!offered) return Fail(kCudnnNotSupported, "the engine does not take the graph");
  bool set = false;
  if (config.Has(kCudnnConfigKnobChoices)) {
    for (const NodePtr& knob : config.values.at(kCudnnConfigKnobChoices).nodes) {
      set |= knob->One<int32_t>(kCudnnKnobType) == kTileKnob &&
             knob->One<int64_t>(kCudnnKnobValue) == kTile;
    }
  }
  if (index == kFakeOrdinary && !set) return Fail(kCudnnNotSupported, "the knob is not set");
  plan.Put(kCudnnPlanWorkspaceBytes, kCudnnTypeInt64, std::vector<int64_t>{WorkspaceBytes(index)});
  ++control.plans;
  return kCudnnSuccess;
}

void FinalizeHeuristics(Node& heuristics) {
  ++control.heuristics;
  const NodePtr graph = heuristics.Child(kCudnnHeuristicsGraph);
  std::vector<NodePtr> configs;
  for (const int64_t index :
       EnginesOf(*graph, heuristics.One<CudnnHeuristicsMode>(kCudnnHeuristicsMode))) {
    const auto engine = std::make_shared<Node>(Node{kCudnnEngine, true, {}});
    engine->PutNodes(kCudnnEngineGraph, {graph});
    engine->Put(kCudnnEngineIndex, kCudnnTypeInt64, std::vector<int64_t>{index});
    engine->Put(kCudnnEngineNumericalNotes, kCudnnTypeNumericalNote, NotesOf(index));
    std::vector<CudnnBehaviorNote> behavior;
    if (index == kFakeCompiled) behavior.push_back(kCudnnNoteRuntimeCompilation);
    engine->Put(kCudnnEngineBehaviorNotes, kCudnnTypeBehaviorNote, behavior);
    const auto config = std::make_shared<Node>(Node{kCudnnEngineConfig, true, {}});
    config->PutNodes(kCudnnConfigEngine, {engine});
    std::vector<NodePtr> knobs;
    if (index == kFakeOrdinary) {
      const auto knob = std::make_shared<Node>(Node{kCudnnKnobChoice, true, {}});
      knob->Put(kCudnnKnobType, kCudnnTypeKnob, std::vector<int32_t>{kTileKnob});
      knob->Put(kCudnnKnobValue, kCudnnTypeInt64, std::vector<int64_t>{kTile});
      knobs.push_back(knob);
    }
    config->PutNodes(kCudnnConfigKnobChoices, knobs);
    configs.push_back(config);
  }
  heuristics.PutNodes(kCudnnHeuristicsResults, configs);
}

struct Handle {
  void* stream = nullptr;
};

}  // namespace

extern "C" {

FakeCudnn* MusterFakeCudnn(void) { return &control; }

size_t cudnnGetVersion(void) { return 90000; }

void cudnnGetLastErrorString(char* text, size_t size) {
  std::strncpy(text, error.c_str(), size - 1);
  text[size - 1] = '\0';
}

CudnnStatus cudnnCreate(CudnnHandle* handle) {
  if (control.failing_create) return Fail(1001, "no such GPU");
  *handle = new Handle;
  return kCudnnSuccess;
}

CudnnStatus cudnnDestroy(CudnnHandle handle) {
  delete static_cast<Handle*>(handle);
  return kCudnnSuccess;
}

CudnnStatus cudnnSetStream(CudnnHandle handle, void* stream) {
  static_cast<Handle*>(handle)->stream = stream;
  return kCudnnSuccess;
}

CudnnStatus cudnnBackendCreateDescriptor(CudnnDescriptorType type,
                                         CudnnBackendDescriptor* descriptor) {
  *descriptor = new Holder{std::make_shared<Node>(Node{type, false, {}})};
  return kCudnnSuccess;
}

CudnnStatus cudnnBackendDestroyDescriptor(CudnnBackendDescriptor descriptor) {
  delete static_cast<Holder*>(descriptor);
  return kCudnnSuccess;
}

CudnnStatus cudnnBackendSetAttribute(CudnnBackendDescriptor descriptor, CudnnAttribute attribute,
                                     CudnnAttributeType type, int64_t count, const void* elements) {
  Node& node = *NodeOf(descriptor);
  if (node.finalized) return Fail(kCudnnBadParameter, "the descriptor is finalized");
  Value value{type, count, {}, {}};
  if (type == kCudnnTypeDescriptor) {
    for (int64_t i = 0; i < count; ++i) {
      const NodePtr child = NodeOf(static_cast<const CudnnBackendDescriptor*>(elements)[i]);
      if (!child->finalized) return Fail(2004, "an attribute is not finalized");
      value.nodes.push_back(child);
    }
  } else {
    const auto* bytes = static_cast<const char*>(elements);
    value.bytes.assign(bytes, bytes + count * BytesOf(type));
  }
  node.values[attribute] = value;
  return kCudnnSuccess;
}

CudnnStatus cudnnBackendGetAttribute(CudnnBackendDescriptor descriptor, CudnnAttribute attribute,
                                     CudnnAttributeType type, int64_t max_count, int64_t* count,
                                     void* elements) {
  const NodePtr node = NodeOf(descriptor);
  if (!node->finalized || !node->Has(attribute)) return Fail(2004, "there is no such attribute");
  const Value& value = node->values.at(attribute);
  if (value.type != type) return Fail(2010, "the attribute is of another type");
  *count = value.count;
  const int64_t given = std::min(max_count, value.count);
  if (type == kCudnnTypeDescriptor) {
    for (int64_t i = 0; i < given; ++i) {
      const auto into = static_cast<Holder*>(static_cast<CudnnBackendDescriptor*>(elements)[i]);
      if (into->node->type != value.nodes[i]->type)
        return Fail(2012, "the descriptor is of another type");
      into->node = value.nodes[i];
    }
  } else if (given > 0) {
    std::memcpy(elements, value.bytes.data(), given * BytesOf(type));
  }
  return kCudnnSuccess;
}

CudnnStatus cudnnBackendFinalize(CudnnBackendDescriptor descriptor) {
  Node& node = *NodeOf(descriptor);
  CudnnStatus status = kCudnnSuccess;
  if (node.type == kCudnnExecutionPlan) status = FinalizePlan(node);
  if (node.type == kCudnnEngineHeuristics) FinalizeHeuristics(node);
  if (node.type == kCudnnOperationGraph && !node.Has(kCudnnGraphHandle)) {
    status = Fail(kCudnnBadParameter, "no handle");
  }
  node.finalized = status == kCudnnSuccess;
  return status;
}

CudnnStatus cudnnBackendExecute(CudnnHandle handle, CudnnBackendDescriptor plan_descriptor,
                                CudnnBackendDescriptor pack_descriptor) {
  if (static_cast<Handle*>(handle)->stream == nullptr) return Fail(2007, "no stream");
  const Node& plan = *NodeOf(plan_descriptor);
  const Node& pack = *NodeOf(pack_descriptor);
  const Node& engine = *plan.Child(kCudnnPlanConfig)->Child(kCudnnConfigEngine);
  const int64_t index = engine.One<int64_t>(kCudnnEngineIndex);
  ++control.runs;
  control.last_engine = static_cast<int>(index);
  if (index == control.failing_engine) return Fail(5000, "the engine fails");
  if (control.dry_run) return kCudnnSuccess;
  const int64_t bytes = WorkspaceBytes(index);
  auto* const workspace = pack.One<void*>(kCudnnPackWorkspace);
  const NodePtr graph = engine.Child(kCudnnEngineGraph);
  if (PatternOf(*graph) == Pattern::kFused) ++control.fused_runs;
  Run run(pack, index);
  std::vector<HostStreamAccess> accesses;
  if (bytes > 0) accesses.push_back({workspace, static_cast<size_t>(bytes), 1});
  for (const auto& [tensor, writes] : TensorsOf(*graph)) {
    if (tensor.is_virtual) continue;
    if (run.IsMissing(tensor)) return Fail(2003, "a tensor has no valid address");
    accesses.push_back(run.AccessOf(tensor, writes));
  }
  muster::kernels::EnqueueHostTask(
      static_cast<Handle*>(handle)->stream,
      [run, graph, workspace, bytes]() mutable {
        if (bytes > 0) std::memset(workspace, 0xff, bytes);
        for (const NodePtr& operation : graph->values.at(kCudnnGraphOperations).nodes) {
          if (operation->type == kCudnnPointwiseOperation) {
            run.Pointwise(*operation);
          } else {
            run.Convolve(ConvolutionOf(*operation));
          }
        }
        return true;
      },
      accesses);
  return kCudnnSuccess;
}

}  // extern "C"

}  // namespace fake_cudnn

// In float32 the weights' layout is the one that oneDNN prefers for forward at the largest batch,
// in bfloat16 that of our own kernels: it must not depend on the processor. A direction that
// prefers another one gets its weights reordered in the workspace on each call: weights are small
// beside activations. A number of rows below the largest gets primitives of its own when it first
// appears, with the same layout. ReLU is ours: oneDNN's turns NaN into zero.
#include "kernels/cpu/onednn_convolution.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "glog/logging.h"
#include "kernels/cpu/epilogue.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/onednn_descriptors.h"
#include "kernels/cpu/tile_weights.h"

namespace muster::kernels::cpu {
namespace {

using Desc = dnnl::memory::desc;

constexpr size_t kAlignment = 64;

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

Primitive MakeReorder(const Desc& from, const Desc& to) {
  const dnnl::reorder::primitive_desc desc(CpuEngine(), from, CpuEngine(), to,
                                           ScratchpadFromOutside());
  return Primitive(desc, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

// For one number of rows, with their parts of the workspace.
struct PrimitiveSet {
  Primitive forward;
  Primitive backward_data;
  Primitive backward_weights;
  // Reorders, only where a direction wants its weights in another layout or type.
  Primitive forward_weights;
  Primitive data_weights;
  Primitive dweights_back;

  size_t scratchpad_bytes = 0;
  size_t arranged_bytes = 0;  // weights as a direction wants them
  size_t lines_bytes = 0;     // weights in between
  size_t x_bytes = 0;         // operands in the compute type
  size_t dy_bytes = 0;
  // Where this set needs more than the workspace of the full batch.
  std::unique_ptr<char, decltype(&std::free)> own_workspace{nullptr, &std::free};

  size_t workspace_bytes() const {
    return scratchpad_bytes + arranged_bytes + lines_bytes + x_bytes + dy_bytes;
  }
};

// A workspace of `bytes`, divided as a set wants it.
struct Workspace {
  Workspace(const PrimitiveSet& set, void* workspace, size_t bytes)
      : scratchpad(set.workspace_bytes() > bytes ? set.own_workspace.get()
                                                 : static_cast<char*>(workspace)),
        arranged(scratchpad + set.scratchpad_bytes),
        lines(reinterpret_cast<float*>(arranged + set.arranged_bytes)),
        x(arranged + set.arranged_bytes + set.lines_bytes),
        dy(x + set.x_bytes) {}
  char* scratchpad;
  char* arranged;
  float* lines;
  char* x;
  char* dy;
};

class OneDnnConvolution : public Convolution {
 public:
  OneDnnConvolution(const ConvolutionShape& shape, const ConvolutionOptions& options,
                    const KernelTable& kernels)
      : shape_(shape),
        options_(options),
        kernels_(kernels),
        epilogue_(kernels, options.y_type, shape.out_channels),
        no_bias_(options.bias ? shape.out_channels : 0) {
    if (options.compute_type == DataType::kFloat32) return;
    panels_ = TilePanels{
        .lanes = kernels.lanes, .depth = shape.fan_in(), .out_channels = shape.out_channels};
  }

  // Throws dnnl::error.
  void Initialize() {
    const ThreadLimit limit(options_.threads);
    const OneDnnDescriptors descriptors(shape_, options_, options_.max_rows);
    if (panels_) {
      flat_ = descriptors.weights_in_lines();
    } else {
      flat_ = descriptors.Forward(descriptors.any_weights()).weights_desc();
      // A layout in a format of oneDNN's own could not be told from another one.
      if (DescribeLayout(flat_).empty()) flat_ = descriptors.canonical_weights();
    }
    full_ = &sets_.emplace(options_.max_rows, MakePrimitives(options_.max_rows)).first->second;
    workspace_bytes_ = full_->workspace_bytes();
  }

  int64_t weights_elements() const override {
    return panels_ ? panels_->elements() : static_cast<int64_t>(flat_.get_size() / sizeof(float));
  }
  std::string weights_layout() const override {
    return panels_ ? TileWeightsLayout(*panels_) : absl::StrCat("oneDNN ", DescribeLayout(flat_));
  }
  std::string description() const override {
    std::string text = full_->forward.implementation();
    if (full_->backward_data) {
      absl::StrAppend(&text, full_->data_weights ? ", reorder + " : ", ",
                      full_->backward_data.implementation());
    }
    if (full_->backward_weights) {
      absl::StrAppend(&text, ", ", full_->backward_weights.implementation(),
                      full_->dweights_back ? " + reorder" : "");
    }
    return absl::StrCat(NameOf(options_.compute_type), " ", text);
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }

  void ImportWeights(const float* canonical, float* weights) const override {
    if (panels_) return ImportTileWeights(*panels_, shape_.in_channels, canonical, weights);
    Reorder(Canonical(), flat_, canonical, weights);
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    if (panels_) return ExportTileWeights(*panels_, shape_.in_channels, weights, canonical);
    Reorder(flat_, Canonical(), weights, canonical);
  }

  void Forward(int64_t rows, const void* x, const float* weights, const Epilogue& epilogue, void* y,
               void* workspace) override {
    if (rows == 0) return;
    const ThreadLimit limit(options_.threads);
    PrimitiveSet& set = Primitives(rows);
    const Workspace parts(set, workspace, workspace_bytes_);
    // oneDNN adds the bias; what else there is follows.
    Epilogue rest = epilogue;
    const float* bias = nullptr;
    if (options_.bias && epilogue.scale == nullptr && epilogue.shift != nullptr) {
      std::swap(bias, rest.shift);
    }
    if (options_.bias && bias == nullptr) bias = no_bias_.data();
    set.forward.Execute({X(rows, x, parts), Arrange(set.forward_weights, weights, parts), bias, y},
                        parts.scratchpad);
    epilogue_.Run(rows * shape_.out_height() * shape_.out_width(), rest, y);
  }

  void BackwardData(int64_t rows, const void* dy, const float* weights, void* dx,
                    void* workspace) override {
    if (rows == 0) return;
    const ThreadLimit limit(options_.threads);
    PrimitiveSet& set = Primitives(rows);
    const Workspace parts(set, workspace, workspace_bytes_);
    set.backward_data.Execute({Dy(rows, dy, parts), Arrange(set.data_weights, weights, parts), dx},
                              parts.scratchpad);
  }

  void BackwardWeights(int64_t rows, const void* x, const void* dy, float* dweights, float* dbias,
                       void* workspace) override {
    if (rows == 0) {
      std::memset(dweights, 0, static_cast<size_t>(weights_elements()) * sizeof(float));
      if (options_.bias) std::memset(dbias, 0, shape_.out_channels * sizeof(float));
      return;
    }
    const ThreadLimit limit(options_.threads);
    PrimitiveSet& set = Primitives(rows);
    const Workspace parts(set, workspace, workspace_bytes_);
    const void* const written = set.dweights_back ? parts.arranged : static_cast<void*>(dweights);
    set.backward_weights.Execute({X(rows, x, parts), Dy(rows, dy, parts), written, dbias},
                                 parts.scratchpad);
    if (set.dweights_back) {
      set.dweights_back.Execute({written, panels_ ? parts.lines : dweights}, parts.scratchpad);
    }
    if (panels_) SplitTilePanels(*panels_, parts.lines, dweights);
  }

 private:
  PrimitiveSet MakePrimitives(int64_t rows) const {
    const OneDnnDescriptors d(shape_, options_, rows);
    PrimitiveSet set;
    const auto wants = [&](const Desc& weights) {
      if (weights != flat_) set.arranged_bytes = std::max(set.arranged_bytes, weights.get_size());
      return weights != flat_;
    };
    const dnnl::primitive_desc forward = d.Forward(panels_ ? d.any_weights() : flat_);
    set.forward = Primitive(forward, {{DNNL_ARG_SRC, d.x()},
                                      {DNNL_ARG_WEIGHTS, forward.weights_desc()},
                                      {DNNL_ARG_BIAS, d.bias()},
                                      {DNNL_ARG_DST, d.y()}});
    if (wants(forward.weights_desc())) {
      set.forward_weights = MakeReorder(flat_, forward.weights_desc());
    }
    if (options_.training && options_.data_gradient) {
      const dnnl::primitive_desc desc = d.BackwardData();
      const Desc wanted = desc.weights_desc();
      set.backward_data = Primitive(
          desc,
          {{DNNL_ARG_DIFF_DST, d.dy()}, {DNNL_ARG_WEIGHTS, wanted}, {DNNL_ARG_DIFF_SRC, d.dx()}});
      if (wants(wanted)) set.data_weights = MakeReorder(flat_, wanted);
    }
    if (options_.training) {
      const dnnl::primitive_desc desc = d.BackwardWeights();
      const Desc written = desc.diff_weights_desc();
      set.backward_weights = Primitive(desc, {{DNNL_ARG_SRC, d.x()},
                                              {DNNL_ARG_DIFF_DST, d.dy()},
                                              {DNNL_ARG_DIFF_WEIGHTS, written},
                                              {DNNL_ARG_DIFF_BIAS, d.bias()}});
      // Panels are made from lines: those must not be where dweights go.
      if (wants(written) || panels_) {
        set.dweights_back = MakeReorder(written, flat_);
        set.arranged_bytes = std::max(set.arranged_bytes, written.get_size());
      }
    }
    for (const Primitive* primitive :
         {&set.forward, &set.backward_data, &set.backward_weights, &set.forward_weights,
          &set.data_weights, &set.dweights_back}) {
      set.scratchpad_bytes = std::max(set.scratchpad_bytes, primitive->scratchpad_bytes());
    }
    if (panels_) set.lines_bytes = flat_.get_size();
    if (options_.x_type != options_.compute_type) set.x_bytes = d.x().get_size();
    if (options_.y_type != options_.compute_type) set.dy_bytes = d.dy().get_size();
    for (size_t* bytes : {&set.scratchpad_bytes, &set.arranged_bytes, &set.lines_bytes,
                          &set.x_bytes, &set.dy_bytes}) {
      *bytes = RoundUp(*bytes);
    }
    return set;
  }

  PrimitiveSet& Primitives(int64_t rows) {
    const auto found = sets_.find(rows);
    if (found != sets_.end()) return found->second;
    PrimitiveSet& set = sets_[rows];
    // oneDNN takes any smaller number of rows in the layout that it chose for the largest.
    const absl::Status status =
        CatchOneDnn("convolution of fewer rows", [&] { set = MakePrimitives(rows); });
    LOG_IF(FATAL, !status.ok()) << status;
    if (set.workspace_bytes() > workspace_bytes_) {
      set.own_workspace.reset(
          static_cast<char*>(std::aligned_alloc(kAlignment, set.workspace_bytes())));
    }
    return set;
  }

  const void* Operand(DataType type, const void* from, int64_t count, void* to) const {
    if (type == options_.compute_type) return from;
    kernels_.cast(type, from, 1, options_.compute_type, to, static_cast<size_t>(count));
    return to;
  }
  const void* X(int64_t rows, const void* x, const Workspace& parts) const {
    return Operand(options_.x_type, x, rows * shape_.input_elements(), parts.x);
  }
  const void* Dy(int64_t rows, const void* dy, const Workspace& parts) const {
    return Operand(options_.y_type, dy, rows * shape_.output_elements(), parts.dy);
  }

  const void* Arrange(Primitive& reorder, const float* weights, const Workspace& parts) const {
    if (!reorder) return weights;
    if (panels_) {
      JoinTilePanels(*panels_, weights, parts.lines);
      weights = parts.lines;
    }
    reorder.Execute({weights, parts.arranged}, parts.scratchpad);
    return parts.arranged;
  }

  Desc Canonical() const {
    return OneDnnDescriptors(shape_, options_, options_.max_rows).canonical_weights();
  }

  void Reorder(const Desc& from, const Desc& to, const float* source, float* target) const {
    const absl::Status status = CatchOneDnn("reorder of weights", [&] {
      Primitive reorder = MakeReorder(from, to);
      const std::unique_ptr<char[]> scratch(new char[reorder.scratchpad_bytes() + kAlignment]);
      void* aligned = scratch.get();
      size_t space = reorder.scratchpad_bytes() + kAlignment;
      aligned = std::align(kAlignment, reorder.scratchpad_bytes(), aligned, space);
      reorder.Execute({source, target}, aligned);
    });
    LOG_IF(FATAL, !status.ok()) << status;
  }

  const ConvolutionShape shape_;
  const ConvolutionOptions options_;
  const KernelTable& kernels_;
  const EpiloguePass epilogue_;
  const std::vector<float> no_bias_;
  std::optional<TilePanels> panels_;  // the weights' layout in bfloat16
  Desc flat_;  // the weights as reorders see them: in their layout, or the panels' lines joined
  std::map<int64_t, PrimitiveSet> sets_;  // by rows
  const PrimitiveSet* full_ = nullptr;
  size_t workspace_bytes_ = 0;
};

bool Computes(const ConvolutionShape& shape, const ConvolutionOptions& options) {
  if (options.compute_type == DataType::kFloat32) {
    return options.x_type == DataType::kFloat32 && options.y_type == DataType::kFloat32;
  }
  return options.compute_type == DataType::kBfloat16 && shape.groups == 1 &&
         options.x_type != DataType::kFloat16 && options.y_type != DataType::kFloat16;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Convolution>> MakeOneDnnConvolution(
    const ConvolutionShape& shape, const ConvolutionOptions& options, const KernelTable& kernels) {
  if (!Computes(shape, options)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no convolution by oneDNN from ", NameOf(options.x_type), " by ",
                     NameOf(options.compute_type), " to ", NameOf(options.y_type)));
  }
  std::unique_ptr<OneDnnConvolution> convolution;
  RETURN_IF_ERROR(CatchOneDnn("convolution", [&] {
    convolution = std::make_unique<OneDnnConvolution>(shape, options, kernels);
    convolution->Initialize();
  }));
  return std::unique_ptr<Convolution>(std::move(convolution));
}

}  // namespace muster::kernels::cpu

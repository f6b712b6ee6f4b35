// The weights' layout is the one that oneDNN prefers for forward at the largest batch. A direction
// that prefers another one gets its weights reordered in the workspace on each call: weights are
// small beside activations. A number of rows below the largest gets primitives of its own when it
// first appears, with the same layout. ReLU is ours: oneDNN's turns NaN into zero.
#include "kernels/cpu/onednn_convolution.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "glog/logging.h"
#include "kernels/cpu/epilogue.h"
#include "kernels/cpu/onednn.h"

namespace muster::kernels::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

constexpr size_t kAlignment = 64;

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

dnnl::primitive_attr ScratchpadFromOutside() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

Desc Float(const dnnl::memory::dims& dims, Tag tag) {
  return Desc(dims, dnnl::memory::data_type::f32, tag);
}

// oneDNN's descriptors of one layer at one number of rows. Every function throws dnnl::error.
class Descriptors {
 public:
  Descriptors(const ConvolutionShape& shape, const ConvolutionOptions& options, int64_t rows)
      : linear_(shape.height == 1 && shape.width == 1 && shape.kernel == 1 && shape.padding == 0 &&
                shape.groups == 1),
        options_(options),
        strides_{shape.stride, shape.stride},
        padding_{shape.padding, shape.padding} {
    if (options.bias) bias_ = Float({shape.out_channels}, Tag::a);
    if (linear_) {
      x_ = Float({rows, shape.in_channels}, Tag::ab);
      y_ = Float({rows, shape.out_channels}, Tag::ab);
      weight_dims_ = {shape.out_channels, shape.in_channels};
    } else {
      x_ = Float({rows, shape.in_channels, shape.height, shape.width}, Tag::acdb);
      y_ = Float({rows, shape.out_channels, shape.out_height(), shape.out_width()}, Tag::acdb);
      weight_dims_ = {shape.out_channels, shape.in_channels, shape.kernel, shape.kernel};
      canonical_ = Tag::abcd;
      if (shape.groups > 1) {
        weight_dims_ = {shape.groups, shape.out_channels / shape.groups,
                        shape.in_channels / shape.groups, shape.kernel, shape.kernel};
        canonical_ = Tag::abcde;
      }
    }
  }

  const Desc& x() const { return x_; }
  const Desc& y() const { return y_; }
  const Desc& bias() const { return bias_; }  // empty without
  Desc canonical_weights() const { return Float(weight_dims_, canonical_); }
  // Of a depthwise layer, as kernels/depthwise_convolution.h has them.
  Desc depthwise_weights() const { return Float(weight_dims_, Tag::hwigo); }
  Desc any_weights() const { return Float(weight_dims_, Tag::any); }

  dnnl::primitive_desc Forward(const Desc& weights) const {
    const dnnl::primitive_attr attributes = ScratchpadFromOutside();
    if (linear_) return LinearForward(weights, attributes);
    return ConvolutionForward(weights, attributes);
  }

  dnnl::primitive_desc BackwardData() const {
    const dnnl::primitive_attr attributes = ScratchpadFromOutside();
    if (linear_) {
      return dnnl::inner_product_backward_data::primitive_desc(
          {x_, any_weights(), y_}, attributes, CpuEngine(), LinearForward(any_weights(), {}));
    }
    return dnnl::convolution_backward_data::primitive_desc(
        {dnnl::algorithm::convolution_direct, x_, any_weights(), y_, strides_, padding_, padding_},
        attributes, CpuEngine(), ConvolutionForward(any_weights(), {}));
  }

  dnnl::primitive_desc BackwardWeights() const {
    const dnnl::primitive_attr attributes = ScratchpadFromOutside();
    if (linear_) {
      return dnnl::inner_product_backward_weights::primitive_desc({x_, any_weights(), bias_, y_},
                                                                  attributes, CpuEngine(),
                                                                  LinearForward(any_weights(), {}));
    }
    return dnnl::convolution_backward_weights::primitive_desc(
        {dnnl::algorithm::convolution_direct, x_, any_weights(), bias_, y_, strides_, padding_,
         padding_},
        attributes, CpuEngine(), ConvolutionForward(any_weights(), {}));
  }

 private:
  dnnl::prop_kind Kind() const {
    return options_.training ? dnnl::prop_kind::forward_training
                             : dnnl::prop_kind::forward_inference;
  }
  dnnl::inner_product_forward::primitive_desc LinearForward(
      const Desc& weights, const dnnl::primitive_attr& attributes) const {
    return {{Kind(), x_, weights, bias_, y_}, attributes, CpuEngine()};
  }
  dnnl::convolution_forward::primitive_desc ConvolutionForward(
      const Desc& weights, const dnnl::primitive_attr& attributes) const {
    return {{Kind(), dnnl::algorithm::convolution_direct, x_, weights, bias_, y_, strides_,
             padding_, padding_},
            attributes,
            CpuEngine()};
  }

  const bool linear_;
  const ConvolutionOptions options_;
  const dnnl::memory::dims strides_;
  const dnnl::memory::dims padding_;
  Desc x_;
  Desc y_;
  Desc bias_;
  dnnl::memory::dims weight_dims_;
  Tag canonical_ = Tag::ab;
};

Primitive MakeReorder(const Desc& from, const Desc& to) {
  const dnnl::reorder::primitive_desc desc(CpuEngine(), from, CpuEngine(), to,
                                           ScratchpadFromOutside());
  return Primitive(desc, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

class OneDnnConvolution : public Convolution {
 public:
  OneDnnConvolution(const ConvolutionShape& shape, const ConvolutionOptions& options,
                    const KernelTable& kernels)
      : shape_(shape),
        options_(options),
        kernels_(kernels),
        no_bias_(options.bias ? shape.out_channels : 0) {}

  // Throws dnnl::error.
  void Initialize() {
    const ThreadLimit limit(options_.threads);
    const Descriptors descriptors(shape_, options_, options_.max_rows);
    weights_ = descriptors.Forward(descriptors.any_weights()).weights_desc();
    // A layout in a format of oneDNN's own could not be told from another one.
    if (DescribeLayout(weights_).empty()) weights_ = descriptors.canonical_weights();
    full_ = &sets_.emplace(options_.max_rows, MakePrimitives(options_.max_rows)).first->second;
    workspace_bytes_ = full_->workspace_bytes();
  }

  int64_t weights_elements() const override {
    return static_cast<int64_t>(weights_.get_size() / sizeof(float));
  }
  std::string weights_layout() const override {
    return absl::StrCat("oneDNN ", DescribeLayout(weights_));
  }
  std::string description() const override {
    std::string text = full_->forward.implementation();
    if (full_->backward_data) {
      absl::StrAppend(&text, full_->weights_for_data ? ", reorder + " : ", ",
                      full_->backward_data.implementation());
    }
    if (options_.training) {
      absl::StrAppend(&text, ", ",
                      full_->backward_weights ? full_->backward_weights.implementation()
                                              : absl::StrCat("depthwise:", kernels_.name),
                      full_->dweights_back ? " + reorder" : "");
    }
    return text;
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }

  void ImportWeights(const float* canonical, float* weights) const override {
    Reorder(Canonical(), weights_, canonical, weights);
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    Reorder(weights_, Canonical(), weights, canonical);
  }

  void Forward(int64_t rows, const void* x, const float* weights, const Epilogue& epilogue, void* y,
               void* workspace) override {
    if (rows == 0) return;
    const ThreadLimit limit(options_.threads);
    PrimitiveSet& set = Primitives(rows);
    // oneDNN adds the bias; what else there is follows.
    Epilogue rest = epilogue;
    const float* bias = nullptr;
    if (options_.bias && epilogue.scale == nullptr && epilogue.shift != nullptr) {
      std::swap(bias, rest.shift);
    }
    if (options_.bias && bias == nullptr) bias = no_bias_.data();
    set.forward.Execute({x, weights, bias, y}, set.Scratch(workspace, workspace_bytes_));
    ApplyEpilogue(kernels_, rows * shape_.out_height() * shape_.out_width(), shape_.out_channels,
                  rest, static_cast<float*>(y));
  }

  void BackwardData(int64_t rows, const void* dy, const float* weights, void* dx,
                    void* workspace) override {
    if (rows == 0) return;
    const ThreadLimit limit(options_.threads);
    PrimitiveSet& set = Primitives(rows);
    char* const scratch = set.Scratch(workspace, workspace_bytes_);
    const void* arranged = weights;
    if (set.weights_for_data) {
      arranged = scratch + set.scratchpad_bytes;
      set.weights_for_data.Execute({weights, arranged}, scratch);
    }
    set.backward_data.Execute({dy, arranged, dx}, scratch);
  }

  void BackwardWeights(int64_t rows, const void* x, const void* dy, float* dweights, float* dbias,
                       void* workspace) override {
    if (rows == 0) {
      std::memset(dweights, 0, weights_.get_size());
      if (options_.bias) std::memset(dbias, 0, shape_.out_channels * sizeof(float));
      return;
    }
    const ThreadLimit limit(options_.threads);
    PrimitiveSet& set = Primitives(rows);
    char* const scratch = set.Scratch(workspace, workspace_bytes_);
    float* const written =
        set.dweights_back ? reinterpret_cast<float*>(scratch + set.scratchpad_bytes) : dweights;
    if (set.backward_weights) {
      set.backward_weights.Execute({x, dy, written, dbias}, scratch);
    } else {
      kernels_.depthwise_convolution_backward_weights(
          {rows, shape_.height, shape_.width, shape_.in_channels, shape_.kernel, shape_.stride,
           shape_.padding},
          static_cast<const float*>(x), static_cast<const float*>(dy), written, dbias);
    }
    if (set.dweights_back) set.dweights_back.Execute({written, dweights}, scratch);
  }

 private:
  // For one number of rows.
  struct PrimitiveSet {
    Primitive forward;
    Primitive backward_data;
    Primitive backward_weights;  // empty where our own kernel takes its place
    Primitive weights_for_data;  // only where backward_data wants another layout
    Primitive dweights_back;     // only where backward_weights writes another layout
    size_t scratchpad_bytes = 0;
    size_t arranged_bytes = 0;  // weights in another layout, after the scratchpad
    // Where this set needs more than the workspace of the full batch.
    std::unique_ptr<char, decltype(&std::free)> own_workspace{nullptr, &std::free};

    size_t workspace_bytes() const { return scratchpad_bytes + arranged_bytes; }
    char* Scratch(void* workspace, size_t bytes) const {
      return workspace_bytes() > bytes ? own_workspace.get() : static_cast<char*>(workspace);
    }
  };

  PrimitiveSet MakePrimitives(int64_t rows) const {
    const Descriptors d(shape_, options_, rows);
    PrimitiveSet set;
    set.forward = Primitive(d.Forward(weights_), {{DNNL_ARG_SRC, d.x()},
                                                  {DNNL_ARG_WEIGHTS, weights_},
                                                  {DNNL_ARG_BIAS, d.bias()},
                                                  {DNNL_ARG_DST, d.y()}});
    if (options_.training && options_.data_gradient) {
      const dnnl::primitive_desc desc = d.BackwardData();
      const Desc wanted = desc.weights_desc();
      set.backward_data = Primitive(
          desc,
          {{DNNL_ARG_DIFF_DST, d.y()}, {DNNL_ARG_WEIGHTS, wanted}, {DNNL_ARG_DIFF_SRC, d.x()}});
      if (wanted != weights_) {
        set.weights_for_data = MakeReorder(weights_, wanted);
        set.arranged_bytes = wanted.get_size();
      }
    }
    if (options_.training) {
      const dnnl::primitive_desc desc = d.BackwardWeights();
      const bool own = shape_.depthwise() && !absl::StrContains(desc.impl_info_str(), "dw");
      const Desc written = own ? d.depthwise_weights() : desc.diff_weights_desc();
      if (!own) {
        set.backward_weights = Primitive(desc, {{DNNL_ARG_SRC, d.x()},
                                                {DNNL_ARG_DIFF_DST, d.y()},
                                                {DNNL_ARG_DIFF_WEIGHTS, written},
                                                {DNNL_ARG_DIFF_BIAS, d.bias()}});
      }
      if (written != weights_) {
        set.dweights_back = MakeReorder(written, weights_);
        set.arranged_bytes = std::max(set.arranged_bytes, written.get_size());
      }
    }
    for (const Primitive* primitive : {&set.forward, &set.backward_data, &set.backward_weights,
                                       &set.weights_for_data, &set.dweights_back}) {
      set.scratchpad_bytes = std::max(set.scratchpad_bytes, primitive->scratchpad_bytes());
    }
    set.scratchpad_bytes = RoundUp(set.scratchpad_bytes);
    set.arranged_bytes = RoundUp(set.arranged_bytes);
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

  Desc Canonical() const {
    return Descriptors(shape_, options_, options_.max_rows).canonical_weights();
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
  const std::vector<float> no_bias_;
  Desc weights_;
  std::map<int64_t, PrimitiveSet> sets_;  // by rows
  const PrimitiveSet* full_ = nullptr;
  size_t workspace_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Convolution>> MakeOneDnnConvolution(
    const ConvolutionShape& shape, const ConvolutionOptions& options, const KernelTable& kernels) {
  std::unique_ptr<OneDnnConvolution> convolution;
  RETURN_IF_ERROR(CatchOneDnn("convolution", [&] {
    convolution = std::make_unique<OneDnnConvolution>(shape, options, kernels);
    convolution->Initialize();
  }));
  return std::unique_ptr<Convolution>(std::move(convolution));
}

}  // namespace muster::kernels::cpu

// oneDNN's descriptors of one convolution or linear layer at one number of rows.
//
// As onednn.h: only for .cc files of this folder. Every function may throw dnnl::error.
#ifndef MUSTER_KERNELS_CPU_ONEDNN_DESCRIPTORS_H_
#define MUSTER_KERNELS_CPU_ONEDNN_DESCRIPTORS_H_

#include <cstdint>

#include "kernels/convolution.h"
#include "kernels/cpu/onednn.h"

namespace muster::kernels::cpu {

inline dnnl::primitive_attr ScratchpadFromOutside() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

class OneDnnDescriptors {
 public:
  using Desc = dnnl::memory::desc;

  OneDnnDescriptors(const ConvolutionShape& shape, const ConvolutionOptions& options, int64_t rows)
      : linear_(shape.height == 1 && shape.width == 1 && shape.kernel == 1 && shape.padding == 0 &&
                shape.groups == 1),
        options_(options),
        strides_{shape.stride, shape.stride},
        padding_{shape.padding, shape.padding} {
    const Type operand = TypeOf(options.compute_type);
    dnnl::memory::dims x_dims = {rows, shape.in_channels};
    dnnl::memory::dims y_dims = {rows, shape.out_channels};
    weight_dims_ = {shape.out_channels, shape.in_channels};
    if (!linear_) {
      x_dims.insert(x_dims.end(), {shape.height, shape.width});
      y_dims.insert(y_dims.end(), {shape.out_height(), shape.out_width()});
      weight_dims_.insert(weight_dims_.end(), {shape.kernel, shape.kernel});
    }
    if (shape.groups > 1) {
      weight_dims_[0] /= shape.groups;
      weight_dims_[1] /= shape.groups;
      weight_dims_.insert(weight_dims_.begin(), shape.groups);
    }
    const Tag activations = linear_ ? Tag::ab : Tag::acdb;
    x_ = Desc(x_dims, operand, activations);
    dx_ = Desc(x_dims, TypeOf(options.x_type), activations);
    y_ = Desc(y_dims, TypeOf(options.y_type), activations);
    dy_ = Desc(y_dims, operand, activations);
    weights_ = Desc(weight_dims_, operand, Tag::any);
    dweights_ = Desc(weight_dims_, Type::f32, Tag::any);
    if (options.bias) bias_ = Desc({shape.out_channels}, Type::f32, Tag::a);
  }

  const Desc& x() const { return x_; }        // as Forward and BackwardWeights read it
  const Desc& dx() const { return dx_; }      // as BackwardData writes it
  const Desc& y() const { return y_; }        // as Forward writes it
  const Desc& dy() const { return dy_; }      // as both backwards read it
  const Desc& bias() const { return bias_; }  // empty without
  // Of float32 weights in PyTorch's order, and with the output channels last.
  Desc canonical_weights() const {
    return Desc(weight_dims_, Type::f32,
                linear_                    ? Tag::ab
                : weight_dims_.size() == 4 ? Tag::abcd
                                           : Tag::abcde);
  }
  Desc weights_in_lines() const {
    return Desc(weight_dims_, Type::f32, linear_ ? Tag::io : Tag::hwio);
  }
  // In the operands' type, in any order.
  const Desc& any_weights() const { return weights_; }

  dnnl::primitive_desc Forward(const Desc& weights) const {
    const dnnl::primitive_attr attributes = ScratchpadFromOutside();
    if (linear_) return LinearForward(weights, attributes);
    return ConvolutionForward(weights, attributes);
  }

  dnnl::primitive_desc BackwardData() const {
    const dnnl::primitive_attr attributes = ScratchpadFromOutside();
    if (linear_) {
      return dnnl::inner_product_backward_data::primitive_desc(
          {dx_, weights_, dy_}, attributes, CpuEngine(), LinearForward(weights_, {}));
    }
    return dnnl::convolution_backward_data::primitive_desc(
        {dnnl::algorithm::convolution_direct, dx_, weights_, dy_, strides_, padding_, padding_},
        attributes, CpuEngine(), ConvolutionForward(weights_, {}));
  }

  dnnl::primitive_desc BackwardWeights() const {
    const dnnl::primitive_attr attributes = ScratchpadFromOutside();
    if (linear_) {
      return dnnl::inner_product_backward_weights::primitive_desc(
          {x_, dweights_, bias_, dy_}, attributes, CpuEngine(), LinearForward(weights_, {}));
    }
    return dnnl::convolution_backward_weights::primitive_desc(
        {dnnl::algorithm::convolution_direct, x_, dweights_, bias_, dy_, strides_, padding_,
         padding_},
        attributes, CpuEngine(), ConvolutionForward(weights_, {}));
  }

 private:
  using Tag = dnnl::memory::format_tag;
  using Type = dnnl::memory::data_type;

  static Type TypeOf(DataType type) { return type == DataType::kBfloat16 ? Type::bf16 : Type::f32; }
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
  dnnl::memory::dims weight_dims_;
  Desc x_;
  Desc dx_;
  Desc y_;
  Desc dy_;
  Desc weights_;
  Desc dweights_;
  Desc bias_;
};

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_ONEDNN_DESCRIPTORS_H_

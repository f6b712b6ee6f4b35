// How the processor computes a convolution: the interface of the engines, one folder each, that
// kernels/cpu/convolution/convolution.cc chooses from.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_ENGINE_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "kernels/convolution.h"
#include "kernels/kernel_table.h"
#include "kernels/thread_pool.h"

namespace muster::kernels::cpu {

// Alignment of arrays and of each region of a workspace.
inline constexpr size_t kAlignment = 64;
inline size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Computes one layer in types of its own choice. Not thread-safe.
class ConvolutionEngine {
 public:
  // Types of the arrays that the calls below read and write.
  struct Types {
    DataType x;   // read by Forward and BackwardWeights
    DataType dx;  // written by BackwardData
    DataType y;   // written by Forward; also the addend's
    DataType dy;  // read by BackwardData and BackwardWeights
    // The engine rounds both operands of each product to this type. If it is not the type that
    // ConvolutionOptions asks for, the caller rounds x, dy and weights before each call.
    DataType compute;
  };

  virtual ~ConvolutionEngine() = default;

  virtual Types types() const = 0;
  virtual std::string description() const = 0;
  // The weights' layout, as in Convolution.
  virtual int64_t weights_elements() const = 0;
  virtual std::string weights_layout() const = 0;
  // Calls visit(index in canonical order, index in the layout) for each weight.
  virtual void ForEachWeight(absl::FunctionRef<void(int64_t, int64_t)> visit) const = 0;

  // As the members of Convolution, with arrays of the types above and of workspace_bytes().
  virtual size_t workspace_bytes() const = 0;
  virtual void Forward(int64_t rows, const void* x, const float* weights, const Epilogue& epilogue,
                       void* y, void* workspace) = 0;
  virtual void BackwardData(int64_t rows, const void* dy, const float* weights, void* dx,
                            void* workspace) = 0;
  virtual void BackwardWeights(int64_t rows, const void* x, const void* dy, float* dweights,
                               float* dbias, void* workspace) = 0;
};

// Runs the parts of a call at once, in the threads of a shared pool.
class Parts {
 public:
  explicit Parts(int count)
      : count_(count), pool_(count > 1 ? ThreadPool::Shared(count) : nullptr) {}

  int count() const { return count_; }
  void Run(absl::FunctionRef<void(int part)> run) const {
    if (pool_ == nullptr) return run(0);
    pool_->Run(run);
  }

 private:
  const int count_;
  const std::shared_ptr<ThreadPool> pool_;  // null: the calling thread alone
};

// The Convolution of `shape` and `options` by `engine`: converts activations and weights between
// the types of the options and those of the engine, in the workspace, and imports and exports
// weights. `kernels` outlives the convolution.
std::unique_ptr<Convolution> LowerConvolution(const ConvolutionShape& shape,
                                              const ConvolutionOptions& options,
                                              const KernelTable& kernels,
                                              std::unique_ptr<ConvolutionEngine> engine);

// The Convolution of several groups by one Convolution of a single group, which computes each
// group in turn on copies of the group's channels.
std::unique_ptr<Convolution> MakeGroupedConvolution(const ConvolutionShape& shape,
                                                    const ConvolutionOptions& options,
                                                    std::unique_ptr<Convolution> group);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_ENGINE_H_

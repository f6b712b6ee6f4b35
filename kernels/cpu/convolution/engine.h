// Interface of the CPU's convolution engines, one folder each, from which
// kernels/cpu/convolution/convolution.cc selects.
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

// Computes one layer in types selected by the engine. Not thread-safe.
class ConvolutionEngine {
 public:
  // Types of the arrays that the calls below read and write.
  struct Types {
    DataType x;   // read by Forward and BackwardWeights
    DataType dx;  // written by BackwardData
    DataType y;   // written by Forward; also the addend's
    DataType dy;  // read by BackwardData and BackwardWeights
    // Type to which the engine rounds both operands of each product. If it is not the type of
    // ConvolutionOptions, the caller rounds x, dy and weights before each call.
    DataType compute;
  };

  virtual ~ConvolutionEngine() = default;

  virtual Types types() const = 0;
  virtual std::string description() const = 0;
  // Layout of the weights, as in Convolution.
  virtual int64_t weights_elements() const = 0;
  virtual std::string weights_layout() const = 0;
  // Calls visit(canonical index, layout index) for each weight.
  virtual void ForEachWeight(absl::FunctionRef<void(int64_t, int64_t)> visit) const = 0;

  // As in Convolution, with arrays of the types above and of workspace_bytes().
  virtual size_t workspace_bytes() const = 0;
  virtual void Forward(int64_t samples, const void* x, const float* weights,
                       const Epilogue& epilogue, void* y, void* workspace) = 0;
  virtual void BackwardData(int64_t samples, const void* dy, const float* weights, void* dx,
                            void* workspace) = 0;
  virtual void BackwardWeights(int64_t samples, const void* x, const void* dy, float* dweights,
                               float* dbias, void* workspace) = 0;
};

// Runs the slices of a call concurrently in a shared thread pool.
class Parts {
 public:
  explicit Parts(int count)
      : count_(count), pool_(count > 1 ? ThreadPool::Shared(count) : nullptr) {}

  int count() const { return count_; }
  void Run(absl::FunctionRef<void(int slice)> run) const {
    if (pool_ == nullptr) return run(0);
    pool_->Run(run);
  }

 private:
  const int count_;
  const std::shared_ptr<ThreadPool> pool_;  // null: only the calling thread
};

// Returns the Convolution of `shape` and `options` implemented by `engine`: converts activations
// and weights between the types of the options and the engine in the workspace, and imports and
// exports weights. `kernels` must outlive the convolution.
std::unique_ptr<Convolution> LowerConvolution(const ConvolutionShape& shape,
                                              const ConvolutionOptions& options,
                                              const KernelTable& kernels,
                                              std::unique_ptr<ConvolutionEngine> engine);

// Returns a Convolution of several groups implemented by a Convolution of a single group, which
// computes the groups one after the other on copies of their channels.
std::unique_ptr<Convolution> MakeGroupedConvolution(const ConvolutionShape& shape,
                                                    const ConvolutionOptions& options,
                                                    std::unique_ptr<Convolution> group);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_ENGINE_H_

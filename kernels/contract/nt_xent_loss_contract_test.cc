// Compares the NT-Xent loss of every device with the reference kernels. Which products a GPU uses
// is tested with the fake cuBLASLt.
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/contract/kernel_set.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/testing/on_host_device.h"
#include "kernels/device.h"
#include "kernels/kernel_table.h"
#include "kernels/nt_xent_loss.h"

namespace muster::kernels {
namespace {

constexpr int64_t kSamples = 34;

struct Outcome {
  std::string description;
  std::vector<float> log_sums, gradients;
  LossResult loss;
};

DeviceMemory Upload(Device& device, const float* values, size_t count) {
  absl::StatusOr<DeviceMemory> memory = device.Allocate((count + 1) * sizeof(float));
  EXPECT_TRUE(memory.ok()) << memory.status();
  device.CopyToDevice(memory->data(), values, count * sizeof(float));
  return *std::move(memory);
}

std::vector<float> Download(Device& device, const DeviceMemory& memory, size_t count) {
  std::vector<float> values(count);
  device.CopyToHost(values.data(), memory.data(), count * sizeof(float));
  return values;
}

// Log sums of all samples, by the reference.
std::vector<float> LogSums(NtXentShape shape, const TestBuffer& units) {
  shape.first = 0;
  shape.anchors = shape.samples;
  TestBuffer logits(shape.logits_elements());
  std::vector<float> log_sums(shape.row_stride());
  LossResult result;
  ReferenceKernels().nt_xent_forward(shape, units.data(), logits.data(), log_sums.data(), nullptr,
                                     &result);
  return log_sums;
}

Outcome Compute(Device& device, NtXentLoss& loss, const NtXentShape& shape,
                const TestBuffer& units) {
  const std::vector<float> all_log_sums = LogSums(shape, units);
  const DeviceMemory on_device = Upload(device, units.data(), units.size());
  const DeviceMemory group = Upload(device, all_log_sums.data(), all_log_sums.size());
  const std::vector<float> none(shape.logits_elements() + shape.row_stride(), 9.0f);
  const DeviceMemory logits = Upload(device, none.data(), shape.logits_elements());
  const DeviceMemory log_sums = Upload(device, none.data(), shape.anchors);
  const std::vector<float> zeros(shape.anchors * shape.width);
  const DeviceMemory dunits = Upload(device, zeros.data(), zeros.size());
  absl::StatusOr<DeviceMemory> result = device.Allocate(sizeof(LossResult));
  EXPECT_TRUE(result.ok()) << result.status();
  loss.Forward(shape, on_device.as<float>(), logits.as<float>(), log_sums.as<float>(),
               result->as<LossResult>());
  loss.Backward(shape, 0.25, nullptr, on_device.as<float>(), group.as<float>(), logits.as<float>(),
                dunits.as<float>());
  Outcome outcome{loss.description(),
                  Download(device, log_sums, shape.anchors),
                  Download(device, dunits, zeros.size()),
                  {}};
  device.CopyToHost(&outcome.loss, result->data(), sizeof(LossResult));
  EXPECT_TRUE(device.Synchronize().ok()) << device.Synchronize();
  return outcome;
}

class NtXentLossTest : public testing::Test {
 protected:
  NtXentLossTest() { GetFakeCublasLt() = {}; }

  // A share of the largest group, all of a smaller one, an odd width, and no samples.
  void ExpectReferenceResults(Device& device, const std::string& description) {
    for (const int64_t width : {int64_t{1}, int64_t{13}, int64_t{128}}) {
      auto loss = device.MakeNtXentLoss({.samples = kSamples, .anchors = kSamples, .width = width});
      ASSERT_TRUE(loss.ok()) << loss.status();
      EXPECT_EQ((*loss)->description(), description);
      auto reference = MakeKernelNtXentLoss(
          ReferenceDevice(), {.samples = kSamples, .anchors = kSamples, .width = width});
      ASSERT_TRUE(reference.ok()) << reference.status();
      for (NtXentShape shape : {NtXentShape{.samples = kSamples, .first = 20, .anchors = 14},
                                NtXentShape{.samples = 16, .first = 0, .anchors = 16},
                                NtXentShape{.samples = 6, .first = 2, .anchors = 4},
                                NtXentShape{.samples = 2, .first = 2, .anchors = 0}}) {
        shape.width = width;
        shape.temperature = 0.5f;
        SCOPED_TRACE(testing::Message() << "width " << width << " samples " << shape.samples);
        ExpectReferenceResult(device, **loss, **reference, shape);
      }
    }
  }

 private:
  void ExpectReferenceResult(Device& device, NtXentLoss& loss, NtXentLoss& reference,
                             const NtXentShape& shape) {
    const TestBuffer z(shape.samples * shape.width, random_);
    TestBuffer units(z.size()), norms(shape.samples);
    ReferenceKernels().l2_normalize_forward(shape.samples, shape.width, z.data(), units.data(),
                                            norms.data());
    const Outcome actual = Compute(device, loss, shape, units);
    const Outcome expected = Compute(ReferenceDevice(), reference, shape, units);
    EXPECT_NEAR(actual.loss.loss_sum, expected.loss.loss_sum, 1e-4);
    EXPECT_EQ(actual.loss.correct, expected.loss.correct);
    for (size_t i = 0; i < expected.log_sums.size(); ++i) {
      ASSERT_NEAR(actual.log_sums[i], expected.log_sums[i], 1e-5) << i;
    }
    for (size_t i = 0; i < expected.gradients.size(); ++i) {
      ASSERT_NEAR(actual.gradients[i], expected.gradients[i], 1e-5) << i;
    }
  }

  std::mt19937 random_{7};
};

TEST_F(NtXentLossTest, OfACpuUsesItsKernels) { ExpectReferenceResults(CpuDevice(), "kernels"); }

TEST_F(NtXentLossTest, OfAGpuUsesCublasLt) {
  ExpectReferenceResults(*MakeCudaOnHostDevice(), "cublaslt");
  EXPECT_GT(GetFakeCublasLt().runs, 0);
  EXPECT_EQ(GetFakeCublasLt().compute_type, kCublasCompute32F);
}

TEST_F(NtXentLossTest, OfAGpuUsesKernelsIfCublasLtHasNoAlgorithm) {
  GetFakeCublasLt().nothing = 1;
  ExpectReferenceResults(*MakeCudaOnHostDevice(), "kernels");
  EXPECT_EQ(GetFakeCublasLt().runs, 0);
}

TEST_F(NtXentLossTest, MultipliesInTf32IfAllowed) {
  ExpectReferenceResults(*MakeCudaOnHostDevice({.numerics = {.tf32 = true}}), "cublaslt");
  EXPECT_EQ(GetFakeCublasLt().compute_type, kCublasCompute32FFastTf32);
}

TEST_F(NtXentLossTest, ReportsErrorsOfProductsToTheDevice) {
  const auto device = MakeCudaOnHostDevice();
  auto loss = device->MakeNtXentLoss({.samples = 2, .anchors = 2, .width = 4});
  ASSERT_TRUE(loss.ok()) << loss.status();
  GetFakeCublasLt().failing_run = 1;
  TestBuffer units(8), logits(32), log_sums(2);
  LossResult result;
  (*loss)->Forward({.samples = 2, .anchors = 2, .width = 4}, units.data(), logits.data(),
                   log_sums.data(), &result);
  EXPECT_EQ(device->Synchronize().message(), "cuBLASLt: product: the fake's error");
}

// A GPU whose kernels' PTX is interpreted, by the name of the kernel set; only where it is built.
class InterpretedNtXentLossTest : public NtXentLossTest,
                                  public testing::WithParamInterface<std::string> {};

TEST_P(InterpretedNtXentLossTest, UsesCublasLt) {
  setenv("MUSTER_CUDA_LIBRARY_PATH", "kernels/cuda/testing/fakes", 1);
  const auto device = OpenCudaDevice(0, CudaPtxLibrary());
  unsetenv("MUSTER_CUDA_LIBRARY_PATH");
  ASSERT_TRUE(device.ok()) << device.status();
  ExpectReferenceResults(**device, "cublaslt");
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(InterpretedNtXentLossTest);
INSTANTIATE_TEST_SUITE_P(PtxInterpreter, InterpretedNtXentLossTest,
                         testing::ValuesIn(HasCudaPtxLibrary()
                                               ? std::vector<std::string>{"cuda_ptx"}
                                               : std::vector<std::string>()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace muster::kernels

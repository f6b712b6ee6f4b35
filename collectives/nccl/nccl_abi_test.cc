// Compares nccl_abi.h with the header of the installed NCCL.
#include "collectives/nccl/nccl_abi.h"

#include <gtest/gtest.h>
#if __has_include(<nccl.h>)
#include <nccl.h>

#include <type_traits>
#endif

namespace {

#if __has_include(<nccl.h>)

constexpr bool Same(int ours, int theirs) { return ours == theirs; }

static_assert(Same(kNcclSuccess, ncclSuccess) &&
              Same(kNcclUnhandledCudaError, ncclUnhandledCudaError) &&
              Same(kNcclSystemError, ncclSystemError) &&
              Same(kNcclInternalError, ncclInternalError) &&
              Same(kNcclInvalidArgument, ncclInvalidArgument) &&
              Same(kNcclInvalidUsage, ncclInvalidUsage) &&
              Same(kNcclRemoteError, ncclRemoteError) && Same(kNcclInProgress, ncclInProgress));
static_assert(Same(kNcclUint8, ncclUint8) && Same(kNcclInt32, ncclInt32) &&
              Same(kNcclInt64, ncclInt64) && Same(kNcclFloat16, ncclFloat16) &&
              Same(kNcclFloat32, ncclFloat32) && Same(kNcclFloat64, ncclFloat64) &&
              Same(kNcclBfloat16, ncclBfloat16));
static_assert(Same(kNcclSum, ncclSum) && Same(kNcclMax, ncclMax) && Same(kNcclMin, ncclMin));
static_assert(sizeof(ncclResult_t) == sizeof(NcclResult) &&
              sizeof(ncclDataType_t) == sizeof(NcclDataType) &&
              sizeof(ncclRedOp_t) == sizeof(NcclRedOp));
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(kNcclSplitNoColor == NCCL_SPLIT_NOCOLOR);
static_assert(kNcclUndefined == NCCL_CONFIG_UNDEF_INT && kNcclOldestVersion <= NCCL_VERSION_CODE);
// NcclConfig is a prefix of ncclConfig_t.
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t) &&
              offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version) &&
              offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(NcclConfig, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize) &&
              offsetof(NcclConfig, min_ctas) == offsetof(ncclConfig_t, minCTAs) &&
              offsetof(NcclConfig, max_ctas) == offsetof(ncclConfig_t, maxCTAs) &&
              offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName) &&
              offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));

// Whether two functions have the same number of parameters with the same sizes, as seen by the
// binary interface.
template <typename Ours, typename Theirs>
struct SameShape : std::false_type {};
template <typename A, typename... As, typename B, typename... Bs>
requires(sizeof...(As) == sizeof...(Bs)) struct SameShape<A(As...), B(Bs...)>
    : std::bool_constant<sizeof(A) == sizeof(B) && (... && (sizeof(As) == sizeof(Bs)))> {
};

#define CHECK_SHAPE(name, symbol, parameters) \
  static_assert(SameShape<NcclResult parameters, decltype(symbol)>::value, #symbol);
NCCL_REQUIRED_FUNCTIONS(CHECK_SHAPE)
#if NCCL_VERSION_CODE >= 22700
static_assert(kNcclWindowSymmetric == NCCL_WIN_COLL_SYMMETRIC);
NCCL_OPTIONAL_FUNCTIONS(CHECK_SHAPE)
#endif

TEST(NcclAbiTest, ConfigStartsLikeInstalledHeader) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(theirs.magic, NCCL_CONFIG_MAGIC);
}

#else

TEST(NcclAbiTest, ConfigStartsLikeInstalledHeader) { GTEST_SKIP() << "no nccl.h is installed"; }

#endif

}  // namespace

/* The part of cuDNN 9's binary interface that this project uses: the symbols of libcudnn.so.9 that
 * build and run graphs, and the values of their arguments. Plain C, so that the fake cuDNN is built
 * against the same declarations; nvidia_headers_test.cc compares them with NVIDIA's headers.
 *
 * Source: NVIDIA's cuDNN API reference, https://docs.nvidia.com/deeplearning/cudnn. */
#ifndef MUSTER_KERNELS_CUDA_LIBRARY_CUDNN_ABI_H_
#define MUSTER_KERNELS_CUDA_LIBRARY_CUDNN_ABI_H_

#include <stddef.h>
#include <stdint.h>

typedef int CudnnStatus; /* errors of a category share their thousands: 3000 to 3999 */
typedef void* CudnnHandle;
typedef void* CudnnBackendDescriptor;

enum {
  kCudnnSuccess = 0,
  kCudnnBadParameter = 2000,
  kCudnnNotSupported = 3000,
  kCudnnDeviceAllocationFailed = 4004,
};

typedef enum CudnnDataType {
  kCudnnFloat = 0,
  kCudnnHalf = 2,
  kCudnnBfloat16 = 9,
} CudnnDataType;

typedef enum CudnnConvolutionMode { kCudnnCrossCorrelation = 1 } CudnnConvolutionMode;
typedef enum CudnnNanPropagation { kCudnnPropagateNan = 1 } CudnnNanPropagation;
typedef enum CudnnHeuristicsMode {
  kCudnnHeuristicsFallback = 2,
  kCudnnHeuristicsA = 3,
} CudnnHeuristicsMode;

typedef enum CudnnPointwiseMode {
  kCudnnPointwiseAdd = 0,
  kCudnnPointwiseRelu = 100,
} CudnnPointwiseMode;

/* Numerical properties of an engine. */
typedef enum CudnnNumericalNote {
  kCudnnNoteTensorCore = 0,
  kCudnnNoteDownConvertInputs = 1,
  kCudnnNoteReducedPrecisionReduction = 2,
  kCudnnNoteFft = 3,
  kCudnnNoteNondeterministic = 4,
  kCudnnNoteWinograd = 5,
  kCudnnNoteWinograd4x4 = 6,
  kCudnnNoteWinograd6x6 = 7,
  kCudnnNoteWinograd13x13 = 8,
  kCudnnNoteStrictNan = 9,
} CudnnNumericalNote;

typedef enum CudnnBehaviorNote { kCudnnNoteRuntimeCompilation = 0 } CudnnBehaviorNote;

typedef enum CudnnDescriptorType {
  kCudnnPointwise = 0,
  kCudnnConvolution = 1,
  kCudnnEngine = 2,
  kCudnnEngineConfig = 3,
  kCudnnEngineHeuristics = 4,
  kCudnnExecutionPlan = 5,
  kCudnnKnobChoice = 7,
  kCudnnConvolutionForward = 10,
  kCudnnConvolutionBackwardFilter = 11,
  kCudnnConvolutionBackwardData = 12,
  kCudnnPointwiseOperation = 13,
  kCudnnOperationGraph = 15,
  kCudnnVariantPack = 16,
  kCudnnTensor = 17,
  kCudnnDeviceProperties = 38, /* since 9.8 */
} CudnnDescriptorType;

/* Type of an attribute's elements. */
typedef enum CudnnAttributeType {
  kCudnnTypeHandle = 0,
  kCudnnTypeDataType = 1,
  kCudnnTypeBoolean = 2, /* one byte */
  kCudnnTypeInt64 = 3,
  kCudnnTypeFloat = 4,
  kCudnnTypeVoidPointer = 6,
  kCudnnTypeConvolutionMode = 7,
  kCudnnTypeHeuristicsMode = 8,
  kCudnnTypeKnob = 9,
  kCudnnTypeNanPropagation = 10,
  kCudnnTypeNumericalNote = 11,
  kCudnnTypePointwiseMode = 14,
  kCudnnTypeDescriptor = 15,
  kCudnnTypeBehaviorNote = 19,
  kCudnnTypeChar = 24,
} CudnnAttributeType;

typedef enum CudnnAttribute {
  kCudnnPointwiseMode = 0,
  kCudnnPointwisePrecision = 1,
  kCudnnPointwiseNanPropagation = 2,

  kCudnnConvolutionPrecision = 100,
  kCudnnConvolutionMode = 101,
  kCudnnConvolutionDilations = 102,
  kCudnnConvolutionStrides = 103,
  kCudnnConvolutionPostPaddings = 104,
  kCudnnConvolutionPrePaddings = 105,
  kCudnnConvolutionDimensions = 106,

  kCudnnHeuristicsMode = 200,
  kCudnnHeuristicsGraph = 201,
  kCudnnHeuristicsResults = 202,
  kCudnnHeuristicsDeviceProperties = 204,

  kCudnnConfigEngine = 300,
  kCudnnConfigKnobChoices = 302,

  kCudnnPlanHandle = 400,
  kCudnnPlanConfig = 401,
  kCudnnPlanWorkspaceBytes = 402,
  kCudnnPlanDeviceProperties = 407,

  kCudnnKnobType = 600,
  kCudnnKnobValue = 601,

  kCudnnForwardAlpha = 700,
  kCudnnForwardBeta = 701,
  kCudnnForwardConvolution = 702,
  kCudnnForwardW = 703,
  kCudnnForwardX = 704,
  kCudnnForwardY = 705,
  kCudnnBackwardDataAlpha = 706,
  kCudnnBackwardDataBeta = 707,
  kCudnnBackwardDataConvolution = 708,
  kCudnnBackwardDataW = 709,
  kCudnnBackwardDataDx = 710,
  kCudnnBackwardDataDy = 711,
  kCudnnBackwardFilterAlpha = 712,
  kCudnnBackwardFilterBeta = 713,
  kCudnnBackwardFilterConvolution = 714,
  kCudnnBackwardFilterDw = 715,
  kCudnnBackwardFilterX = 716,
  kCudnnBackwardFilterDy = 717,

  kCudnnPointwiseDescriptor = 750,
  kCudnnPointwiseX = 751,
  kCudnnPointwiseB = 752,
  kCudnnPointwiseY = 753,

  kCudnnGraphHandle = 800,
  kCudnnGraphOperations = 801,

  kCudnnTensorAlignment = 900,
  kCudnnTensorDataType = 901,
  kCudnnTensorDimensions = 902,
  kCudnnTensorStrides = 903,
  kCudnnTensorId = 906,
  kCudnnTensorVirtual = 907,

  kCudnnPackIds = 1000,
  kCudnnPackPointers = 1001,
  kCudnnPackWorkspace = 1003,

  kCudnnEngineGraph = 1300,
  kCudnnEngineIndex = 1301,
  kCudnnEngineNumericalNotes = 1303,
  kCudnnEngineBehaviorNotes = 1305,
  kCudnnEngineDeviceProperties = 1307,

  kCudnnDevicePropertiesJson = 2702,
} CudnnAttribute;

/* X(member of struct Cudnn, symbol, parameters) for each function that returns CudnnStatus. */
#define CUDNN_FUNCTIONS(X)                                                                  \
  X(create, cudnnCreate, (CudnnHandle*))                                                    \
  X(destroy, cudnnDestroy, (CudnnHandle))                                                   \
  X(set_stream, cudnnSetStream, (CudnnHandle, void*))                                       \
  X(create_descriptor, cudnnBackendCreateDescriptor,                                        \
    (CudnnDescriptorType, CudnnBackendDescriptor*))                                         \
  X(destroy_descriptor, cudnnBackendDestroyDescriptor, (CudnnBackendDescriptor))            \
  X(finalize, cudnnBackendFinalize, (CudnnBackendDescriptor))                               \
  X(set_attribute, cudnnBackendSetAttribute,                                                \
    (CudnnBackendDescriptor, CudnnAttribute, CudnnAttributeType, int64_t, const void*))     \
  X(get_attribute, cudnnBackendGetAttribute,                                                \
    (CudnnBackendDescriptor, CudnnAttribute, CudnnAttributeType, int64_t, int64_t*, void*)) \
  X(execute, cudnnBackendExecute, (CudnnHandle, CudnnBackendDescriptor, CudnnBackendDescriptor))

#endif /* MUSTER_KERNELS_CUDA_LIBRARY_CUDNN_ABI_H_ */

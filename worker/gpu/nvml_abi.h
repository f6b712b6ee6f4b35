/* The part of NVML's binary interface that this project uses: symbols of libnvidia-ml.so.1 and the
 * layout of their arguments, as exported by drivers since the 450 series. Plain C, so that a fake
 * library can be built against the same declarations.
 *
 * Source: NVIDIA's NVML API reference, https://docs.nvidia.com/deploy/nvml-api. */
#ifndef MUSTER_WORKER_GPU_NVML_ABI_H_
#define MUSTER_WORKER_GPU_NVML_ABI_H_

#ifdef __cplusplus
extern "C" {
#endif

typedef void* NvmlDevice;
typedef void* NvmlEventSet;
typedef int NvmlReturn;

enum {
  kNvmlSuccess = 0,
  kNvmlInvalidArgument = 2,
  kNvmlNotSupported = 3,
  kNvmlNoPermission = 4,
  kNvmlNotFound = 6,
  kNvmlInsufficientSize = 7,
  kNvmlDriverNotLoaded = 9,
  kNvmlTimeout = 10,
  kNvmlFunctionNotFound = 13,
  kNvmlGpuIsLost = 15,
  kNvmlResetRequired = 16,
  kNvmlUnknown = 999
};

enum { kNvmlTemperatureGpu = 0 };         /* sensor */
enum { kNvmlMemoryErrorUncorrected = 1 }; /* kind of ECC error */
enum { kNvmlEccVolatile = 0 };            /* since the driver was loaded */
enum { kNvmlMaxLinks = 18, kNvmlTextSize = 96 };
enum {
  kNvmlTopologyInternal = 0,
  kNvmlTopologySingleSwitch = 10,
  kNvmlTopologyMultipleSwitches = 20,
  kNvmlTopologyHostBridge = 30,
  kNvmlTopologyNumaNode = 40,
  kNvmlTopologySystem = 50
};

enum { kNvmlFieldRecoveryAction = 230 }; /* drivers since the 570 series */
/* Action that the driver requests before the GPU is used again. */
enum {
  kNvmlRecoveryNone = 0,
  kNvmlRecoveryGpuReset = 1,
  kNvmlRecoveryNodeReboot = 2,
  kNvmlRecoveryDrainPeers = 3,
  kNvmlRecoveryDrainAndReset = 4
};

#define NVML_EVENT_XID 0x8ULL
#define NVML_CLOCKS_SW_POWER_CAP 0x4ULL
#define NVML_CLOCKS_HW_SLOWDOWN 0x8ULL
#define NVML_CLOCKS_SW_THERMAL 0x20ULL
#define NVML_CLOCKS_HW_THERMAL 0x40ULL
#define NVML_CLOCKS_HW_POWER_BRAKE 0x80ULL

typedef struct {
  unsigned long long total, free, used;
} NvmlMemory;

typedef struct {
  unsigned int gpu, memory; /* percent */
} NvmlUtilization;

typedef struct {
  char bus_id_legacy[16];
  unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
} NvmlPciInfo;

typedef struct {
  unsigned int pid;
  unsigned long long used_memory;
  unsigned int gpu_instance, compute_instance;
} NvmlProcess;

typedef struct {
  unsigned int field, scope;
  long long timestamp, latency; /* microseconds */
  int value_type;
  NvmlReturn code; /* status of this field */
  union {
    double real;
    unsigned int number;
    unsigned long long large_number;
  } value;
} NvmlFieldValue;

typedef struct {
  NvmlDevice device;
  unsigned long long type;
  unsigned long long data; /* Xid number */
  unsigned int gpu_instance, compute_instance;
} NvmlEvent;

/* X(name, symbol, parameters) of functions that return NvmlReturn. The first ones are required;
 * each of the others is an optional feature. */
#define NVML_REQUIRED_FUNCTIONS(X)                                         \
  X(init, nvmlInit_v2, (void))                                             \
  X(shutdown, nvmlShutdown, (void))                                        \
  X(device_count, nvmlDeviceGetCount_v2, (unsigned int*))                  \
  X(device_at, nvmlDeviceGetHandleByIndex_v2, (unsigned int, NvmlDevice*)) \
  X(uuid, nvmlDeviceGetUUID, (NvmlDevice, char*, unsigned int))            \
  X(pci_info, nvmlDeviceGetPciInfo_v3, (NvmlDevice, NvmlPciInfo*))         \
  X(memory_info, nvmlDeviceGetMemoryInfo, (NvmlDevice, NvmlMemory*))

#define NVML_OPTIONAL_FUNCTIONS(X)                                                                 \
  X(cuda_driver_version, nvmlSystemGetCudaDriverVersion, (int*))                                   \
  X(driver_version, nvmlSystemGetDriverVersion, (char*, unsigned int))                             \
  X(name, nvmlDeviceGetName, (NvmlDevice, char*, unsigned int))                                    \
  X(link_state, nvmlDeviceGetNvLinkState, (NvmlDevice, unsigned int, int*))                        \
  X(link_peer, nvmlDeviceGetNvLinkRemotePciInfo_v2, (NvmlDevice, unsigned int, NvmlPciInfo*))      \
  X(common_ancestor, nvmlDeviceGetTopologyCommonAncestor, (NvmlDevice, NvmlDevice, int*))          \
  X(utilization, nvmlDeviceGetUtilizationRates, (NvmlDevice, NvmlUtilization*))                    \
  X(temperature, nvmlDeviceGetTemperature, (NvmlDevice, int, unsigned int*))                       \
  X(power, nvmlDeviceGetPowerUsage, (NvmlDevice, unsigned int*))                                   \
  X(ecc_errors, nvmlDeviceGetTotalEccErrors, (NvmlDevice, int, int, unsigned long long*))          \
  X(clock_reasons, nvmlDeviceGetCurrentClocksEventReasons, (NvmlDevice, unsigned long long*))      \
  X(old_clock_reasons, nvmlDeviceGetCurrentClocksThrottleReasons,                                  \
    (NvmlDevice, unsigned long long*))                                                             \
  X(field_values, nvmlDeviceGetFieldValues, (NvmlDevice, int, NvmlFieldValue*))                    \
  X(processes, nvmlDeviceGetComputeRunningProcesses_v3, (NvmlDevice, unsigned int*, NvmlProcess*)) \
  X(create_events, nvmlEventSetCreate, (NvmlEventSet*))                                            \
  X(register_events, nvmlDeviceRegisterEvents, (NvmlDevice, unsigned long long, NvmlEventSet))     \
  X(wait_event, nvmlEventSetWait_v2, (NvmlEventSet, NvmlEvent*, unsigned int))                     \
  X(free_events, nvmlEventSetFree, (NvmlEventSet))

#ifdef __cplusplus
}
static_assert(sizeof(NvmlMemory) == 24 && sizeof(NvmlUtilization) == 8);
static_assert(sizeof(NvmlPciInfo) == 68 && sizeof(NvmlProcess) == 24 && sizeof(NvmlEvent) == 32);
static_assert(sizeof(NvmlFieldValue) == 40);
#endif

#endif /* MUSTER_WORKER_GPU_NVML_ABI_H_ */

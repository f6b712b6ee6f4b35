/* A fake libnvidia-ml.so.1 for tests: the same symbols, with GPUs described by the text file that
 * the environment variable FAKE_NVML names. The file is read again at every call, so that a test
 * changes the machine by replacing it (with a rename, so that no reader sees half of it):
 *
 *   gpu uuid=GPU-a bus=1b memory=80 used=1 util=50 celsius=40 watts=300 ecc=0 clocks=0x40
 *   gpu lost             one per GPU, in NVML's order; memory and used in GiB; also recovery=0
 *   process 0 4411       pid 4411 holds memory of GPU 0
 *   nvlink 0 1           a link of GPU 0 leads to GPU 1; `-` instead of the 1 for a switch
 *   topology 0 1 10      the nearest common ancestor, as NVML numbers them
 *   xid 0 79             GPU 0 reports Xid 79; each line once, so append new ones
 *   driver 580.65.06     the driver's version
 *   cuda 13000           the latest CUDA version that the driver supports
 *   init 9               nvmlInit fails with this code
 *
 * Built with OLD_DRIVER, it lacks functions that drivers before the 450 series lack. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/gpu/nvml_abi.h"

enum { kMaxGpus = 16, kMaxRows = 64 };

struct Gpu {
  char uuid[kNvmlTextSize];
  unsigned bus, utilization, celsius, watts, recovery;
  double memory_gib, used_gib;
  unsigned long long ecc, clocks;
  int lost;
};

struct Row {
  int a, b, c;
};

static struct {
  struct Gpu gpus[kMaxGpus];
  struct Row processes[kMaxRows], links[kMaxRows], topology[kMaxRows], xids[kMaxRows];
  int gpu_count, process_count, link_count, topology_count, xid_count;
  char driver[kNvmlTextSize];
  int init, cuda;
} machine;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char handles[kMaxGpus];

static void ReadGpu(char* line) {
  struct Gpu* gpu = &machine.gpus[machine.gpu_count++];
  char* rest = NULL;
  for (char* word = strtok_r(line, " \n", &rest); word != NULL;
       word = strtok_r(NULL, " \n", &rest)) {
    if (strcmp(word, "lost") == 0) gpu->lost = 1;
    char* value = strchr(word, '=');
    if (value == NULL) continue;
    *value++ = '\0';
    if (strcmp(word, "uuid") == 0) snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", value);
    if (strcmp(word, "bus") == 0) gpu->bus = (unsigned)strtoul(value, NULL, 16);
    if (strcmp(word, "memory") == 0) gpu->memory_gib = atof(value);
    if (strcmp(word, "used") == 0) gpu->used_gib = atof(value);
    if (strcmp(word, "util") == 0) gpu->utilization = (unsigned)atoi(value);
    if (strcmp(word, "celsius") == 0) gpu->celsius = (unsigned)atoi(value);
    if (strcmp(word, "watts") == 0) gpu->watts = (unsigned)atoi(value);
    if (strcmp(word, "ecc") == 0) gpu->ecc = strtoull(value, NULL, 0);
    if (strcmp(word, "recovery") == 0) gpu->recovery = (unsigned)atoi(value);
    if (strcmp(word, "clocks") == 0) gpu->clocks = strtoull(value, NULL, 0);
  }
}

static void ReadRow(const char* text, struct Row* rows, int* count) {
  struct Row row = {-1, -1, -1};
  if (*count < kMaxRows && sscanf(text, "%d %d %d", &row.a, &row.b, &row.c) >= 1) {
    rows[(*count)++] = row;
  }
}

/* Requires the mutex. Without a file there is no GPU. */
static void ReadMachine(void) {
  memset(&machine, 0, sizeof(machine));
  strcpy(machine.driver, "580.65.06");
  machine.cuda = 13000;
  const char* path = getenv("FAKE_NVML");
  FILE* file = path == NULL ? NULL : fopen(path, "r");
  if (file == NULL) return;
  char line[512];
  while (fgets(line, sizeof(line), file) != NULL) {
    char kind[16] = "";
    int skip = 0;
    if (sscanf(line, "%15s %n", kind, &skip) < 1) continue;
    char* text = line + skip;
    if (strcmp(kind, "gpu") == 0 && machine.gpu_count < kMaxGpus) ReadGpu(text);
    if (strcmp(kind, "process") == 0) ReadRow(text, machine.processes, &machine.process_count);
    if (strcmp(kind, "nvlink") == 0) ReadRow(text, machine.links, &machine.link_count);
    if (strcmp(kind, "topology") == 0) ReadRow(text, machine.topology, &machine.topology_count);
    if (strcmp(kind, "xid") == 0) ReadRow(text, machine.xids, &machine.xid_count);
    if (strcmp(kind, "driver") == 0) sscanf(text, "%95s", machine.driver);
    if (strcmp(kind, "cuda") == 0) machine.cuda = atoi(text);
    if (strcmp(kind, "init") == 0) machine.init = atoi(text);
  }
  fclose(file);
}

/* Finds the device, or returns the error of using it. Requires the mutex. */
static NvmlReturn Find(NvmlDevice device, int* index) {
  ReadMachine();
  const long at = (char*)device - handles;
  if (at < 0 || at >= machine.gpu_count) return kNvmlInvalidArgument;
  *index = (int)at;
  return machine.gpus[at].lost ? kNvmlGpuIsLost : kNvmlSuccess;
}

/* Runs `ANSWER` for one device, with its number `i` and `gpu`. */
#define ABOUT_DEVICE(device, ...)             \
  pthread_mutex_lock(&mutex);                 \
  int i = 0;                                  \
  NvmlReturn code = Find(device, &i);         \
  if (code == kNvmlSuccess) {                 \
    const struct Gpu* gpu = &machine.gpus[i]; \
    (void)gpu;                                \
    __VA_ARGS__                               \
  }                                           \
  pthread_mutex_unlock(&mutex);               \
  return code;

static void FillPci(unsigned bus, NvmlPciInfo* info) {
  memset(info, 0, sizeof(*info));
  info->bus = bus;
  snprintf(info->bus_id, sizeof(info->bus_id), "00000000:%02X:00.0", bus);
  snprintf(info->bus_id_legacy, sizeof(info->bus_id_legacy), "0000:%02X:00.0", bus);
}

NvmlReturn nvmlInit_v2(void) {
  pthread_mutex_lock(&mutex);
  ReadMachine();
  const NvmlReturn code = machine.init;
  pthread_mutex_unlock(&mutex);
  return code;
}

NvmlReturn nvmlShutdown(void) { return kNvmlSuccess; }

const char* nvmlErrorString(NvmlReturn code) {
  switch (code) {
    case kNvmlGpuIsLost:
      return "GPU is lost";
    case kNvmlDriverNotLoaded:
      return "Driver Not Loaded";
    default:
      return "Unknown Error";
  }
}

NvmlReturn nvmlDeviceGetCount_v2(unsigned int* count) {
  pthread_mutex_lock(&mutex);
  ReadMachine();
  *count = (unsigned)machine.gpu_count;
  pthread_mutex_unlock(&mutex);
  return kNvmlSuccess;
}

NvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned int index, NvmlDevice* device) {
  *device = index < kMaxGpus ? &handles[index] : NULL;
  ABOUT_DEVICE(*device, )
}

NvmlReturn nvmlDeviceGetUUID(NvmlDevice device, char* text, unsigned int size) {
  ABOUT_DEVICE(device, snprintf(text, size, "%s", gpu->uuid);)
}

NvmlReturn nvmlDeviceGetPciInfo_v3(NvmlDevice device, NvmlPciInfo* info) {
  ABOUT_DEVICE(device, FillPci(gpu->bus, info);)
}

NvmlReturn nvmlDeviceGetMemoryInfo(NvmlDevice device, NvmlMemory* memory) {
  ABOUT_DEVICE(device, memory->total = (unsigned long long)(gpu->memory_gib * (1 << 30));
               memory->used = (unsigned long long)(gpu->used_gib * (1 << 30));
               memory->free = memory->total - memory->used;)
}

NvmlReturn nvmlDeviceGetName(NvmlDevice device, char* text, unsigned int size) {
  ABOUT_DEVICE(device, snprintf(text, size, "Fake GPU");)
}

NvmlReturn nvmlDeviceGetUtilizationRates(NvmlDevice device, NvmlUtilization* utilization) {
  ABOUT_DEVICE(device, utilization->gpu = gpu->utilization; utilization->memory = 0;)
}

NvmlReturn nvmlDeviceGetTemperature(NvmlDevice device, int sensor, unsigned int* celsius) {
  if (sensor != kNvmlTemperatureGpu) return kNvmlInvalidArgument;
  ABOUT_DEVICE(device, *celsius = gpu->celsius;)
}

NvmlReturn nvmlDeviceGetTotalEccErrors(NvmlDevice device, int kind, int counter,
                                       unsigned long long* count) {
  if (kind != kNvmlMemoryErrorUncorrected || counter != kNvmlEccVolatile) {
    return kNvmlInvalidArgument;
  }
  ABOUT_DEVICE(device, *count = gpu->ecc;)
}

NvmlReturn nvmlDeviceGetCurrentClocksThrottleReasons(NvmlDevice device,
                                                     unsigned long long* reasons) {
  ABOUT_DEVICE(device, *reasons = gpu->clocks;)
}

#ifndef OLD_DRIVER

NvmlReturn nvmlSystemGetDriverVersion(char* text, unsigned int size) {
  pthread_mutex_lock(&mutex);
  ReadMachine();
  snprintf(text, size, "%s", machine.driver);
  pthread_mutex_unlock(&mutex);
  return kNvmlSuccess;
}

NvmlReturn nvmlSystemGetCudaDriverVersion(int* version) {
  pthread_mutex_lock(&mutex);
  ReadMachine();
  *version = machine.cuda;
  pthread_mutex_unlock(&mutex);
  return kNvmlSuccess;
}

NvmlReturn nvmlDeviceGetPowerUsage(NvmlDevice device, unsigned int* milliwatts) {
  ABOUT_DEVICE(device, *milliwatts = gpu->watts * 1000;)
}

NvmlReturn nvmlDeviceGetCurrentClocksEventReasons(NvmlDevice device, unsigned long long* reasons) {
  return nvmlDeviceGetCurrentClocksThrottleReasons(device, reasons);
}

NvmlReturn nvmlDeviceGetFieldValues(NvmlDevice device, int count, NvmlFieldValue* values) {
  ABOUT_DEVICE(
      device, for (int k = 0; k < count; ++k) {
        values[k].code = kNvmlNotSupported;
        if (values[k].field != kNvmlFieldRecoveryAction) continue;
        values[k].code = kNvmlSuccess;
        values[k].value.number = gpu->recovery;
      })
}

/* The rows of a GPU are its links 0, 1, …; it has no others. */
static const struct Row* LinkOf(int gpu, unsigned int link) {
  for (int k = 0; k < machine.link_count; ++k) {
    if (machine.links[k].a == gpu && link-- == 0) return &machine.links[k];
  }
  return NULL;
}

NvmlReturn nvmlDeviceGetNvLinkState(NvmlDevice device, unsigned int link, int* up) {
  ABOUT_DEVICE(device, *up = 1; if (LinkOf(i, link) == NULL) code = kNvmlInvalidArgument;)
}

NvmlReturn nvmlDeviceGetNvLinkRemotePciInfo_v2(NvmlDevice device, unsigned int link,
                                               NvmlPciInfo* info) {
  ABOUT_DEVICE(
      device, const struct Row* row = LinkOf(i, link); if (row == NULL) {
        code = kNvmlInvalidArgument;
      } else { FillPci(row->b < 0 ? 0xff : machine.gpus[row->b].bus, info); })
}

NvmlReturn nvmlDeviceGetTopologyCommonAncestor(NvmlDevice device, NvmlDevice other, int* level) {
  const int j = (int)((char*)other - handles);
  ABOUT_DEVICE(
      device, *level = kNvmlTopologySystem; for (int k = 0; k < machine.topology_count; ++k) {
        const struct Row row = machine.topology[k];
        const int match = (row.a == i && row.b == j) || (row.a == j && row.b == i);
        if (match) *level = row.c;
      })
}

NvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(NvmlDevice device, unsigned int* count,
                                                   NvmlProcess* processes) {
  const unsigned int room = *count;
  ABOUT_DEVICE(
      device, *count = 0; for (int k = 0; k < machine.process_count; ++k) {
        if (machine.processes[k].a != i) continue;
        if (*count < room) {
          memset(&processes[*count], 0, sizeof(*processes));
          processes[*count].pid = (unsigned)machine.processes[k].b;
        }
        ++*count;
      } if (*count > room) code = kNvmlInsufficientSize;)
}

static int xids_told;

NvmlReturn nvmlEventSetCreate(NvmlEventSet* set) {
  *set = &xids_told;
  return kNvmlSuccess;
}

NvmlReturn nvmlDeviceRegisterEvents(NvmlDevice device, unsigned long long types, NvmlEventSet set) {
  if ((types & NVML_EVENT_XID) == 0 || set != &xids_told) return kNvmlInvalidArgument;
  ABOUT_DEVICE(device, )
}

NvmlReturn nvmlEventSetWait_v2(NvmlEventSet set, NvmlEvent* event, unsigned int timeout_ms) {
  if (set != &xids_told) return kNvmlInvalidArgument;
  while (1) {
    pthread_mutex_lock(&mutex);
    ReadMachine();
    const int comes = xids_told < machine.xid_count;
    if (comes) {
      const struct Row row = machine.xids[xids_told++];
      memset(event, 0, sizeof(*event));
      event->device = &handles[row.a];
      event->type = NVML_EVENT_XID;
      event->data = (unsigned long long)row.b;
    }
    pthread_mutex_unlock(&mutex);
    if (comes) return kNvmlSuccess;
    if (timeout_ms < 10) return kNvmlTimeout;
    const struct timespec pause = {0, 10 * 1000 * 1000};
    nanosleep(&pause, NULL);
    timeout_ms -= 10;
  }
}

NvmlReturn nvmlEventSetFree(NvmlEventSet set) {
  return set == &xids_told ? kNvmlSuccess : kNvmlInvalidArgument;
}

#endif

// Meaning of NVIDIA's Xid error numbers.
#ifndef MUSTER_WORKER_GPU_XID_H_
#define MUSTER_WORKER_GPU_XID_H_

#include <cstdint>
#include <string>

namespace muster::gpu {

enum class XidKind {
  // The device must not be used until its worker has been restarted: an operator has to inspect,
  // reset or replace it.
  kFatal,
  // Caused by the running program, for example an invalid address in a kernel. The device remains
  // usable.
  kApplication,
  // Xids that are only logged. Unknown numbers are of this kind, so that a driver newer than this program does
  // not disable a cluster's GPUs.
  kNotice,
};

struct Xid {
  XidKind kind = XidKind::kNotice;
  const char* meaning = "";  // empty: not in the table
};

// The table follows NVIDIA's catalog of Xid errors, https://docs.nvidia.com/deploy/xid-errors:
// fatal if the immediate action is to reset the GPU or to restart the machine. Application errors
// are those for which NVIDIA's Kubernetes device plugin keeps a device in service.
Xid LookUpXid(uint64_t number);

// "Xid 79, GPU has fallen off the bus".
std::string XidText(uint64_t number);

}  // namespace muster::gpu

#endif  // MUSTER_WORKER_GPU_XID_H_

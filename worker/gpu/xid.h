// What NVIDIA's driver means by the number of an Xid event.
#ifndef MUSTER_WORKER_GPU_XID_H_
#define MUSTER_WORKER_GPU_XID_H_

#include <cstdint>
#include <string>

namespace muster::gpu {

enum class XidKind {
  // Nothing may be placed on the device until its worker has been started again: somebody is to
  // look at it, reset it or replace it.
  kFatal,
  // Of the program that ran: an invalid address in a kernel of its own and the like. The device is
  // as good as before.
  kApplication,
  // Worth a line in the log. Numbers that are not in the table are of this kind: a driver newer
  // than this program must not empty a cluster.
  kNotice,
};

struct Xid {
  XidKind kind = XidKind::kNotice;
  const char* meaning = "";  // empty: not in the table
};

// The table follows NVIDIA's catalog of Xid errors, https://docs.nvidia.com/deploy/xid-errors:
// fatal where its immediate action is to reset the GPU or to restart the machine. The application's
// are those that NVIDIA's Kubernetes device plugin leaves a device in service for.
Xid LookUpXid(uint64_t number);

// "Xid 79, GPU has fallen off the bus".
std::string XidText(uint64_t number);

}  // namespace muster::gpu

#endif  // MUSTER_WORKER_GPU_XID_H_

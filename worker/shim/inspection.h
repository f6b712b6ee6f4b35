// The findings of a shim about its silent rank, and the file in which its worker reads them.
#ifndef MUSTER_WORKER_SHIM_INSPECTION_H_
#define MUSTER_WORKER_SHIM_INSPECTION_H_

#include <optional>
#include <string>

namespace muster::shim {

struct Inspection {
  std::string state = "gone";  // running, sleeping, disk, stopped, zombie, gone
  double cpu_ratio = 0;        // CPU seconds per second of the rank's processes
  // Kind of the main thread's wait: futex, sleep, socket, poll, pipe, file; empty: not known.
  std::string waits_in;
  // A header line per thread ("main thread…", "thread…"), then its frames, indented and innermost
  // first. Printable ASCII; empty if stacks cannot be read.
  std::string stack;
};

std::string EncodeInspection(const Inspection& inspection);
std::optional<Inspection> DecodeInspection(const std::string& text);

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_INSPECTION_H_

// The build id of the running program.
#ifndef MUSTER_COMMON_PROCESS_BUILD_ID_H_
#define MUSTER_COMMON_PROCESS_BUILD_ID_H_

#include <string>

namespace muster {

// The build id that the linker derived from the program's content (--build-id), as hexadecimal
// digits: equal for equal builds, independent of their path and of how they are started. Empty if
// the program was linked without one.
std::string BuildId();

}  // namespace muster

#endif  // MUSTER_COMMON_PROCESS_BUILD_ID_H_

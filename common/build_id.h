// Which build of a program this is.
#ifndef MUSTER_COMMON_BUILD_ID_H_
#define MUSTER_COMMON_BUILD_ID_H_

#include <string>

namespace muster {

// What the linker drew from the program's content (--build-id), as hexadecimal digits: the same for
// equal builds, wherever they lie and however they are started. Empty where it left nothing.
std::string BuildId();

}  // namespace muster

#endif  // MUSTER_COMMON_BUILD_ID_H_

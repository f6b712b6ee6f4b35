// The folder in which Muster's programs find each other.
#ifndef MUSTER_COMMON_PROCESS_PROGRAM_FOLDER_H_
#define MUSTER_COMMON_PROCESS_PROGRAM_FOLDER_H_

#include <filesystem>

namespace muster {

// The folder from which this program and those installed with it are started; empty if /proc is not
// mounted. In a bundle (deploy/bundle), this is PREFIX/bin, which contains the launchers, although
// the program itself is in PREFIX/libexec.
std::filesystem::path ProgramFolder();

}  // namespace muster

#endif  // MUSTER_COMMON_PROCESS_PROGRAM_FOLDER_H_

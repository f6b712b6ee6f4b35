// Where Muster's programs find one another.
#ifndef MUSTER_COMMON_PROGRAM_FOLDER_H_
#define MUSTER_COMMON_PROGRAM_FOLDER_H_

#include <filesystem>

namespace muster {

// The folder where this program and those installed with it are started from; empty where /proc is
// missing. In a bundle (deploy/bundle) that is PREFIX/bin with the launchers, though this file lies
// in PREFIX/libexec.
std::filesystem::path ProgramFolder();

}  // namespace muster

#endif  // MUSTER_COMMON_PROGRAM_FOLDER_H_

// The launcher in a bundle's bin/, under each program's name: starts PREFIX/libexec/NAME.
//
// Uses the host's loader if its glibc is at least as new as the one that the bundle was built with,
// else the loader and libc in PREFIX/lib/glibc. The environment is not changed, so child processes
// of the program are not affected by the bundle.
//
// Linked statically and without the C++ library, so that it runs on any Linux.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

#if defined(__x86_64__)
constexpr char kLoader[] = "/lib64/ld-linux-x86-64.so.2";
#elif defined(__aarch64__)
constexpr char kLoader[] = "/lib/ld-linux-aarch64.so.1";
#else
#error "unknown path of this architecture's loader"
#endif

constexpr int kExitCannotStart = 127;

// Compares with the glibc that this file is linked with, which is the build's.
bool IsAtLeastBuildVersion(int major, int minor) {
  return major > __GLIBC__ || (major == __GLIBC__ && minor >= __GLIBC_MINOR__);
}

// Since 2.33 a loader contains the line that its --version prints: `… stable release version 2.36.`
// A loader without it is too old or is not glibc's.
bool IsHostLoaderUsable() {
  constexpr char kWords[] = " release version ";
  const int file = open(kLoader, O_RDONLY | O_CLOEXEC);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0 || status.st_size == 0) return false;
  const size_t size = static_cast<size_t>(status.st_size);
  void* const bytes = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (bytes == MAP_FAILED) return false;
  const char* const end = static_cast<const char*>(bytes) + size;
  bool usable = false;
  if (const void* found = memmem(bytes, size, kWords, strlen(kWords)); found != nullptr) {
    const char* const at = static_cast<const char*>(found) + strlen(kWords);
    char text[16] = {};
    const size_t left = static_cast<size_t>(end - at);
    memcpy(text, at, left < sizeof(text) - 1 ? left : sizeof(text) - 1);
    int major = 0, minor = 0;
    usable = sscanf(text, "%d.%d", &major, &minor) == 2 && IsAtLeastBuildVersion(major, minor);
  }
  munmap(bytes, size);
  return usable;
}

// Truncates `path` before its last slash; returns the part after it.
char* CutLast(char* path) {
  char* const slash = strrchr(path, '/');
  if (slash == nullptr) return path;
  *slash = '\0';
  return slash + 1;
}

char* Join(const char* a, const char* b, const char* c = "", const char* d = "") {
  char* text = nullptr;
  if (asprintf(&text, "%s%s%s%s", a, b, c, d) < 0) abort();
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  char prefix[PATH_MAX] = {};
  if (readlink("/proc/self/exe", prefix, sizeof(prefix) - 1) <= 0) {
    fprintf(stderr, "%s: /proc/self/exe: %s\n", argv[0], strerror(errno));
    return kExitCannotStart;
  }
  const char* const name = CutLast(prefix);
  CutLast(prefix);  // bin
  char* const program = Join(prefix, "/libexec/", name);

  if (IsHostLoaderUsable()) {
    execv(program, argv);
    fprintf(stderr, "%s: %s: %s\n", name, program, strerror(errno));
    return kExitCannotStart;
  }

  // The loader's --library-path replaces the user's LD_LIBRARY_PATH and is separated by colons.
  if (strpbrk(prefix, ":;") != nullptr) {
    fprintf(stderr,
            "%s: with this system's glibc, the path %s must not contain a colon or semicolon\n",
            name, prefix);
    return kExitCannotStart;
  }
  const char* const users = getenv("LD_LIBRARY_PATH");
  const bool has_users = users != nullptr && *users != '\0';
  char* const glibc = Join(prefix, "/lib/glibc");
  char* const path = Join(glibc, has_users ? ":" : "", has_users ? users : "");
  char* const loader = Join(glibc, strrchr(kLoader, '/'));
  char argv0_flag[] = "--argv0", path_flag[] = "--library-path";
  char* const before[] = {loader, argv0_flag, argv[0], path_flag, path, program};
  constexpr int kBefore = sizeof(before) / sizeof(before[0]);
  // argv[0] is part of `before`; the last element is a null pointer.
  char** const arguments =
      static_cast<char**>(calloc(static_cast<size_t>(kBefore + argc), sizeof(char*)));
  if (arguments == nullptr) abort();
  memcpy(arguments, before, sizeof(before));
  if (argc > 1) {
    memcpy(arguments + kBefore, argv + 1, sizeof(char*) * static_cast<size_t>(argc - 1));
  }
  execv(loader, arguments);
  fprintf(stderr, "%s: %s: %s\n", name, loader, strerror(errno));
  return kExitCannotStart;
}

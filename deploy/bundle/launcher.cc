// What lies in a bundle's bin/ under each program's name: starts PREFIX/libexec/NAME.
//
// By the host's own loader where its glibc is at least as new as the one that the bundle was built
// with; else by the loader in PREFIX/lib/glibc, with the libc beside it. Neither way is anything
// put into the environment, so whatever the program starts in turn runs as if the bundle were not
// there.
//
// Linked statically, and without the C++ library: it must run on any Linux, whatever is installed.
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
#error "where is this architecture's loader?"
#endif

constexpr int kExitCannotStart = 127;

// The glibc that this file is linked with is the build's.
bool AtLeastTheBuilds(int major, int minor) {
  return major > __GLIBC__ || (major == __GLIBC__ && minor >= __GLIBC_MINOR__);
}

// Since 2.33 a loader carries the line that its --version prints: `… stable release version 2.36.`
// One without it is older than any that would do, or no glibc's.
bool HostLoaderWillDo() {
  constexpr char kWords[] = " release version ";
  const int file = open(kLoader, O_RDONLY | O_CLOEXEC);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0 || status.st_size == 0) return false;
  const size_t size = static_cast<size_t>(status.st_size);
  void* const bytes = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (bytes == MAP_FAILED) return false;
  const char* const end = static_cast<const char*>(bytes) + size;
  bool will_do = false;
  if (const void* found = memmem(bytes, size, kWords, strlen(kWords)); found != nullptr) {
    const char* const at = static_cast<const char*>(found) + strlen(kWords);
    char text[16] = {};
    const size_t left = static_cast<size_t>(end - at);
    memcpy(text, at, left < sizeof(text) - 1 ? left : sizeof(text) - 1);
    int major = 0, minor = 0;
    will_do = sscanf(text, "%d.%d", &major, &minor) == 2 && AtLeastTheBuilds(major, minor);
  }
  munmap(bytes, size);
  return will_do;
}

// Cuts `path` before its last slash; returns what was behind it.
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

  if (HostLoaderWillDo()) {
    execv(program, argv);
    fprintf(stderr, "%s: %s: %s\n", name, program, strerror(errno));
    return kExitCannotStart;
  }

  // It takes the place of LD_LIBRARY_PATH, which the user may have set, and is parted by colons.
  if (strpbrk(prefix, ":;") != nullptr) {
    fprintf(stderr, "%s: on this system's glibc it cannot run below %s: no colon or semicolon\n",
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
  // argv[0] is among those before; the last one is a null pointer.
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

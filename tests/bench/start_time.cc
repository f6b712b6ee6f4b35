// start_time DIRECTORY: writes the time at which main() started, in nanoseconds of the monotonic
// clock, to the file DIRECTORY/$RANK, and exits. The no-op command of launch_bench; linked without
// libraries that would take time to load.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char** argv) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const char* const rank = getenv("RANK");
  if (argc != 2 || rank == nullptr) return 2;
  char path[4096];
  snprintf(path, sizeof(path), "%s/%s", argv[1], rank);
  FILE* const file = fopen(path, "w");
  if (file == nullptr) return 1;
  fprintf(file, "%lld\n", static_cast<long long>(now.tv_sec) * 1000000000 + now.tv_nsec);
  return fclose(file) == 0 ? 0 : 1;
}
